//! The content of a resource as the bytes of a file.

use std::ops::Range;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{Stream, stream};
use libris_wire::{Call, Failure};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::read::read;

/// How many bytes of a large file are read at a time.
const PART_BYTES: u64 = 512 << 10;

/// The media type of a file that stands for several contents.
const JSON: &str = "application/json";

#[derive(Deserialize)]
struct FileRead {
    contents: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct FilePart {
    #[serde(rename = "mimeType")]
    mime: Option<String>,
    text: Option<String>,
    blob: Option<String>,
    #[serde(rename = "_meta", default)]
    meta: Map<String, Value>,
}

/// The content of a file, in memory or to be read in parts.
pub(super) enum FileContent {
    Whole { bytes: Bytes, mime: Option<String> },
    Parts { total: u64, mime: Option<String> },
}

impl FileContent {
    /// Reads a resource. The file has the bytes of its content or, if it has several contents, the result of
    /// `resources/read` as JSON. If the resource is too large for one read, only its size is read, and [`parts`] reads
    /// the bytes.
    pub(super) async fn load(call: &Call, uri: &str) -> Result<Self, Failure> {
        match read::<FileRead>(call, uri).await {
            Ok(result) => whole(result),
            Err(Failure::Internal { data: Some(data), .. })
                if data["limit"].is_u64() && data["size"].is_u64() =>
            {
                let first = read::<FileRead>(call, &part_uri(uri, &(0..1))).await?;
                let first = only(&first).ok_or_else(unreadable)?;
                let total = first.total().ok_or_else(unreadable)?;
                Ok(Self::Parts { total, mime: first.mime })
            }
            Err(failure) => Err(failure),
        }
    }

    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Whole { bytes, .. } => bytes.len() as u64,
            Self::Parts { total, .. } => *total,
        }
    }

    pub(super) fn mime(&self) -> Option<&str> {
        let (Self::Whole { mime, .. } | Self::Parts { mime, .. }) = self;
        mime.as_deref()
    }
}

impl FilePart {
    fn total(&self) -> Option<u64> {
        self.meta.get("dev.libris/totalBytes").and_then(Value::as_u64)
    }

    fn into_bytes(self) -> Result<Bytes, Failure> {
        match (self.text, self.blob) {
            (Some(text), _) => Ok(text.into()),
            (None, Some(blob)) => STANDARD.decode(blob).map(Bytes::from).map_err(|_| unreadable()),
            (None, None) => Ok(Bytes::new()),
        }
    }
}

fn unreadable() -> Failure {
    Failure::Internal { message: "the resource could not be read".to_owned(), data: None }
}

/// The content, if a result has only one.
fn only(result: &FileRead) -> Option<FilePart> {
    match &result.contents[..] {
        [only] => serde_json::from_str(only.get()).ok(),
        _ => None,
    }
}

fn whole(result: FileRead) -> Result<FileContent, Failure> {
    if result.contents.len() == 1 {
        let mut part = only(&result).ok_or_else(unreadable)?;
        let mime = part.mime.take();
        return Ok(FileContent::Whole { bytes: part.into_bytes()?, mime });
    }
    let contents: Vec<_> = result.contents.iter().map(|content| content.get()).collect();
    let json = format!("{{\"contents\":[{}]}}", contents.join(","));
    Ok(FileContent::Whole { bytes: json.into(), mime: Some(JSON.to_owned()) })
}

fn part_uri(uri: &str, range: &Range<u64>) -> String {
    let separator = if uri.contains('?') { '&' } else { '?' };
    format!("{uri}{separator}bytes={}-{}", range.start, range.end - 1)
}

/// A range of a large file, part by part. It ends early if a read fails or the file changes meanwhile: the response is
/// then shorter than its `Content-Length`, and the client notices. Each part comes with the call that reserved its memory.
pub(super) fn parts(
    call: &Call,
    uri: String,
    total: u64,
    range: Range<u64>,
    modified: Option<SystemTime>,
) -> impl Stream<Item = (Call, Bytes)> + Send + 'static {
    let state = (call.clone(), uri, range);
    stream::unfold(state, move |(call, uri, left)| async move {
        if left.is_empty() {
            return None;
        }
        let part = left.start..left.end.min(left.start + PART_BYTES);
        let reading = call.for_part();
        let read = read::<FileRead>(&reading, &part_uri(&uri, &part)).await.ok()?;
        let content = only(&read).filter(|content| content.total() == Some(total))?;
        let bytes = content.into_bytes().ok().filter(|bytes| bytes.len() as u64 == part.end - part.start)?;
        if part.end == left.end {
            let now = reading.view().describe(&reading, &uri).await.ok()?;
            if now.and_then(|now| now.modified) != modified {
                tracing::debug!(uri, "a file changed while it was sent");
                return None;
            }
        }
        Some(((reading, bytes), (call, uri, part.end..left.end)))
    })
}

#[cfg(test)]
mod tests {
    use super::{FileContent, FileRead, part_uri, whole};

    fn content(contents: &str) -> (Vec<u8>, Option<String>) {
        let read: FileRead = serde_json::from_str(&format!("{{\"contents\":{contents}}}")).unwrap();
        match whole(read).ok().unwrap() {
            FileContent::Whole { bytes, mime } => (bytes.to_vec(), mime),
            FileContent::Parts { .. } => panic!("it is in memory"),
        }
    }

    #[test]
    fn a_file_is_the_bytes_of_a_content() {
        let text = r#"[{"uri":"a:b","mimeType":"text/plain","text":"ä\n"}]"#;
        assert_eq!(content(text), ("ä\n".into(), Some("text/plain".to_owned())));
        assert_eq!(content(r#"[{"uri":"a:b","blob":"AAH/"}]"#), (vec![0, 1, 255], None));
        assert_eq!(content(r#"[{"uri":"a:b","text":""}]"#), (vec![], None));
    }

    #[test]
    fn several_contents_are_json() {
        let two = r#"[{"uri":"a:b","text":"x"},{"uri":"a:c","blob":"AA=="}]"#;
        let (bytes, mime) = content(two);
        assert_eq!(mime.as_deref(), Some("application/json"));
        assert_eq!(String::from_utf8(bytes).unwrap(), format!("{{\"contents\":{two}}}"));
        assert_eq!(content("[]").0, b"{\"contents\":[]}");
    }

    #[test]
    fn parts_are_ranges_of_bytes() {
        assert_eq!(part_uri("file:///a", &(0..10)), "file:///a?bytes=0-9");
        assert_eq!(part_uri("a:b?x=1", &(5..6)), "a:b?x=1&bytes=5-5");
    }
}
