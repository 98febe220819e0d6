//! Maps the URIs of an upstream MCP server (`inner`) to those under which Libris serves them (`outer`), and back.

use libris_core::{Error, Meta, Result, Uri, UriSpan, UriTemplate};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// The characters to percent-encode in a malformed upstream URI: those that no part of a URI may contain.
const FORBIDDEN: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// How the URIs and names of an upstream server are changed, so that those of several servers do not collide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UriMount {
    /// URIs are served unchanged.
    #[default]
    Kept,
    /// A prefix before the scheme: `name+file:///a`. MCP Apps URIs must keep the scheme `ui://`, so their prefix goes
    /// before the authority: `ui://name+app/view`.
    Prefixed(String),
}

impl UriMount {
    /// Creates a `Prefixed` mount. Fails unless the name is lower-case letters, digits, `-` and `.`, with a letter
    /// first.
    pub fn prefixed(name: &str) -> Result<Self> {
        let is_valid = name.starts_with(|letter: char| letter.is_ascii_lowercase())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte));
        match is_valid {
            true => Ok(Self::Prefixed(name.to_owned())),
            false => Err(Error::invalid(format!(
                "`{name}` cannot begin a URI scheme; hint: use lower-case letters, digits, `-` and `.`, with a letter first"
            ))),
        }
    }

    /// The served URI for an upstream URI. If that is malformed, the characters that no URI may contain are escaped.
    pub(crate) fn outer(&self, inner: &str) -> Result<Uri> {
        let uri = parse_leniently(inner)?;
        match self {
            Self::Kept => Ok(uri),
            Self::Prefixed(name) => Uri::parse(&prefixed(name, uri.as_str())),
        }
    }

    /// The ranges of all served URIs; `None` if the server may choose any.
    pub(crate) fn span(&self) -> Option<UriSpan> {
        match self {
            Self::Kept => None,
            Self::Prefixed(name) => {
                Some(UriSpan::below(&prefixed(name, "")).union(UriSpan::below(&prefixed(name, APPS_SCHEME))))
            }
        }
    }

    /// The upstream URI, normalised, for a served URI; `None` if `outer` does not have this prefix, or the rest is not a
    /// URI.
    pub(crate) fn inner(&self, outer: &Uri) -> Option<Uri> {
        match self {
            Self::Kept => Some(outer.clone()),
            Self::Prefixed(name) => Uri::parse(&unprefixed(name, outer.as_str())?).ok(),
        }
    }

    /// The served template for an upstream template.
    pub(crate) fn outer_template(&self, inner: &str) -> Result<UriTemplate> {
        match self {
            Self::Kept => UriTemplate::parse(inner),
            Self::Prefixed(name) => UriTemplate::parse(&prefixed(name, inner)),
        }
    }

    /// The served name of an upstream item, such as a prompt: `name_inner`.
    pub(crate) fn outer_name(&self, inner: &str) -> String {
        match self {
            Self::Kept => inner.to_owned(),
            Self::Prefixed(name) => format!("{name}_{inner}"),
        }
    }

    /// The upstream name for a served name; `None` without this prefix.
    pub(crate) fn inner_name<'a>(&self, outer: &'a str) -> Option<&'a str> {
        match self {
            Self::Kept => Some(outer),
            Self::Prefixed(name) => outer.strip_prefix(&**name)?.strip_prefix('_'),
        }
    }

    /// Maps the URIs in `_meta`: the URI of the MCP App (`ui.resourceUri`, or the flat key `ui/resourceUri`), and the
    /// URIs that another Libris gives for the next page, the text, the image and the members of a resource.
    pub(crate) fn rewrite_meta(&self, meta: &mut Meta) {
        if *self == Self::Kept {
            return;
        }
        let outer = |text: &str| self.outer(text).ok().map(|uri| uri.as_str().into());
        if let Some(app) = meta.get_mut("ui").and_then(|ui| ui.get_mut("resourceUri"))
            && let Some(uri) = app.as_str().and_then(outer)
        {
            *app = uri;
        }
        for key in META_URIS {
            if let Some(value) = meta.get_mut(key)
                && let Some(uri) = value.as_str().and_then(outer)
            {
                *value = uri;
            }
        }
    }
}

/// The keys of `_meta` whose values are URIs.
const META_URIS: [&str; 5] =
    ["ui/resourceUri", "dev.libris/next", "dev.libris/text", "dev.libris/image", "dev.libris/members"];

/// The scheme of MCP Apps.
const APPS_SCHEME: &str = "ui://";

fn prefixed(name: &str, text: &str) -> String {
    match text.strip_prefix(APPS_SCHEME) {
        Some(rest) => format!("ui://{name}+{rest}"),
        None => format!("{name}+{text}"),
    }
}

fn unprefixed(name: &str, text: &str) -> Option<String> {
    match text.strip_prefix(APPS_SCHEME) {
        Some(rest) => Some(format!("ui://{}", rest.strip_prefix(name)?.strip_prefix('+')?)),
        None => Some(text.strip_prefix(name)?.strip_prefix('+')?.to_owned()),
    }
}

/// Parses a URI; if it is malformed, a second time with [`FORBIDDEN`] characters escaped.
fn parse_leniently(text: &str) -> Result<Uri> {
    Uri::parse(text).or_else(|error| {
        if text.len() > Uri::LIMIT {
            return Err(error);
        }
        Uri::parse(&utf8_percent_encode(text, FORBIDDEN).to_string())
    })
}

#[cfg(test)]
mod tests {
    use libris_core::Uri;

    use super::UriMount;

    fn mount() -> UriMount {
        UriMount::prefixed("docs").unwrap()
    }

    #[test]
    fn a_prefix_is_put_before_the_scheme_and_taken_away() {
        for (inner, outer) in [
            ("file:///a/b.md", "docs+file:///a/b.md"),
            ("demo:one?x=1#y", "docs+demo:one?x=1#y"),
            ("ui://app/view", "ui://docs+app/view"),
            ("http://EXAMPLE.com", "docs+http://example.com/"),
            ("note://a b", "docs+note://a%20b"),
            ("note://ä/{x}", "docs+note://%C3%A4/%7Bx%7D"),
        ] {
            let mapped = mount().outer(inner).unwrap();
            assert_eq!(mapped.as_str(), outer);
            let back = mount().inner(&mapped).unwrap();
            assert_eq!(mount().outer(back.as_str()).unwrap(), mapped);
        }
        for other in ["file:///a", "other+file:///a", "docsfile:///a", "ui://app/view"] {
            assert_eq!(mount().inner(&Uri::parse(other).unwrap()), None, "{other}");
        }
        assert!(mount().outer("no scheme at all").is_err());
    }

    #[test]
    fn the_span_contains_served_uris_and_no_others() {
        let span = mount().span().unwrap();
        // Whether a page that begins with this URI can have URIs of the server up to the next letter.
        let has = |uri: &str| {
            let end = Uri::parse(&format!("{uri}~")).unwrap();
            let before = Uri::parse(&uri[..uri.len() - 1]).unwrap();
            span.start_after(Some(&before)).is_some_and(|start| *start <= *end.as_str())
        };
        for inner in ["file:///a/b.md", "demo:one?x=1#y", "ui://app/view"] {
            let outer = mount().outer(inner).unwrap();
            assert!(has(outer.as_str()), "{outer}");
        }
        for other in ["cat:x", "docs:x", "file:///a", "git://docs/a", "ui://app/view", "wiki+file:///a"] {
            assert!(!has(other), "{other}");
        }
        assert!(UriMount::Kept.span().is_none());
    }

    #[test]
    fn templates_keep_their_expressions() {
        for (inner, outer) in [
            ("db://{table}/rows{?a,b}", "docs+db://{table}/rows{?a,b}"),
            ("ui://{app*}", "ui://docs+{app*}"),
            ("{+uri}", "docs+{+uri}"),
        ] {
            assert_eq!(mount().outer_template(inner).unwrap().as_str(), outer);
        }
        assert!(mount().outer_template("a:{").is_err());
    }

    #[test]
    fn names_have_the_prefix_too() {
        assert_eq!(mount().outer_name("review"), "docs_review");
        assert_eq!(mount().inner_name("docs_review"), Some("review"));
        assert_eq!(mount().inner_name("review"), None);
        assert_eq!(UriMount::Kept.inner_name("review"), Some("review"));
    }

    #[test]
    fn a_prefix_is_part_of_a_scheme() {
        for wrong in ["", "1a", "Docs", "a_b", "a+b", "a b", "-a"] {
            assert!(UriMount::prefixed(wrong).is_err(), "{wrong}");
        }
        assert!(UriMount::prefixed("a.b-1").is_ok());
    }
}
