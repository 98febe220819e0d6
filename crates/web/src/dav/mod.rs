//! The catalog as a read-only WebDAV share at `/dav`, for file browsers.
//!
//! The share supports four methods: OPTIONS, PROPFIND, GET and HEAD. PROPFIND, GET and HEAD query the view of the
//! caller, so the share has what `resources/list`, `resources/templates/list` and `resources/read` have, and nothing
//! else.

mod conditions;
mod content;
mod extension;
mod folder;
mod names;
mod offered;
mod properties;
mod propfind;
mod target;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, LAST_MODIFIED, REFERRER_POLICY, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{Method, Request, Response, StatusCode};
use libris_wire::http::{Body, Route};
use libris_wire::{Call, Failure};
use sha2::{Digest as _, Sha256};

use self::conditions::{Selected, Validators, http_date};
use self::content::FileContent;
use self::target::ShareTarget;

/// The path of the share.
const ROOT: &str = "/dav";

/// The methods that the share has.
const METHODS: &str = "OPTIONS, GET, HEAD, PROPFIND";

/// The route of the WebDAV share.
#[derive(Debug, Default)]
pub struct WebDav;

#[async_trait]
impl Route for WebDav {
    fn covers(&self, path: &str) -> bool {
        path.strip_prefix(ROOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn accepts_basic(&self, path: &str) -> bool {
        self.covers(path)
    }

    async fn answer(&self, call: &Call, request: Request<Bytes>) -> Response<Body> {
        let answered = match request.method().as_str() {
            _ if is_subresource(request.headers()) => {
                Ok(message(StatusCode::FORBIDDEN, "files of the share are no parts of web pages\n"))
            }
            "OPTIONS" => Ok(options()),
            "PROPFIND" => propfind::answer(call, &request).await,
            "GET" | "HEAD" => get(call, &request).await,
            // Status 405 would mean that the folder exists already.
            "MKCOL" => Ok(message(StatusCode::FORBIDDEN, "this share is read-only\n")),
            _ => {
                let mut response = message(StatusCode::METHOD_NOT_ALLOWED, "this share is read-only\n");
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(METHODS));
                Ok(response)
            }
        };
        let mut response = answered.unwrap_or_else(failed);
        protect(response.headers_mut());
        response
    }
}

/// The path below the share.
fn share_path(request: &Request<Bytes>) -> &str {
    request.uri().path().strip_prefix(ROOT).unwrap_or_default()
}

fn options() -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::new()));
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(METHODS));
    headers.insert("dav", HeaderValue::from_static("1"));
    // Windows expects this header.
    headers.insert("ms-author-via", HeaderValue::from_static("DAV"));
    response
}

/// Whether a browser loads the file as a part of a web page, such as a script or a style. The picker has the same
/// origin as the share, so its page would trust such a part like its own files.
fn is_subresource(headers: &HeaderMap) -> bool {
    let destination = headers.get("sec-fetch-dest").map(HeaderValue::as_bytes);
    !matches!(destination, None | Some(b"document" | b"empty"))
}

/// Sets the headers that keep a file from acting as a page of this server.
fn protect(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    // A browser may store a file, but must ask whether the caller may still have it.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
}

fn message(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::from(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// The response to a request that failed. A hidden resource looks like a missing one, so there is no hint.
fn failed(failure: Failure) -> Response<Body> {
    match failure {
        Failure::NotFound { .. } => message(StatusCode::NOT_FOUND, "nothing is here\n"),
        Failure::ScopeRequired { message: text, .. } => message(StatusCode::FORBIDDEN, text + "\n"),
        Failure::Invalid { message: text } => message(StatusCode::BAD_REQUEST, text + "\n"),
        Failure::Busy { message: text } => {
            let mut response = message(StatusCode::SERVICE_UNAVAILABLE, text + "\n");
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        Failure::Internal { message: text, .. } => message(StatusCode::BAD_GATEWAY, text + "\n"),
        _ => message(StatusCode::BAD_GATEWAY, "the resource could not be read\n"),
    }
}

/// Answers GET and HEAD.
async fn get(call: &Call, request: &Request<Bytes>) -> Result<Response<Body>, Failure> {
    let (uri, modified) = match ShareTarget::resolve(call, share_path(request)).await? {
        ShareTarget::File { uri, entry } => (uri, entry.and_then(|entry| entry.modified)),
        ShareTarget::Folder { .. } => {
            let text = "This is a folder of a WebDAV share: open it with a file browser, rclone or cadaver.\n\
                        The page for web browsers is at `/`.\n";
            return Ok(message(StatusCode::OK, text));
        }
    };
    let content = FileContent::load(call, &uri).await?;
    let size = content.size();
    let tag = match &content {
        FileContent::Whole { bytes, .. } => Some(entity_tag(bytes)),
        // The bytes are not read yet.
        FileContent::Parts { .. } => None,
    };
    let validators = Validators { tag: tag.as_deref(), modified };
    let selected = validators.select(request.headers(), size);
    let mime = content.mime().map(media_type).and_then(|mime| HeaderValue::from_str(&mime).ok());
    let range = match &selected {
        Selected::Range(range) => range.clone(),
        _ => 0..size,
    };
    let is_sent = matches!(selected, Selected::Whole | Selected::Range(_));
    let body = match content {
        _ if !is_sent || request.method() == Method::HEAD => Body::from(Bytes::new()),
        FileContent::Whole { bytes, .. } => Body::from(bytes.slice(range.start as usize..range.end as usize)),
        FileContent::Parts { total, .. } => {
            Body::streamed_reserved(content::parts(call, uri, total, range.clone(), modified))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = match selected {
        Selected::Whole => StatusCode::OK,
        Selected::Range(_) => StatusCode::PARTIAL_CONTENT,
        Selected::NotModified => StatusCode::NOT_MODIFIED,
        Selected::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
        Selected::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
    };
    let headers = response.headers_mut();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(tag) = tag.and_then(|tag| HeaderValue::from_str(&tag).ok()) {
        headers.insert(ETAG, tag);
    }
    if let Some(modified) = modified.and_then(http_date).and_then(|date| HeaderValue::from_str(&date).ok()) {
        headers.insert(LAST_MODIFIED, modified);
    }
    if is_sent {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
        headers.insert(CONTENT_TYPE, mime.unwrap_or(HeaderValue::from_static("application/octet-stream")));
    }
    let content_range = match selected {
        Selected::Range(range) => Some(format!("bytes {}-{}/{size}", range.start, range.end - 1)),
        Selected::RangeNotSatisfiable => Some(format!("bytes */{size}")),
        _ => None,
    };
    if let Some(range) = content_range.and_then(|range| HeaderValue::from_str(&range).ok()) {
        headers.insert(CONTENT_RANGE, range);
    }
    Ok(response)
}

/// A strong entity tag: a digest of the bytes.
fn entity_tag(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let short: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{short}\"")
}

/// The media type of a file. Text is UTF-8, because all text of the protocol is.
fn media_type(mime: &str) -> String {
    match mime.starts_with("text/") && !mime.contains("charset") {
        true => format!("{mime}; charset=utf-8"),
        false => mime.to_owned(),
    }
}
