//! The XML of PROPFIND: which properties a request asks for, and the properties of an entry.
//!
//! Written by hand over `quick-xml`, which the office formats need anyway. The crate `dav-server` has 12,000 lines,
//! most of them for writing and locks, and depends on a second XML library, `chrono` and `uuid`. It also needs the
//! whole folder before it sends the first entry.

use std::fmt::Write as _;
use std::time::SystemTime;

use quick_xml::NsReader;
use quick_xml::events::Event;
use quick_xml::name::ResolveResult;

use super::conditions::http_date;

/// The namespace of WebDAV.
const DAV: &str = "DAV:";

/// The maximum number of properties that a request may ask for, and the longest name of one.
const MAX_PROPERTIES: usize = 100;
const MAX_NAME: usize = 200;

/// The maximum number of bytes of the names and namespaces of unknown properties, escaped: each entry of the response
/// repeats all of them.
const MAX_UNKNOWN_NAMES: usize = 4 << 10;

/// A property that entries may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Property {
    ResourceType,
    DisplayName,
    ContentLength,
    ContentType,
    LastModified,
}

impl Property {
    pub(super) const ALL: [Self; 5] =
        [Self::ResourceType, Self::DisplayName, Self::ContentLength, Self::ContentType, Self::LastModified];

    fn name(self) -> &'static str {
        match self {
            Self::ResourceType => "resourcetype",
            Self::DisplayName => "displayname",
            Self::ContentLength => "getcontentlength",
            Self::ContentType => "getcontenttype",
            Self::LastModified => "getlastmodified",
        }
    }
}

/// What a PROPFIND request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    Names,
    Properties {
        known: Vec<Property>,
        /// The namespaces and names of properties that no entry has.
        unknown: Vec<(String, String)>,
    },
}

impl Wanted {
    /// Parses the body of a request; an empty one asks for all properties.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        if body.trim_ascii().is_empty() {
            return Ok(Self::All);
        }
        let mut reader = NsReader::from_reader(body);
        let (mut depth, mut wanted, mut is_begun, mut in_prop) = (0, None, false, false);
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        let mut unknown_bytes = 0;
        loop {
            let (namespace, event) =
                reader.read_resolved_event().map_err(|cause| format!("malformed XML: {cause}"))?;
            let (tag, is_empty) = match &event {
                Event::Start(tag) => (tag, false),
                Event::Empty(tag) => (tag, true),
                Event::End(_) => {
                    depth -= 1;
                    in_prop &= depth > 1;
                    continue;
                }
                Event::Eof if depth > 0 => return Err("malformed XML: an element is not closed".to_owned()),
                Event::Eof => break,
                Event::DocType(_) => return Err("a document type is not allowed".to_owned()),
                Event::Text(text) if depth == 0 && !text.trim().is_empty() => {
                    return Err("malformed XML: text outside of the element".to_owned());
                }
                _ => continue,
            };
            let namespace = match namespace {
                ResolveResult::Bound(namespace) => name_text(namespace.into_inner())?,
                ResolveResult::Unbound => String::new(),
                ResolveResult::Unknown(_) => return Err("malformed XML: unknown namespace prefix".to_owned()),
            };
            for attribute in tag.attributes() {
                let attribute = attribute.map_err(|cause| format!("malformed XML: {cause}"))?;
                let is_prefix = attribute.key.as_ref().starts_with("xmlns:");
                if is_prefix && attribute.value.is_empty() {
                    return Err("malformed XML: an empty namespace has a prefix".to_owned());
                }
            }
            let name = name_text(tag.local_name().into_inner())?;
            // The parser accepts names that XML does not allow, and the response repeats the name.
            if !name.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.')) {
                return Err("malformed XML: the name of an element is invalid".to_owned());
            }
            let is_dav = namespace == DAV;
            match depth {
                0 if is_begun || !is_dav || name != "propfind" => {
                    return Err("the body is not a `propfind`".to_owned());
                }
                0 => is_begun = true,
                1 if is_dav => match &*name {
                    "allprop" => wanted = Some(Self::All),
                    "propname" => wanted = Some(Self::Names),
                    "prop" => in_prop = true,
                    _ => {}
                },
                2 if in_prop => {
                    if known.len() + unknown.len() == MAX_PROPERTIES {
                        return Err(format!("more than {MAX_PROPERTIES} properties"));
                    }
                    match Property::ALL.into_iter().find(|property| is_dav && property.name() == name) {
                        Some(property) if known.contains(&property) => {}
                        Some(property) => known.push(property),
                        None => {
                            unknown_bytes += name.len() + Escaped(&namespace).to_string().len();
                            if unknown_bytes > MAX_UNKNOWN_NAMES {
                                return Err("the names of the unknown properties are too long together; \
                                            hint: request fewer of them"
                                    .to_owned());
                            }
                            unknown.push((namespace, name.clone()));
                        }
                    }
                }
                _ => {}
            }
            if !is_empty {
                depth += 1;
            } else if depth == 1 && name == "prop" {
                in_prop = false;
            }
        }
        match wanted {
            Some(wanted) => Ok(wanted),
            None if !is_begun => Err("the body is not a `propfind`".to_owned()),
            None => Ok(Self::Properties { known, unknown }),
        }
    }

    /// Whether the size of files is asked for.
    pub(super) fn has_size(&self) -> bool {
        match self {
            Self::All => true,
            Self::Names => false,
            Self::Properties { known, .. } => known.contains(&Property::ContentLength),
        }
    }
}

fn name_text(name: &str) -> Result<String, String> {
    match name.len() <= MAX_NAME {
        true => Ok(name.to_owned()),
        false => Err("the name of a property is too long".to_owned()),
    }
}

/// The beginning and the end of a response.
pub(super) const HEAD: &str =
    "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";
pub(super) const TAIL: &str = "</D:multistatus>\n";

/// The remark of a response that may lack entries.
pub(super) const INCOMPLETE: &str =
    "<D:responsedescription>Some sources did not respond; entries may be missing.</D:responsedescription>\n";

/// The properties of a file or folder.
#[derive(Clone, Debug)]
pub(super) struct EntryProperties<'a> {
    /// The path of the address, encoded.
    pub(super) href: &'a str,
    pub(super) name: &'a str,
    pub(super) is_folder: bool,
    pub(super) mime: Option<&'a str>,
    pub(super) size: Option<u64>,
    pub(super) modified: Option<SystemTime>,
}

impl EntryProperties<'_> {
    /// Writes the element of the entry in a response.
    pub(super) fn write(&self, out: &mut String, wanted: &Wanted) {
        _ = write!(out, "<D:response><D:href>{}</D:href>", Escaped(self.href));
        let has = |property: Property| match property {
            Property::ResourceType | Property::DisplayName => true,
            Property::ContentLength => !self.is_folder && self.size.is_some(),
            Property::ContentType => !self.is_folder && self.mime.is_some(),
            Property::LastModified => !self.is_folder || self.modified.and_then(http_date).is_some(),
        };
        let nothing = Vec::new();
        let (known, unknown) = match wanted {
            Wanted::All | Wanted::Names => (&Property::ALL[..], &nothing),
            Wanted::Properties { known, unknown } => (&known[..], unknown),
        };
        let (present, absent): (Vec<_>, Vec<_>) = known.iter().copied().partition(|property| has(*property));
        if !present.is_empty() || (absent.is_empty() && unknown.is_empty()) {
            out.push_str("<D:propstat><D:prop>");
            for property in present {
                match wanted {
                    Wanted::Names => _ = write!(out, "<D:{}/>", property.name()),
                    _ => self.write_property(out, property),
                }
            }
            out.push_str("</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>");
        }
        if matches!(wanted, Wanted::Properties { .. }) && !(absent.is_empty() && unknown.is_empty()) {
            out.push_str("<D:propstat><D:prop>");
            for property in absent {
                _ = write!(out, "<D:{}/>", property.name());
            }
            for (namespace, name) in unknown {
                _ = write!(out, "<{name} xmlns=\"{}\"/>", Escaped(namespace));
            }
            out.push_str("</D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat>");
        }
        out.push_str("</D:response>\n");
    }

    fn write_property(&self, out: &mut String, property: Property) {
        let name = property.name();
        _ = match (property, self.is_folder, self.size, self.mime, self.modified) {
            (Property::ResourceType, true, ..) => write!(out, "<D:{name}><D:collection/></D:{name}>"),
            (Property::DisplayName, ..) => write!(out, "<D:{name}>{}</D:{name}>", Escaped(self.name)),
            (Property::ContentLength, _, Some(size), ..) => write!(out, "<D:{name}>{size}</D:{name}>"),
            (Property::ContentType, _, _, Some(mime), _) => {
                write!(out, "<D:{name}>{}</D:{name}>", Escaped(mime))
            }
            (Property::LastModified, .., time) => {
                // cadaver shows a file without a date as an error.
                let date = time.and_then(http_date).or_else(|| http_date(SystemTime::UNIX_EPOCH));
                write!(out, "<D:{name}>{}</D:{name}>", date.unwrap_or_default())
            }
            _ => write!(out, "<D:{name}/>"),
        };
    }
}

/// Text in XML. Characters that XML cannot contain are left out.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\t' | '\n' | ' '.. if !matches!(letter, '\u{fffe}' | '\u{ffff}') => f.write_char(letter)?,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{EntryProperties, Property, Wanted};

    #[test]
    fn a_request_names_properties() {
        assert_eq!(Wanted::parse(b" "), Ok(Wanted::All));
        let all = br#"<?xml version="1.0"?><propfind xmlns="DAV:"><allprop/></propfind>"#;
        assert_eq!(Wanted::parse(all), Ok(Wanted::All));
        assert_eq!(
            Wanted::parse(br#"<a:propfind xmlns:a="DAV:"><a:propname/></a:propfind>"#),
            Ok(Wanted::Names)
        );
        let some = br#"<D:propfind xmlns:D="DAV:" xmlns:x="urn:x"><D:prop><D:getcontentlength/>
            <x:color><x:deep/></x:color><D:getcontentlength/><quota xmlns="DAV:"/></D:prop></D:propfind>"#;
        let unknown = vec![("urn:x".to_owned(), "color".to_owned()), ("DAV:".to_owned(), "quota".to_owned())];
        let known = vec![Property::ContentLength];
        assert_eq!(Wanted::parse(some), Ok(Wanted::Properties { known, unknown }));
    }

    #[test]
    fn a_malformed_request_is_refused() {
        for wrong in [
            "<propfind>",
            "<propfind xmlns=\"DAV:\"><allprop></propfind>",
            "<propfind xmlns=\"DAV:\"><prop>",
            "<x:propfind><x:allprop/></x:propfind>",
            "<propfind xmlns=\"urn:other\"><allprop/></propfind>",
            "<D:propfind xmlns:D=\"DAV:\"><D:prop><b:x xmlns:b=\"\"/></D:prop></D:propfind>",
            "<!DOCTYPE a [<!ENTITY b \"c\">]><propfind xmlns=\"DAV:\"><allprop/></propfind>",
            "{}",
            "<a/><b/>",
            "<D:propfind xmlns:D=\"DAV:\"><D:prop><D:a<b/></D:prop></D:propfind>",
        ] {
            assert!(Wanted::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let many =
            format!("<D:propfind xmlns:D=\"DAV:\"><D:prop>{}</D:prop></D:propfind>", "<D:a/>".repeat(101));
        assert!(Wanted::parse(many.as_bytes()).is_err());
    }

    #[test]
    fn unknown_properties_are_bounded_as_they_are_written() {
        let request = |count: usize, namespace: &str| {
            let property = format!("<x xmlns='{}'/>", namespace.repeat(150));
            let properties = property.repeat(count);
            Wanted::parse(
                format!("<D:propfind xmlns:D='DAV:'><D:prop>{properties}</D:prop></D:propfind>").as_bytes(),
            )
        };
        assert!(request(27, "a").is_ok() && request(28, "a").is_err());
        // Each quote is written as six bytes.
        assert!(request(4, "\"").is_ok() && request(5, "\"").is_err());
    }

    #[test]
    fn an_entry_is_written() {
        let entry = EntryProperties {
            href: "/dav/a%26b",
            name: "a&b",
            is_folder: false,
            mime: Some("text/plain"),
            size: Some(7),
            modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)),
        };
        let written = |entry: &EntryProperties<'_>, wanted| {
            let mut out = String::new();
            entry.write(&mut out, &wanted);
            out
        };
        assert_eq!(
            written(&entry, Wanted::All),
            "<D:response><D:href>/dav/a%26b</D:href><D:propstat><D:prop><D:resourcetype/>\
             <D:displayname>a&amp;b</D:displayname><D:getcontentlength>7</D:getcontentlength>\
             <D:getcontenttype>text/plain</D:getcontenttype>\
             <D:getlastmodified>Fri, 02 Jan 1970 00:00:00 GMT</D:getlastmodified></D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>\n"
        );
        let undated = EntryProperties { modified: None, ..entry.clone() };
        let date =
            written(&undated, Wanted::Properties { known: vec![Property::LastModified], unknown: vec![] });
        assert!(date.contains("<D:getlastmodified>Thu, 01 Jan 1970 00:00:00 GMT<"), "{date}");
        let folder = EntryProperties { is_folder: true, modified: None, ..entry };
        let known = vec![Property::ResourceType, Property::ContentLength];
        let unknown = vec![("urn:\"x".to_owned(), "color".to_owned())];
        assert_eq!(
            written(&folder, Wanted::Properties { known, unknown }),
            "<D:response><D:href>/dav/a%26b</D:href><D:propstat><D:prop>\
             <D:resourcetype><D:collection/></D:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>\
             <D:propstat><D:prop><D:getcontentlength/><color xmlns=\"urn:&quot;x\"/></D:prop>\
             <D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>\n"
        );
        let names = written(&folder, Wanted::Names);
        assert!(names.contains("<D:displayname/>") && !names.contains("getcontentlength"), "{names}");
        assert!(!names.contains("getlastmodified"), "{names}");
    }
}
