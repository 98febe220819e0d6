//! Previews: reads a resource through the caller's view and renders it as HTML.

mod highlight;
mod json;
mod kind;
mod language;
mod links;
mod markdown;
mod notebook;
mod table;

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use libris_wire::http::Body;
use libris_wire::{Call, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use self::kind::PreviewKind;
use self::links::LinkBase;
use crate::html;
use crate::read::read;

/// The maximum number of previews that are rendered at once; further requests wait.
const CONCURRENT: usize = 4;

/// Larger resources are read in byte ranges, if their source supports these.
const WHOLE_BYTES: u64 = 1 << 20;

/// The size of such a range.
const PART_BYTES: u64 = 256 << 10;

/// The maximum number of bytes of a text that are rendered.
const MAX_RENDERED: usize = 1 << 20;

/// The maximum number of parts of a resource (entries of `contents`) that are shown.
const MAX_CONTENTS: usize = 20;

/// The maximum number of pictures of a document that are shown.
const MAX_PICTURES: usize = 16;

/// The largest picture that is shown, in characters of Base64.
const MAX_PICTURE: usize = 2 << 20;

/// Renders previews, a few at a time.
#[derive(Debug)]
pub(crate) struct Previews {
    permits: Semaphore,
}

impl Default for Previews {
    fn default() -> Self {
        Self { permits: Semaphore::new(CONCURRENT) }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PreviewRequest {
    uri: String,
    /// The size of the resource in bytes, if the list says it.
    #[serde(default)]
    size: Option<u64>,
    /// Whether to show the source, for example of Markdown, instead of rendering it.
    #[serde(default)]
    source: bool,
}

/// A preview, as the page receives it.
#[derive(Debug, Serialize)]
pub(crate) struct Preview {
    kind: &'static str,
    #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
    mime: Option<String>,
    html: String,
    /// Whether something was left out because of a limit.
    cut: bool,
    /// If only a range is shown, the URI of the next range.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(rename = "totalBytes", skip_serializing_if = "Option::is_none")]
    total_bytes: Option<u64>,
    /// The number of pages or slides of the document whose text this is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pages: Option<u64>,
}

/// The result of `resources/read`.
#[derive(Deserialize)]
struct PreviewRead {
    contents: Vec<PreviewContent>,
}

#[derive(Deserialize)]
struct PreviewContent {
    uri: String,
    #[serde(rename = "mimeType")]
    mime: Option<String>,
    text: Option<String>,
    blob: Option<String>,
    #[serde(rename = "_meta", default)]
    meta: Map<String, Value>,
}

impl Previews {
    /// Answers a request for a preview.
    pub(crate) async fn respond(&self, call: &Call, body: &Bytes) -> Response<Body> {
        match self.preview(call, body).await {
            Ok(preview) => respond(StatusCode::OK, &preview),
            Err(failure) => {
                let (status, message) = describe(failure);
                respond(status, &serde_json::json!({ "error": message }))
            }
        }
    }

    /// Makes the preview that a request, in JSON, asks for.
    pub(crate) async fn preview(&self, call: &Call, request: &[u8]) -> Result<Preview, Failure> {
        let request: PreviewRequest = serde_json::from_slice(request)
            .map_err(|cause| Failure::invalid(format!("the request is invalid: {cause}")))?;
        let busy = || Failure::Busy { message: "the server is shutting down".to_owned() };
        let _permit = self.permits.acquire().await.map_err(|_| busy())?;
        let is_whole = request.size.is_none_or(|size| size <= WHOLE_BYTES);
        let result = match first_range(&request.uri).filter(|_| !is_whole) {
            // A source without ranges refuses the parameter, or does not find the URI.
            Some(range) => match read(call, &range).await {
                Err(Failure::Invalid { .. } | Failure::NotFound { .. }) => read(call, &request.uri).await?,
                answered => answered?,
            },
            None => read(call, &request.uri).await?,
        };
        let pictures = pictures(call, &result).await;
        let rendering = tokio::task::spawn_blocking(move || render(result, &pictures, request.source));
        rendering.await.map_err(|cause| {
            tracing::error!(%cause, "could not render a preview");
            Failure::Internal { message: "the preview could not be rendered".to_owned(), data: None }
        })
    }
}

/// The URI of the first byte range of a resource; `None` if the URI already selects a range, or text.
fn first_range(uri: &str) -> Option<String> {
    let has_range = uri.contains("bytes=")
        || uri.contains("lines=")
        || uri.contains("as=text")
        || uri.contains("as=image");
    let separator = if uri.contains('?') { '&' } else { '?' };
    (!has_range).then(|| format!("{uri}{separator}bytes=0-{}", PART_BYTES - 1))
}

/// Reads the pictures that Markdown in the result refers to, as far as the caller may read them. Returns `data:` URIs by
/// the URI of the picture.
async fn pictures(call: &Call, result: &PreviewRead) -> HashMap<String, String> {
    let mut pictures = HashMap::new();
    for content in result.contents.iter().take(MAX_CONTENTS) {
        let Some(text) = content.text.as_deref() else { continue };
        if kind::of(content.mime.as_deref(), &content.uri) != PreviewKind::Markdown {
            continue;
        }
        let base = LinkBase::new(&content.uri);
        for uri in markdown::pictures(text, &base) {
            if pictures.len() >= MAX_PICTURES {
                return pictures;
            }
            if pictures.contains_key(&uri) {
                continue;
            }
            // A picture that cannot be read is replaced by its alternative text.
            if let Ok(read) = read::<PreviewRead>(call, &uri).await
                && let Some(data) = read.contents.into_iter().next().and_then(as_picture)
            {
                pictures.insert(uri, data);
            }
        }
    }
    pictures
}

/// A picture as a `data:` URI; `None` if it is of another type or too large. SVG is safe here: browsers run no scripts
/// in an `<img>`.
fn as_picture(content: PreviewContent) -> Option<String> {
    const KINDS: [&str; 6] =
        ["image/avif", "image/gif", "image/jpeg", "image/png", "image/svg+xml", "image/webp"];
    let mime = content.mime?;
    let kind = KINDS.iter().find(|kind| **kind == mime)?;
    let data = content.blob.or_else(|| Some(STANDARD.encode(content.text?)))?;
    (data.len() <= MAX_PICTURE).then(|| format!("data:{kind};base64,{data}"))
}

/// Renders all contents of a resource.
fn render(result: PreviewRead, pictures: &HashMap<String, String>, source: bool) -> Preview {
    let count = result.contents.len();
    let mut preview = Preview {
        kind: "empty",
        mime: result.contents.first().and_then(|content| content.mime.clone()),
        html: String::new(),
        cut: count > MAX_CONTENTS,
        next: None,
        total_bytes: None,
        pages: None,
    };
    for (index, content) in result.contents.into_iter().take(MAX_CONTENTS).enumerate() {
        if count > 1 {
            let title = html::text(&content.uri);
            preview.html.push_str(&format!("<p class=\"part\">{title}</p>"));
        }
        let (kind, cut) = render_content(&mut preview.html, &content, pictures, source);
        preview.cut |= cut;
        if index == 0 {
            preview.kind = kind.name();
            preview.next = content.meta.get("dev.libris/next").and_then(Value::as_str).map(str::to_owned);
            preview.total_bytes = content.meta.get("dev.libris/totalBytes").and_then(Value::as_u64);
            preview.pages = content.meta.get("dev.libris/pages").and_then(Value::as_u64);
        }
    }
    preview
}

/// Renders one part, and returns its kind and whether something was left out.
fn render_content(
    out: &mut String,
    content: &PreviewContent,
    pictures: &HashMap<String, String>,
    source: bool,
) -> (PreviewKind, bool) {
    let decoded;
    let text = match (&content.text, &content.blob) {
        (Some(text), _) => Some(text.as_str()),
        (None, Some(blob)) => {
            decoded = STANDARD.decode(blob).unwrap_or_default();
            match as_text(&decoded) {
                Some(text) => Some(text),
                None => return (PreviewKind::Hex, table::hex(out, &decoded)),
            }
        }
        (None, None) => None,
    };
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        out.push_str("<p class=\"empty\">Empty</p>");
        return (PreviewKind::Source, false);
    };
    let (text, is_all) = within(text, MAX_RENDERED);
    let kind = kind::of(content.mime.as_deref(), &content.uri);
    let rendered = match kind {
        _ if source => None,
        PreviewKind::Markdown => Some(markdown::render(out, text, &LinkBase::new(&content.uri), pictures)),
        PreviewKind::Json => json::render(out, text),
        PreviewKind::Table => Some(table::render(out, text, kind::separator(&content.uri, text))),
        PreviewKind::Notebook => notebook::render(out, text, &LinkBase::new(&content.uri)),
        PreviewKind::Source | PreviewKind::Hex => None,
    };
    match rendered {
        Some(is_cut) => (kind, is_cut || !is_all),
        None => {
            let language = language::of(content.mime.as_deref(), &content.uri, text);
            let is_cut = highlight::render_lines(out, text, language);
            (PreviewKind::Source, is_cut || !is_all)
        }
    }
}

/// Decodes UTF-8; `None` for binary data. An incomplete character at the end is dropped, since a range may end within
/// one.
fn as_text(bytes: &[u8]) -> Option<&str> {
    const LONGEST: usize = 4;
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(cause) if bytes.len() - cause.valid_up_to() < LONGEST => {
            std::str::from_utf8(&bytes[..cause.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    (!text.contains('\0') && !text.is_empty()).then_some(text)
}

/// The beginning of a text, at most `limit` bytes, and whether that is the whole text.
fn within(text: &str, limit: usize) -> (&str, bool) {
    if text.len() <= limit {
        return (text, true);
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    (&text[..end], false)
}

/// The HTTP status and the message for a failed read.
fn describe(failure: Failure) -> (StatusCode, String) {
    match failure {
        Failure::NotFound { hint, .. } => (
            StatusCode::NOT_FOUND,
            hint.map_or_else(
                || "resource not found".to_owned(),
                |hint| format!("resource not found: {hint}"),
            ),
        ),
        Failure::ScopeRequired { message, .. } => (StatusCode::FORBIDDEN, message),
        Failure::Invalid { message } => (StatusCode::BAD_REQUEST, message),
        Failure::Busy { message } => (StatusCode::SERVICE_UNAVAILABLE, message),
        Failure::Internal { message, .. } => (StatusCode::INTERNAL_SERVER_ERROR, message),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "the resource could not be read".to_owned()),
    }
}

fn respond(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let json = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Body::from(Bytes::from(json)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::{Preview, PreviewRead, as_text, first_range, render, within};

    fn preview(contents: &str, source: bool) -> Preview {
        let result: PreviewRead = serde_json::from_str(&format!("{{\"contents\":{contents}}}")).unwrap();
        render(result, &HashMap::new(), source)
    }

    #[test]
    fn a_content_is_rendered_by_its_kind_or_as_source() {
        let text = r##"[{"uri":"file:///a.md","mimeType":"text/markdown","text":"# A"}]"##;
        assert_eq!(preview(text, false).kind, "markdown");
        let source = preview(text, true);
        assert_eq!(source.kind, "source");
        assert!(source.html.contains("# A"), "{}", source.html);
        let broken = r#"[{"uri":"file:///a.json","mimeType":"application/json","text":"{"}]"#;
        assert_eq!(preview(broken, false).kind, "source");
        assert_eq!(preview(r#"[{"uri":"a:b","blob":"AAEC/w=="}]"#, false).kind, "hex");
        assert!(preview(r#"[{"uri":"a:b","text":""}]"#, false).html.contains("Empty"));
    }

    #[test]
    fn a_range_has_the_uri_of_the_next() {
        let part = r#"[{"uri":"a:b","blob":"w6TDpMM=","_meta":{"dev.libris/next":"a:b?bytes=5-9","dev.libris/totalBytes":10}}]"#;
        let part = preview(part, false);
        // The last character is incomplete.
        assert!(part.html.contains(">ää<"), "{}", part.html);
        assert_eq!((part.next.as_deref(), part.total_bytes), (Some("a:b?bytes=5-9"), Some(10)));
    }

    #[test]
    fn a_range_is_added_unless_there_is_one() {
        assert_eq!(first_range("file:///a").as_deref(), Some("file:///a?bytes=0-262143"));
        assert_eq!(first_range("db://a?x=1").as_deref(), Some("db://a?x=1&bytes=0-262143"));
        assert_eq!(first_range("file:///a?lines=1-2"), None);
    }

    #[test]
    fn texts_end_at_a_character() {
        assert_eq!(within("aä", 2), ("a", false));
        assert_eq!(as_text(b"a\xff\xffbbbb"), None);
        assert_eq!(as_text(b"a\0"), None);
        assert_eq!(as_text("aä".as_bytes()), Some("aä"));
    }
}
