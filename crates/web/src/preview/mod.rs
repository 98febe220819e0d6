//! Previews: reads a resource through the caller's view and renders it as HTML.

mod highlight;
mod json;
mod kind;
mod language;
mod links;
mod markdown;
mod notebook;
mod table;

use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use libris_wire::http::Body;
use libris_wire::{Budget, Call, Client, Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use self::kind::PreviewKind;
use self::links::LinkBase;
use self::markdown::Pictures;
use crate::html;
use crate::read::{COPIES, read_more, read_to_render};

/// The maximum number of previews that are rendered at once; further requests wait. One client may have three of them.
const CONCURRENT: usize = 4;

/// A unit for each preview that is being rendered, for the page and for the picker in chats.
static RENDERINGS: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(CONCURRENT));

/// Larger resources are read in byte ranges, if their source supports these.
const WHOLE_BYTES: u64 = 1 << 20;

/// The size of such a range.
const PART_BYTES: u64 = 256 << 10;

/// The maximum number of bytes of text that are rendered, of all parts of a resource together.
const MAX_RENDERED: usize = 1 << 20;

/// After about this many bytes of HTML, Markdown ends and source has no colours. Pictures do not count.
const MAX_HTML: usize = 4 << 20;

/// The HTML of a preview is reserved as this many times the size of the result, at most [`MAX_HTML`].
const HTML_GROWTH: usize = 8;

/// The maximum number of parts of a resource (entries of `contents`) that are shown.
const MAX_CONTENTS: usize = 20;

/// The maximum number of different pictures of a document that are shown.
const MAX_PICTURES: usize = 16;

/// The maximum number of bytes of pictures in a preview, as `data:` URIs.
const MAX_EMBEDDED: usize = 8 << 20;

/// The largest picture that is shown, in characters of Base64.
const MAX_PICTURE: usize = 2 << 20;

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
    /// Where the part to show begins.
    #[serde(default)]
    start: PartStart,
}

/// Where a part of a resource begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct PartStart {
    /// The offset of its first byte.
    byte: u64,
    /// The number of line breaks before it.
    lines_before: u64,
}

/// A preview, as the page receives it.
#[derive(Debug, Serialize)]
pub(crate) struct Preview {
    kind: &'static str,
    #[serde(rename = "mimeType", skip_serializing_if = "Option::is_none")]
    mime: Option<String>,
    html: String,
    /// Whether something was left out that no further part shows.
    cut: bool,
    /// The first byte that is not shown, if more follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    rest: Option<PartStart>,
    /// If the source returned a page, the URI of the next page.
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

impl PreviewRead {
    /// The number of bytes of all contents, as far as they are text or Base64.
    fn size(&self) -> usize {
        let size = |content: &PreviewContent| {
            [&content.text, &content.blob].into_iter().flatten().map(String::len).sum::<usize>()
        };
        self.contents.iter().map(size).sum()
    }
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

/// Answers a request for a preview.
pub(crate) async fn respond(call: &Call, body: &Bytes) -> Response<Body> {
    match preview(call, body).await {
        Ok(preview) => response(StatusCode::OK, &preview),
        Err(failure) => {
            let (status, message) = describe(failure);
            response(status, &serde_json::json!({ "error": message }))
        }
    }
}

/// Makes the preview that a request, in JSON, asks for.
pub(crate) async fn preview(call: &Call, request: &[u8]) -> Result<Preview, Failure> {
    let request: PreviewRequest = serde_json::from_slice(request)
        .map_err(|cause| Failure::invalid(format!("the request is invalid: {cause}")))?;
    let is_whole = request.size.is_none_or(|size| size <= WHOLE_BYTES);
    let (result, extent) = match range(&request.uri, request.start.byte).filter(|_| !is_whole) {
        // A source without ranges refuses the parameter, or does not find the URI.
        Some(range) => match read_to_render(call, &range, rendered_bytes).await {
            Err(Failure::Invalid { .. } | Failure::NotFound { .. }) => {
                (read_to_render(call, &request.uri, rendered_bytes).await?, Extent::Whole)
            }
            answered => (answered?, Extent::Range),
        },
        None => (read_to_render(call, &request.uri, rendered_bytes).await?, Extent::Whole),
    };
    let part = PreviewPart { start: request.start, extent, source: request.source };
    // The work holds the call, and with it the memory that the call has reserved for the contents.
    let reserved = call.clone();
    let work = move || {
        let _reserved = reserved;
        let uris = if part.source { Vec::new() } else { picture_uris(&result) };
        (result, uris)
    };
    let (result, uris) = in_background(&RENDERINGS, call.client, work).await?;
    let mut pictures = load_pictures(call, uris, result.size()).await;
    let reserved = call.clone();
    let work = move || {
        let _reserved = reserved;
        render(result, &mut pictures, part)
    };
    in_background(&RENDERINGS, call.client, work).await
}

/// The memory of the preview of a result of this size: its HTML, and its JSON.
fn rendered_bytes(size: usize) -> usize {
    2 * size.saturating_mul(HTML_GROWTH).min(MAX_HTML)
}

/// Does CPU-bound work on another thread, once the budget has a unit for the client. The work itself holds the unit until
/// it ends, because it goes on if nobody waits for its result any more.
async fn in_background<T: Send + 'static>(
    budget: &Arc<Budget>,
    client: Client,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let busy = || Failure::Busy { message: "too many previews are waiting; try again later".to_owned() };
    let unit = budget.take(client, 1).await.ok_or_else(busy)?;
    let working = tokio::task::spawn_blocking(move || {
        let _unit = unit;
        work()
    });
    working.await.map_err(|cause| {
        tracing::error!(%cause, "could not render a preview");
        Failure::Internal { message: "the preview could not be rendered".to_owned(), data: None }
    })
}

/// How much of a resource was read to show a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Whole,
    /// The bytes from the start of the part, at most [`PART_BYTES`].
    Range,
}

/// What is rendered of a resource.
#[derive(Clone, Copy, Debug)]
struct PreviewPart {
    start: PartStart,
    extent: Extent,
    source: bool,
}

/// The URI of the byte range that begins at `first`; `None` if the URI already selects a range, or text.
fn range(uri: &str, first: u64) -> Option<String> {
    let has_range = uri.contains("bytes=")
        || uri.contains("lines=")
        || uri.contains("as=text")
        || uri.contains("as=image");
    let separator = if uri.contains('?') { '&' } else { '?' };
    let last = first.checked_add(PART_BYTES - 1)?;
    (!has_range).then(|| format!("{uri}{separator}bytes={first}-{last}"))
}

/// The URIs of the pictures that Markdown in the result refers to, each once.
fn picture_uris(result: &PreviewRead) -> Vec<String> {
    let mut uris = Vec::new();
    for content in result.contents.iter().take(MAX_CONTENTS) {
        let Some(text) = content.text.as_deref() else { continue };
        if kind::of(content.mime.as_deref(), &content.uri) != PreviewKind::Markdown {
            continue;
        }
        let base = LinkBase::new(&content.uri);
        for uri in markdown::pictures(within(text, MAX_RENDERED).0, &base) {
            if uris.len() >= MAX_PICTURES {
                return uris;
            }
            if !uris.contains(&uri) {
                uris.push(uri);
            }
        }
    }
    uris
}

/// Reads pictures, as far as the caller may read them. One that cannot be read, or for which there is no memory, is
/// replaced by its alternative text. `shown` is the size of the document that shows them.
async fn load_pictures(call: &Call, uris: Vec<String>, shown: usize) -> Pictures {
    let mut pictures = Pictures::new(MAX_EMBEDDED);
    let mut total = shown;
    // The document stays in memory meanwhile.
    call.hold();
    for uri in uris {
        if let Ok(read) = read_more::<PreviewRead>(call, &uri).await
            && let Some(data) = read.contents.into_iter().next().and_then(as_picture)
        {
            total += data.len();
            // All pictures are in memory at once: as read, in the HTML, and in the response.
            if call.reserve_loaded(total.saturating_mul(COPIES)) {
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

/// Renders all contents of a resource; of a single content, the given part.
fn render(result: PreviewRead, pictures: &mut Pictures, part: PreviewPart) -> Preview {
    let count = result.contents.len();
    let mut text_left = MAX_RENDERED;
    let mut preview = Preview {
        kind: "empty",
        mime: result.contents.first().and_then(|content| content.mime.clone()),
        html: String::new(),
        cut: count > MAX_CONTENTS,
        rest: None,
        next: None,
        total_bytes: None,
        pages: None,
    };
    for (index, content) in result.contents.into_iter().take(MAX_CONTENTS).enumerate() {
        if count > 1 {
            let title = html::text(&content.uri);
            preview.html.push_str(&format!("<p class=\"part\">{title}</p>"));
        }
        let rendered = render_content(&mut preview.html, &content, pictures, part, &mut text_left);
        preview.cut |= rendered.is_cut || (count > 1 && rendered.rest.is_some());
        if index == 0 {
            preview.kind = rendered.kind.name();
            preview.rest = rendered.rest.filter(|_| count == 1);
            preview.total_bytes = rendered.total_bytes.filter(|_| count == 1);
            if part.extent == Extent::Whole {
                preview.next = content.meta.get("dev.libris/next").and_then(Value::as_str).map(str::to_owned);
            }
            preview.pages = content.meta.get("dev.libris/pages").and_then(Value::as_u64);
        }
    }
    preview
}

/// What was rendered of a content.
struct RenderedPart {
    kind: PreviewKind,
    /// Whether something was left out that no further part shows.
    is_cut: bool,
    /// Where the next part begins.
    rest: Option<PartStart>,
    /// The size of the whole content, if this is not all of it.
    total_bytes: Option<u64>,
}

/// Renders one content, as far as the limits allow.
fn render_content(
    out: &mut String,
    content: &PreviewContent,
    pictures: &mut Pictures,
    part: PreviewPart,
    text_left: &mut usize,
) -> RenderedPart {
    let decoded = content.blob.as_deref().map(|blob| STANDARD.decode(blob).unwrap_or_default());
    let bytes = match (&content.text, &decoded) {
        (Some(text), _) => text.as_bytes(),
        (None, Some(decoded)) => decoded,
        (None, None) => &[],
    };
    // Where the part begins in the bytes that were read.
    let skipped = match part.extent {
        Extent::Whole => usize::try_from(part.start.byte).unwrap_or(usize::MAX).min(bytes.len()),
        Extent::Range => 0,
    };
    let total = match part.extent {
        Extent::Whole => Some(bytes.len() as u64),
        Extent::Range => content.meta.get("dev.libris/totalBytes").and_then(Value::as_u64),
    };
    let bytes = &bytes[skipped..];
    let is_end = match (part.extent, total) {
        (Extent::Whole, _) => true,
        (Extent::Range, Some(total)) => part.start.byte + bytes.len() as u64 >= total,
        (Extent::Range, None) => !content.meta.contains_key("dev.libris/next"),
    };
    let (kind, shown, is_cut) = match as_text(bytes) {
        _ if bytes.is_empty() => {
            out.push_str("<p class=\"empty\">Empty</p>");
            (PreviewKind::Source, 0, false)
        }
        Some(text) => {
            let (limited, is_all) = within(text, *text_left);
            *text_left -= limited.len();
            render_text(out, content, limited, pictures, part, is_end && is_all)
        }
        None => (PreviewKind::Hex, table::hex(out, bytes, part.start.byte), false),
    };
    let rest = (shown < bytes.len() || !is_end).then(|| PartStart {
        byte: part.start.byte + shown as u64,
        lines_before: part.start.lines_before + line_breaks(&bytes[..shown]),
    });
    let is_part = rest.is_some() || part.start.byte > 0;
    RenderedPart { kind, is_cut, rest, total_bytes: total.filter(|_| is_part) }
}

fn line_breaks(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Renders the beginning of a text. Returns its kind, how many bytes of it are shown, and whether something was left out
/// of these. `is_end` is whether the content ends with this text.
fn render_text(
    out: &mut String,
    content: &PreviewContent,
    text: &str,
    pictures: &mut Pictures,
    part: PreviewPart,
    is_end: bool,
) -> (PreviewKind, usize, bool) {
    let kind = kind::of(content.mime.as_deref(), &content.uri);
    let is_beginning = part.start.byte == 0;
    let lines = if is_end { text } else { whole_lines(text) };
    let rendered = match kind {
        _ if part.source => None,
        PreviewKind::Markdown => {
            let is_cut = markdown::render(out, lines, &LinkBase::new(&content.uri), pictures);
            Some((lines.len(), is_cut))
        }
        PreviewKind::Table => {
            let separator = kind::separator(&content.uri, text);
            let first = if is_beginning { table::FirstRow::Head } else { table::FirstRow::Data };
            Some(table::render(out, text, separator, first, is_end))
        }
        // A part of JSON or of a notebook cannot be parsed, so it is shown as source.
        PreviewKind::Json if is_beginning && is_end => {
            json::render(out, text).map(|is_cut| (text.len(), is_cut))
        }
        PreviewKind::Notebook if is_beginning && is_end => {
            notebook::render(out, text, &LinkBase::new(&content.uri)).map(|is_cut| (text.len(), is_cut))
        }
        PreviewKind::Json | PreviewKind::Notebook | PreviewKind::Source | PreviewKind::Hex => None,
    };
    match rendered {
        Some((shown, is_cut)) => (kind, shown, is_cut),
        None => {
            let language = language::of(content.mime.as_deref(), &content.uri, lines);
            let lines = highlight::first_lines(lines);
            highlight::render_lines(out, lines, language, part.start.lines_before + 1);
            (PreviewKind::Source, lines.len(), false)
        }
    }
}

/// A text up to its last line break; all of it if it has none.
fn whole_lines(text: &str) -> &str {
    text.rfind('\n').map_or(text, |end| &text[..=end])
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

fn response(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    let json = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Body::from(Bytes::from(json)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests;
