//! The listing of a folder: as Markdown for people and models, as JSON for programs. Also parses the query that
//! selects a page of it.

#![allow(dead_code, reason = "each is used by some sources, which are features")]

use std::borrow::Cow;
use std::fmt::Write;

use jiff::Timestamp;
use libris_core::{Content, DIRECTORY, Error, Result, Uri};
use serde_json::{Map, Value, json};

use crate::meta;

/// The media type of a listing for people and models.
const MARKDOWN: &str = "text/markdown";

/// The media type of a listing for programs.
const JSON: &str = "application/json";

/// The maximum number of children on the first page of several. A client that looks for a name in a large folder reads
/// the first page only to learn of `match` and `after`, so that page is short.
const MAX_FIRST_OF_SEVERAL: usize = 50;

/// The parameters of a folder's URI, in the order of the template.
pub(crate) const KEYS: [&str; 4] = ["after", "match", "format", "contents"];

/// A child of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedChild {
    /// The name, without a slash at the end.
    pub(crate) name: String,
    pub(crate) uri: Uri,
    /// The media type of a file, [`DIRECTORY`], or another kind, such as `submodule`.
    pub(crate) kind: Cow<'static, str>,
    /// The size in bytes.
    pub(crate) size: Option<u64>,
    pub(crate) modified: Option<Timestamp>,
    /// The title from the contents, if there is one.
    pub(crate) title: Option<String>,
}

/// The format of a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListingFormat {
    /// For people and models.
    #[default]
    Markdown,
    /// For programs.
    Json,
}

/// The contents that follow a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FollowingContents {
    /// None.
    Nothing,
    /// The small text files of the page.
    Text,
}

/// The parameters of a folder's URI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FolderQuery {
    /// The decoded name of the child after which the page begins.
    pub(crate) after: Option<Vec<u8>>,
    /// The text that the names on the page contain, in lower case.
    matching: Option<String>,
    pub(crate) format: ListingFormat,
    /// The requested contents; see [`contents`](Self::contents).
    requested: Option<FollowingContents>,
}

impl FolderQuery {
    /// Parses a query. Empty values count as absent, as in a form without input. Other parameters are ignored.
    pub(crate) fn parse(query: &str) -> Result<Self> {
        let mut parsed = Self::default();
        let mut given = Vec::new();
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            if value.is_empty() || !KEYS.contains(&key) {
                continue;
            }
            if given.contains(&key) {
                return Err(Error::invalid(format!("`{key}` is given twice: give it once")));
            }
            given.push(key);
            match (key, value) {
                ("after", name) => parsed.after = Some(decoded_value(key, name)?),
                ("match", text) => {
                    let text = decoded_value(key, text)?;
                    parsed.matching = Some(String::from_utf8_lossy(&text).to_lowercase());
                }
                ("format", "markdown") => parsed.format = ListingFormat::Markdown,
                ("format", "json") => parsed.format = ListingFormat::Json,
                ("format", other) => {
                    return Err(Error::invalid(format!("`format={other}` must be `markdown` or `json`")));
                }
                ("contents", "none") => parsed.requested = Some(FollowingContents::Nothing),
                ("contents", "text") => parsed.requested = Some(FollowingContents::Text),
                (_, other) => {
                    return Err(Error::invalid(format!("`contents={other}` must be `none` or `text`")));
                }
            }
        }
        Ok(parsed)
    }

    /// The contents that follow a page: those that were requested. By default, text follows a Markdown listing that has
    /// the whole folder on one page, if the folder has no subfolders; otherwise nothing follows. A client on the way to
    /// a file needs no texts of the folders above it. `has_next` says whether another page follows.
    pub(crate) fn contents(&self, children: &[ListedChild], has_next: bool) -> FollowingContents {
        let is_whole = self.is_first() && !has_next;
        let is_leaf = !children.iter().any(ListedChild::is_folder);
        self.requested.unwrap_or(match self.format {
            ListingFormat::Markdown if is_whole && is_leaf => FollowingContents::Text,
            ListingFormat::Markdown | ListingFormat::Json => FollowingContents::Nothing,
        })
    }

    /// Whether the page begins with the first child of the folder.
    fn is_first(&self) -> bool {
        self.after.is_none() && self.matching.is_none()
    }

    /// The number of children on a page with `listed` children, if another page follows: the first page of a Markdown
    /// listing is shortened, unless texts were requested. Programs get all children, and so does VS Code, which reads a
    /// folder `as_directory` and shows only this page.
    pub(crate) fn shortened(&self, listed: usize, as_directory: bool) -> usize {
        let is_short = self.is_first()
            && self.format == ListingFormat::Markdown
            && self.requested != Some(FollowingContents::Text)
            && !as_directory;
        if is_short { listed.min(MAX_FIRST_OF_SEVERAL) } else { listed }
    }

    /// Whether `match` selects a child, by its percent-encoded name.
    pub(crate) fn selects(&self, encoded_name: &str) -> bool {
        let Some(text) = &self.matching else { return true };
        let name = Uri::decode_segment(encoded_name.strip_suffix('/').unwrap_or(encoded_name));
        name.is_some_and(|name| String::from_utf8_lossy(&name).to_lowercase().contains(text))
    }

    /// Whether the query has a `match`, which may leave out children.
    pub(crate) fn has_match(&self) -> bool {
        self.matching.is_some()
    }

    /// The URI of the page that begins after the child with this name, with the same other parameters; `None` if it is
    /// too long.
    pub(crate) fn next(&self, folder: &Uri, name: &[u8]) -> Option<Uri> {
        let mut uri = format!("{}?after={}", folder.without_query(), encoded_value(name));
        if let Some(text) = &self.matching {
            let _ = write!(uri, "&match={}", encoded_value(text.as_bytes()));
        }
        if self.format == ListingFormat::Json {
            uri.push_str("&format=json");
        }
        match self.requested {
            None => {}
            Some(FollowingContents::Nothing) => uri.push_str("&contents=none"),
            Some(FollowingContents::Text) => uri.push_str("&contents=text"),
        }
        Uri::parse(&uri).ok()
    }
}

/// The decoded value of a parameter.
fn decoded_value(key: &str, value: &str) -> Result<Vec<u8>> {
    Uri::decode_segment(value).ok_or_else(|| {
        Error::invalid(format!(
            "`{key}={value}` has a malformed escape: write `%` and two hexadecimal digits, or `%25` for a `%`"
        ))
    })
}

/// A name as the value of a parameter.
fn encoded_value(name: &[u8]) -> String {
    Uri::encode_segment(name).replace('&', "%26").replace('+', "%2B")
}

/// One page of the listing of a folder.
#[derive(Clone, Debug)]
pub(crate) struct FolderListing<'a> {
    /// The URI of the folder.
    pub(crate) folder: &'a Uri,
    /// The query that selects the page.
    pub(crate) query: &'a FolderQuery,
    /// The heading: the title or the name of the folder.
    pub(crate) title: &'a str,
    pub(crate) children: &'a [ListedChild],
    /// The URI of the next page.
    pub(crate) next: Option<&'a Uri>,
    /// The number of children after this page, if known.
    pub(crate) more: Option<usize>,
}

impl FolderListing<'_> {
    /// The listing as the contents at a URI, with the next page in `_meta`.
    pub(crate) fn content(&self, uri: Uri) -> Content {
        let mut content = match self.query.format {
            ListingFormat::Markdown => Content::text(uri, MARKDOWN, self.markdown()),
            ListingFormat::Json => Content::text(uri, JSON, format!("{}\n", self.json())),
        };
        if let Some(next) = self.next {
            let mut meta = meta::with(meta::NEXT, next.as_str());
            if let Some(more) = self.more {
                meta.insert(meta::MORE.to_owned(), more.into());
            }
            content.meta = Some(meta);
        }
        content
    }

    /// A heading, a table with a row for each child on this page, and the URI of the next page if there is one. A
    /// column in which no child has a value is omitted.
    pub(crate) fn markdown(&self) -> String {
        let mut page = format!("# {}\n\n", cell(self.title));
        match &self.query.matching {
            _ if !self.children.is_empty() => self.write_table(&mut page),
            Some(text) => {
                let _ = writeln!(page, "No name contains `{}`.", cell(text));
            }
            None => page.push_str("No entries.\n"),
        }
        if let Some(next) = self.next {
            let count = match self.more {
                Some(1) => "1 more entry".to_owned(),
                Some(more) => format!("{} more entries", grouped(more as u64)),
                None => "More entries follow".to_owned(),
            };
            let _ = write!(page, "\n{count}: read {next}\n");
            if !self.query.has_match() {
                let folder = self.folder.without_query();
                let _ = writeln!(page, "Entries with a text in their name: read {folder}?match=TEXT");
            }
        }
        page
    }

    fn write_table(&self, page: &mut String) {
        let has = |value: fn(&ListedChild) -> bool| self.children.iter().any(value);
        let columns = [
            Some(ListingColumn::Name),
            has(|child| !child.is_folder()).then_some(ListingColumn::Kind),
            has(|child| child.size.is_some()).then_some(ListingColumn::Size),
            has(|child| child.modified.is_some()).then_some(ListingColumn::Modified),
            has(|child| child.title.is_some()).then_some(ListingColumn::Title),
        ];
        let columns: Vec<ListingColumn> = columns.into_iter().flatten().collect();
        for column in &columns {
            let _ = write!(page, "| {} ", column.heading());
        }
        page.push_str("|\n");
        page.push_str(&"|---".repeat(columns.len()));
        page.push_str("|\n");
        for child in self.children {
            for column in &columns {
                let value = column.value(child);
                let _ = if value.is_empty() { write!(page, "| ") } else { write!(page, "| {value} ") };
            }
            page.push_str("|\n");
        }
    }

    /// The listing for programs, with the names of the fields of MCP resources.
    pub(crate) fn json(&self) -> Value {
        let child = |child: &ListedChild| {
            let mut fields = Map::new();
            fields.insert("name".into(), child.name.as_str().into());
            fields.insert("uri".into(), child.uri.as_str().into());
            fields.insert("mimeType".into(), child.kind.as_ref().into());
            fields.extend(child.size.map(|size| ("size".into(), size.into())));
            fields
                .extend(child.modified.map(|modified| ("lastModified".into(), modified.to_string().into())));
            fields.extend(child.title.as_ref().map(|title| ("title".into(), title.as_str().into())));
            Value::Object(fields)
        };
        let children: Vec<Value> = self.children.iter().map(child).collect();
        let mut page = json!({ "uri": self.folder.as_str(), "title": self.title, "children": children });
        if let Some(next) = self.next {
            page["next"] = next.as_str().into();
        }
        page
    }
}

/// A column of the Markdown table.
#[derive(Clone, Copy)]
enum ListingColumn {
    Name,
    Kind,
    Size,
    Modified,
    Title,
}

impl ListingColumn {
    fn heading(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Kind => "type",
            Self::Size => "bytes",
            Self::Modified => "modified",
            Self::Title => "title",
        }
    }

    fn value(self, child: &ListedChild) -> String {
        match self {
            Self::Name => {
                let slash = if child.is_folder() { "/" } else { "" };
                format!("[{}{slash}]({})", cell(&child.name), link_target(&child.uri))
            }
            // The slash after its name says that a child is a folder.
            Self::Kind if child.is_folder() => String::new(),
            Self::Kind => child.kind.clone().into_owned(),
            Self::Size => child.size.map(grouped).unwrap_or_default(),
            Self::Modified => {
                child.modified.map(|modified| modified.strftime("%Y-%m-%d").to_string()).unwrap_or_default()
            }
            Self::Title => child.title.as_deref().map(cell).unwrap_or_default(),
        }
    }
}

impl ListedChild {
    fn is_folder(&self) -> bool {
        self.kind == DIRECTORY
    }

    fn kind_label(&self) -> &str {
        if self.is_folder() { "folder" } else { &self.kind }
    }

    /// A summary without the name, such as `image/png, 275,000 bytes`. Never empty.
    pub(crate) fn summary(&self) -> String {
        let mut summary = self.kind_label().to_owned();
        if let Some(size) = self.size {
            let unit = if size == 1 { "byte" } else { "bytes" };
            let _ = write!(summary, ", {} {unit}", grouped(size));
        }
        summary
    }

    /// The number of bytes of the child's row in a Markdown table with all columns. The size limit of a page counts
    /// them.
    pub(crate) fn row_bytes(&self) -> usize {
        [
            ListingColumn::Name,
            ListingColumn::Kind,
            ListingColumn::Size,
            ListingColumn::Modified,
            ListingColumn::Title,
        ]
        .into_iter()
        .map(|column| column.value(self).len() + 3)
        .sum()
    }
}

/// Escapes text for a table cell or for the text of a link: replaces control characters, such as line breaks, with
/// spaces, and escapes the characters that could end the cell or the link, or begin a tag.
fn cell(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | '|' | '[' | ']' | '<' => escaped.extend(['\\', letter]),
            letter if letter.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// A URI as the target of a link. An unbalanced parenthesis would end a target that is not in angle brackets.
fn link_target(uri: &Uri) -> Cow<'_, str> {
    match uri.as_str() {
        text if text.contains(['(', ')']) => format!("<{text}>").into(),
        text => text.into(),
    }
}

/// A number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{
        DIRECTORY, FolderListing, FolderQuery, FollowingContents, ListedChild, ListingFormat, grouped,
    };
    use libris_core::Uri;

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    fn child(name: &str, path: &str, kind: &'static str) -> ListedChild {
        ListedChild {
            name: name.into(),
            uri: uri(&format!("file:///root/{path}")),
            kind: kind.into(),
            size: None,
            modified: None,
            title: None,
        }
    }

    fn children() -> Vec<ListedChild> {
        let modified = "2026-11-17T11:36:40Z".parse().ok();
        vec![
            ListedChild { modified, ..child("guide", "guide/", DIRECTORY) },
            ListedChild {
                size: Some(1_234_567),
                title: Some("Plans | [draft]".into()),
                ..child("a (1|2).md", "a%20(1%7C2).md", "text/markdown")
            },
        ]
    }

    #[test]
    fn markdown_for_models() {
        let (folder, next) = (uri("file:///root/"), uri("file:///root/?after=a"));
        let children = children();
        let page = FolderListing {
            folder: &folder,
            query: &FolderQuery::default(),
            title: "Our root",
            children: &children,
            next: Some(&next),
            more: Some(3024),
        };
        insta::assert_snapshot!(page.markdown(), @"
        # Our root

        | name | type | bytes | modified | title |
        |---|---|---|---|---|
        | [guide/](file:///root/guide/) | | | 2026-11-17 | |
        | [a (1\\|2).md](<file:///root/a%20(1%7C2).md>) | text/markdown | 1,234,567 | | Plans \\| \\[draft\\] |

        3,024 more entries: read file:///root/?after=a
        Entries with a text in their name: read file:///root/?match=TEXT
        ");
        let plain = [child("guide", "guide/", DIRECTORY)];
        let page = FolderListing { children: &plain, next: None, ..page };
        insta::assert_snapshot!(page.markdown(), @"
        # Our root

        | name |
        |---|
        | [guide/](file:///root/guide/) |
        ");
        let page = FolderListing { children: &[], ..page };
        insta::assert_snapshot!(page.markdown(), @"
        # Our root

        No entries.
        ");
        let query = FolderQuery::parse("match=Not%20there").unwrap();
        insta::assert_snapshot!(FolderListing { query: &query, ..page }.markdown(), @"
        # Our root

        No name contains `not there`.
        ");
    }

    #[test]
    fn json_for_programs() {
        let (folder, next) = (uri("file:///root/"), uri("file:///root/?after=a&format=json"));
        let children = children();
        let page = FolderListing {
            folder: &folder,
            query: &FolderQuery::default(),
            title: "root",
            children: &children,
            next: Some(&next),
            more: Some(1),
        };
        insta::assert_json_snapshot!(page.json(), @r#"
        {
          "children": [
            {
              "lastModified": "2026-11-17T11:36:40Z",
              "mimeType": "inode/directory",
              "name": "guide",
              "uri": "file:///root/guide/"
            },
            {
              "mimeType": "text/markdown",
              "name": "a (1|2).md",
              "size": 1234567,
              "title": "Plans | [draft]",
              "uri": "file:///root/a%20(1%7C2).md"
            }
          ],
          "next": "file:///root/?after=a&format=json",
          "title": "root",
          "uri": "file:///root/"
        }
        "#);
    }

    #[test]
    fn a_query_selects_a_page() {
        let parse = |query| FolderQuery::parse(query).unwrap();
        assert_eq!(parse("after=&format=&contents="), FolderQuery::default());
        for (query, has_next, expected) in [
            ("", false, FollowingContents::Text),
            ("", true, FollowingContents::Nothing),
            ("after=a", false, FollowingContents::Nothing),
            ("match=a", false, FollowingContents::Nothing),
            ("after=a&contents=text", true, FollowingContents::Text),
            ("format=json", false, FollowingContents::Nothing),
            ("format=json&contents=text", false, FollowingContents::Text),
        ] {
            let file = [child("a", "a", "text/plain")];
            assert_eq!(parse(query).contents(&file, has_next), expected, "{query}");
        }
        assert_eq!(parse("").contents(&children(), false), FollowingContents::Nothing);
        assert_eq!(parse("contents=text").contents(&children(), false), FollowingContents::Text);
        for (query, as_directory, expected) in [
            ("", false, 50),
            ("contents=none", false, 50),
            ("", true, 200),
            ("after=a", false, 200),
            ("match=a", false, 200),
            ("format=json", false, 200),
            ("contents=text", false, 200),
        ] {
            assert_eq!(parse(query).shortened(200, as_directory), expected, "{query}");
        }
        assert_eq!(parse("").shortened(3, false), 3);
        let query = parse("after=a%26b%2F&format=json&contents=none");
        assert_eq!(query.after.as_deref(), Some(b"a&b/".as_slice()));
        assert_eq!(query.format, ListingFormat::Json);
        let next = query.next(&uri("file:///root/?after=a"), b"c+d&e\xff").unwrap();
        assert_eq!(next.as_str(), "file:///root/?after=c%2Bd%26e%FF&format=json&contents=none");
        assert_eq!(parse(next.query().unwrap()).after.unwrap(), b"c+d&e\xff");
    }

    #[test]
    fn a_text_selects_names() {
        let query = FolderQuery::parse("match=%C3%84b%26").unwrap();
        assert!(query.selects("x%C3%A4B&y/") && query.selects("%C3%84b&") && !query.selects("ab&"));
        assert!(FolderQuery::default().selects("anything") && !FolderQuery::default().has_match());
        let next = query.next(&uri("file:///root/?match=x"), b"c").unwrap();
        assert_eq!(next.as_str(), "file:///root/?after=c&match=%C3%A4b%26");
        // The slash of a folder is not a part of its name.
        assert!(!FolderQuery::parse("match=%2F").unwrap().selects("guide/"));
    }

    #[test]
    fn mistakes_in_a_query_are_explained() {
        let said = |query| FolderQuery::parse(query).unwrap_err().to_string();
        insta::assert_snapshot!(said("format=xml"), @"`format=xml` must be `markdown` or `json`");
        insta::assert_snapshot!(said("contents=all"), @"`contents=all` must be `none` or `text`");
        insta::assert_snapshot!(said("match=%zz"), @"`match=%zz` has a malformed escape: write `%` and two hexadecimal digits, or `%25` for a `%`");
        insta::assert_snapshot!(said("after=a&after=b"), @"`after` is given twice: give it once");
    }

    #[test]
    fn a_summary_is_never_empty() {
        let file = ListedChild { size: Some(1), ..child("x", "x", "image/png") };
        assert_eq!(file.summary(), "image/png, 1 byte");
        assert_eq!(child("x", "x/", DIRECTORY).summary(), "folder");
        assert_eq!([0, 999, 1000, 12_345_678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
    }
}
