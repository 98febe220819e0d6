//! The lower bound (limit) for any server: inserts the id of the request into prepared responses.
//!
//! These servers respond as fast as hyper and a pipe allow. They are not for use: they validate nothing and serve only
//! the files that existed when they started.

mod http;
mod stdio;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use memchr::{memchr, memmem};
use serde_json::{Value, json};

pub(crate) use http::run as over_http;
pub(crate) use stdio::run as over_stdio;

use crate::shelf::{Book, Content, Shelf};

/// The prefix of every response; the id of the request follows.
const BEFORE: &[u8] = br#"{"jsonrpc":"2.0","id":"#;

/// The end of a response with one content, whose string precedes it.
const AFTER: &[u8] = br#""}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}}"#;

/// All responses without their prefix.
struct Ready {
    reads: HashMap<Vec<u8>, Bytes>,
    files: HashMap<Vec<u8>, ServedFile>,
    pages: HashMap<Vec<u8>, Bytes>,
    first: Bytes,
    id: memmem::Finder<'static>,
    uri: memmem::Finder<'static>,
    cursor: memmem::Finder<'static>,
    list: memmem::Finder<'static>,
}

/// A file that is read at each request.
struct ServedFile {
    path: PathBuf,
    is_text: bool,
    /// What precedes the content in a response, after the id.
    before: Vec<u8>,
}

impl ServedFile {
    fn of(folder: &Path, book: &Book) -> Self {
        let is_text = matches!(book.content, Content::Text(_));
        let Book { uri, mime, name, .. } = book;
        let key = if is_text { "text" } else { "blob" };
        let before =
            format!(",\"result\":{{\"contents\":[{{\"uri\":\"{uri}\",\"mimeType\":\"{mime}\",\"{key}\":\"");
        Self { path: folder.join(name), is_text, before: before.into_bytes() }
    }
}

impl Ready {
    fn new(folder: &Path) -> Result<Self> {
        let shelf = Shelf::load(folder)?;
        let reads = shelf.books.iter().map(|book| (book.uri.clone().into_bytes(), read(book))).collect();
        let mut pages = HashMap::new();
        let mut cursor: Option<String> = None;
        while let Some((books, next)) = shelf.page(cursor.as_deref()) {
            pages.insert(cursor.unwrap_or_default().into_bytes(), page(books, next.as_deref()));
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        let file = |book: &Book| (book.uri.clone().into_bytes(), ServedFile::of(folder, book));
        Ok(Self {
            reads,
            files: shelf.books.iter().map(file).collect(),
            first: pages[&b""[..]].clone(),
            pages,
            id: memmem::Finder::new(b"\"id\":"),
            uri: memmem::Finder::new(b"\"uri\":\""),
            cursor: memmem::Finder::new(b"\"cursor\":\""),
            list: memmem::Finder::new(b"resources/list"),
        })
    }

    /// The id of a request, and the rest of the response to it.
    fn answer(&self, request: &[u8]) -> Option<(Range<usize>, &Bytes)> {
        let id = self.id(request)?;
        let rest = if let Some(uri) = string(&self.uri, request)
            && let Some(rest) = self.reads.get(uri)
        {
            rest
        } else if self.list.find(request).is_none() {
            return None;
        } else if let Some(cursor) = string(&self.cursor, request) {
            self.pages.get(cursor)?
        } else {
            &self.first
        };
        Some((id, rest))
    }

    /// The id of a request to read, and the file.
    fn file(&self, request: &[u8]) -> Option<(Range<usize>, &ServedFile)> {
        Some((self.id(request)?, self.files.get(string(&self.uri, request)?)?))
    }

    fn id(&self, request: &[u8]) -> Option<Range<usize>> {
        let start = self.id.find(request)? + 5;
        let end = start + request[start..].iter().position(|&byte| byte == b',' || byte == b'}')?;
        Some(start..end)
    }
}

/// The string value of a key.
fn string<'r>(key: &memmem::Finder<'_>, request: &'r [u8]) -> Option<&'r [u8]> {
    let value = &request[key.find(request)? + key.needle().len()..];
    Some(&value[..memchr(b'"', value)?])
}

fn read(book: &Book) -> Bytes {
    let mut content = json!({ "uri": book.uri, "mimeType": book.mime });
    match &book.content {
        Content::Text(text) => content["text"] = text.as_str().into(),
        Content::Blob(blob) => content["blob"] = STANDARD.encode(blob).into(),
    }
    rest(&json!({ "contents": [content], "resultType": "complete", "ttlMs": 0, "cacheScope": "private" }))
}

fn page(books: &[Book], next: Option<&str>) -> Bytes {
    let resources: Vec<_> = books.iter().map(describe).collect();
    let mut result =
        json!({ "resources": resources, "resultType": "complete", "ttlMs": 0, "cacheScope": "private" });
    if let Some(next) = next {
        result["nextCursor"] = next.into();
    }
    rest(&result)
}

fn describe(book: &Book) -> Value {
    json!({
        "uri": book.uri,
        "name": book.name,
        "mimeType": book.mime,
        "size": book.size,
        "annotations": { "lastModified": book.modified },
    })
}

/// The bytes after the id in a response with this result.
fn rest(result: &Value) -> Bytes {
    format!(",\"result\":{result}}}").into()
}
