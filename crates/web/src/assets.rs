//! The files of the page, embedded at compile time and compressed once.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue,
    IF_NONE_MATCH, VARY,
};
use http::{Response, StatusCode};
use libris_wire::http::Body;

use crate::policy;

/// A file of the page.
pub(crate) struct Asset {
    path: &'static str,
    /// The `Content-Type`.
    kind: &'static str,
    content: &'static str,
    /// Computed at the first request.
    encoded: OnceLock<EncodedAsset>,
}

struct EncodedAsset {
    gzip: Bytes,
    /// The `ETag`, a hash of the content.
    tag: HeaderValue,
}

macro_rules! assets {
    ($($path:literal: $file:literal,)*) => {
        static ASSETS: [Asset; [$($path),*].len()] = [$(Asset {
            path: $path,
            kind: kind($file),
            content: include_str!(concat!("../page/", $file)),
            encoded: OnceLock::new(),
        },)*];
    };
}

assets! {
    "/": "index.html",
    "/status": "status.html",
    "/picker/app.js": "app.js",
    "/picker/attach.js": "attach.js",
    "/picker/browse.js": "browse.js",
    "/picker/composer.js": "composer.js",
    "/picker/dom.js": "dom.js",
    "/picker/export.js": "export.js",
    "/picker/file.js": "file.js",
    "/picker/format.js": "format.js",
    "/picker/icon.svg": "icon.svg",
    "/picker/library.js": "library.js",
    "/picker/login.js": "login.js",
    "/picker/measure.js": "measure.js",
    "/picker/mcp.js": "mcp.js",
    "/picker/pages.js": "pages.js",
    "/picker/preview.css": "preview.css",
    "/picker/preview.js": "preview.js",
    "/picker/rows.js": "rows.js",
    "/picker/search.js": "search.js",
    "/picker/selection.js": "selection.js",
    "/picker/site.js": "site.js",
    "/picker/snippets.js": "snippets.js",
    "/picker/status.css": "status.css",
    "/picker/status.js": "status.js",
    "/picker/storage.js": "storage.js",
    "/picker/style.css": "style.css",
    "/picker/templates.js": "templates.js",
    "/picker/theme.js": "theme.js",
}

const fn kind(file: &str) -> &'static str {
    match file.as_bytes() {
        [.., b'h', b't', b'm', b'l'] => "text/html; charset=utf-8",
        [.., b'c', b's', b's'] => "text/css; charset=utf-8",
        [.., b's', b'v', b'g'] => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    }
}

impl Asset {
    /// The file that is served at this path.
    pub(crate) fn at(path: &str) -> Option<&'static Self> {
        ASSETS.iter().find(|asset| asset.path == path)
    }

    /// The response to a request with these headers.
    pub(crate) fn respond(&self, headers: &HeaderMap) -> Response<Body> {
        let encoded = self.encoded.get_or_init(|| EncodedAsset::new(self.content));
        let is_unchanged = headers.get(IF_NONE_MATCH).is_some_and(|known| *known == encoded.tag);
        let takes_gzip = headers
            .get_all(ACCEPT_ENCODING)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|coding| {
                coding.trim().eq_ignore_ascii_case("gzip") || coding.trim().starts_with("gzip;q=1")
            });
        let body = match (is_unchanged, takes_gzip) {
            (true, _) => Bytes::new(),
            (false, true) => encoded.gzip.clone(),
            (false, false) => Bytes::from_static(self.content.as_bytes()),
        };
        let mut response = Response::new(Body::from(body));
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(self.kind));
        fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
        fields.insert(ETAG, encoded.tag.clone());
        // Browsers revalidate each time, so that the page of an older version never talks to an upgraded server.
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        policy::protect(fields);
        if is_unchanged {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else if takes_gzip {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

impl EncodedAsset {
    fn new(content: &str) -> Self {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory cannot fail.
        let _ = gzip.write_all(content.as_bytes());
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        let tag = HeaderValue::from_str(&format!("\"{:016x}\"", hasher.finish()));
        Self {
            gzip: gzip.finish().unwrap_or_default().into(),
            tag: tag.unwrap_or_else(|_| HeaderValue::from_static("\"\"")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ASSETS, Asset, EncodedAsset};
    use http::HeaderMap;
    use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderValue, IF_NONE_MATCH};

    /// The maximum number of bytes that the first visit may transfer, compressed.
    const MAX_FIRST_LOAD: usize = 150 * 1024;

    #[test]
    fn the_first_load_is_small() {
        let size: usize = ASSETS.iter().map(|asset| EncodedAsset::new(asset.content).gzip.len()).sum();
        assert!(size <= MAX_FIRST_LOAD, "{size} bytes");
    }

    #[test]
    fn a_file_names_no_other_host() {
        for asset in &ASSETS {
            let hosts: Vec<_> = asset
                .content
                .match_indices("://")
                .map(|(at, _)| {
                    let rest = &asset.content[at + 3..];
                    &rest[..rest.find(['\'', '"', '`', ' ', '/', ')', '<', '\n']).unwrap_or(rest.len())]
                })
                // Ignores the namespace of SVG, and what is not a host name, such as URI patterns.
                .filter(|host| host.contains('.') && *host != "www.w3.org")
                .collect();
            assert_eq!(hosts, Vec::<&str>::new(), "{}", asset.path);
        }
    }

    #[test]
    fn a_known_file_is_not_sent_again() {
        let mut headers = HeaderMap::new();
        let asset = Asset::at("/").unwrap();
        let plain = asset.respond(&headers);
        assert_eq!(plain.status(), 200);
        assert!(!plain.headers().contains_key(CONTENT_ENCODING));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("br, gzip"));
        assert_eq!(asset.respond(&headers).headers()[CONTENT_ENCODING], "gzip");
        headers.insert(IF_NONE_MATCH, plain.headers()[ETAG].clone());
        assert_eq!(asset.respond(&headers).status(), 304);
        assert!(Asset::at("/picker/none.js").is_none());
    }

    #[test]
    fn every_module_and_style_is_served() {
        for asset in &ASSETS {
            for quoted in asset.content.split(['\'', '"']) {
                let path = match quoted.strip_prefix("./") {
                    Some(module) => format!("/picker/{module}"),
                    None => quoted.to_owned(),
                };
                let is_known = Asset::at(&path).is_some() || path == crate::PREVIEW_PATH;
                assert!(is_known || !path.starts_with("/picker/"), "{} names {quoted}", asset.path);
            }
        }
    }
}
