//! A response of the API as content: text or bytes of a media type.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use encoding_rs::Encoding;
use http::header::{CONTENT_TYPE, HeaderMap};
use libris_core::{ContentBody, Lease};
use serde_json::Value;
use url::Url;

use super::client::RawResponse;
use super::config::Method;
use super::endpoint::ApiEndpoint;
use super::fault::HttpFault;
use super::link;
use crate::media;

/// The content of a response.
pub(super) struct ApiResponse {
    pub(super) body: ContentBody,
    pub(super) mime: String,
    /// A digest of the content, to detect changes.
    pub(super) digest: u64,
    /// The URL of the next page, if the response names one.
    pub(super) next: Option<Url>,
    /// The memory that was reserved to receive the response; `None` once the response is cached.
    memory: Mutex<Option<Lease>>,
}

impl ApiResponse {
    /// Checks and decodes the response of an endpoint.
    pub(super) fn new(endpoint: &ApiEndpoint, url: &Url, mut reply: RawResponse) -> Result<Self, HttpFault> {
        let memory = Mutex::new(reply.memory.take());
        let next = link::next(&reply.headers, url);
        let (body, mime) = match endpoint.method {
            Method::HEAD => (ContentBody::Text(headers(&reply.headers)), "application/json".to_owned()),
            Method::GET => content(endpoint, url.path(), reply)?,
        };
        let mut hasher = DefaultHasher::new();
        mime.hash(&mut hasher);
        match &body {
            ContentBody::Text(text) => text.hash(&mut hasher),
            ContentBody::Bytes(bytes) => bytes.hash(&mut hasher),
        }
        next.hash(&mut hasher);
        Ok(Self { body, mime, digest: hasher.finish(), next, memory })
    }

    /// A response with this text.
    #[cfg(test)]
    pub(super) fn of_text(text: impl Into<String>) -> Self {
        let (body, mime) = (ContentBody::Text(text.into()), "application/json".to_owned());
        Self { body, mime, digest: 0, next: None, memory: Mutex::default() }
    }

    /// Releases the reserved memory: the cache accounts for the response from now on.
    pub(super) fn release_reservation(&self) {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// The content as text, which may be JSON. Fails with [`HttpFault::Malformed`] if it is not text.
    pub(super) fn text(&self) -> Result<&str, HttpFault> {
        match &self.body {
            ContentBody::Text(text) => Ok(text),
            ContentBody::Bytes(_) => Err(HttpFault::Malformed),
        }
    }
}

/// The body and its media type, after checks against the media type that the endpoint expects.
fn content(
    endpoint: &ApiEndpoint,
    path: &str,
    reply: RawResponse,
) -> Result<(ContentBody, String), HttpFault> {
    let content_type =
        reply.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (sent, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    let sent = sent.trim().to_ascii_lowercase();
    if let Some(expected) = &endpoint.mime
        && !is_compatible(&sent, expected)
    {
        // The header is untrusted text and appears in an error message.
        let sent = sent.chars().filter(char::is_ascii_graphic).take(60).collect();
        return Err(HttpFault::UnexpectedMediaType { sent, expected: expected.clone() });
    }
    let mime = match &endpoint.mime {
        Some(expected) => expected.clone(),
        None if is_media_type(&sent) => sent,
        None => {
            let name = path.rsplit('/').next().unwrap_or_default();
            media::by_name(name).unwrap_or_else(|| media::by_content(name, &reply.data)).to_owned()
        }
    };
    let body =
        match charset(parameters).filter(|_| media::content_class(&mime) != media::ContentClass::Binary) {
            Some(encoding) => decoded(encoding, reply.data),
            None => media::body(reply.data, essence(&mime)),
        };
    if endpoint.mime.is_some() && is_json(&mime) {
        let ContentBody::Text(text) = &body else { return Err(HttpFault::Malformed) };
        if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
            return Err(HttpFault::Malformed);
        }
    }
    Ok((body, mime))
}

/// Whether a media type is compatible with the expected one. Many APIs send `text/plain` or `application/json`
/// instead of a more specific type.
fn is_compatible(sent: &str, expected: &str) -> bool {
    let expected = &essence(expected).to_ascii_lowercase();
    sent.is_empty()
        || sent == expected
        || (is_json(sent) && is_json(expected))
        || (sent == "text/plain" && media::content_class(expected) != media::ContentClass::Binary)
        || [sent, expected].contains(&"application/octet-stream")
}

fn essence(mime: &str) -> &str {
    mime.split(';').next().unwrap_or_default().trim()
}

fn is_json(mime: &str) -> bool {
    let mime = essence(mime);
    mime == "application/json" || mime.ends_with("+json")
}

fn is_media_type(text: &str) -> bool {
    let token = |part: &str| {
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !part.is_empty() && part.bytes().all(letter)
    };
    text.len() < 100 && text.split_once('/').is_some_and(|(kind, subtype)| token(kind) && token(subtype))
}

fn charset(parameters: &str) -> Option<&'static Encoding> {
    let named = parameters.split(';').filter_map(|parameter| parameter.split_once('='));
    let (_, label) = named.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))?;
    Encoding::for_label(label.trim().trim_matches('"').as_bytes())
}

/// Decodes text of a character encoding. Data that is invalid in this encoding, or that contains NUL, is returned
/// as bytes.
fn decoded(encoding: &'static Encoding, data: Vec<u8>) -> ContentBody {
    let (text, _, wrong) = encoding.decode(&data);
    if wrong || text.contains('\0') {
        ContentBody::Bytes(data.into())
    } else {
        ContentBody::Text(text.into_owned())
    }
}

/// Headers as JSON, without cookies, and without headers about the connection or the time of the response.
fn headers(headers: &HeaderMap) -> String {
    const OMITTED_HEADERS: [&str; 5] = ["age", "connection", "date", "keep-alive", "set-cookie"];
    let mut map = serde_json::Map::new();
    for name in headers.keys().filter(|name| !OMITTED_HEADERS.contains(&name.as_str())) {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        map.insert(name.to_string(), values.join(", ").into());
    }
    Value::Object(map).to_string()
}

#[cfg(test)]
mod tests {
    use super::{charset, decoded, is_compatible, is_media_type};
    use libris_core::ContentBody;

    #[test]
    fn a_less_specific_media_type_is_compatible() {
        let fitting = [
            ("application/json", "application/geo+json"),
            ("text/plain", "text/markdown"),
            ("text/plain", "application/json"),
            ("", "image/png"),
            ("text/csv", "application/octet-stream"),
            ("text/csv", "text/csv; header=present"),
        ];
        for (sent, expected) in fitting {
            assert!(is_compatible(sent, expected), "{sent} for {expected}");
        }
        for (sent, expected) in [("text/html", "application/json"), ("text/plain", "image/png")] {
            assert!(!is_compatible(sent, expected), "{sent} for {expected}");
        }
        assert!(
            is_media_type("application/vnd.api+json") && !is_media_type("a/b c") && !is_media_type("json")
        );
    }

    #[test]
    fn text_is_decoded_by_its_charset() {
        let encoding = charset(" Charset=\"ISO-8859-1\"; q=1").unwrap();
        assert_eq!(decoded(encoding, b"caf\xe9".to_vec()), ContentBody::Text("café".into()));
        assert_eq!(decoded(encoding_rs::UTF_8, b"\xff".to_vec()), ContentBody::Bytes(b"\xff"[..].into()));
        assert!(charset("charset=nonsense").is_none());
    }
}
