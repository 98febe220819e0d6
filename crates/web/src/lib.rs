//! The picker: a web page on which people browse, search, preview and select resources.
//!
//! The page is plain HTML, CSS and ES modules, embedded in the program. It is an MCP client of `/mcp` on its own origin,
//! so it shows what the protocol returns. The server renders only previews, from contents that it reads through the
//! caller's view.
//!
//! Hosts that support MCP Apps show the same page inside the chat. For file managers, the same resources are a WebDAV
//! share.

mod app;
mod assets;
mod dav;
mod html;
mod policy;
mod preview;
mod read;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ALLOW, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use libris_wire::Call;
use libris_wire::http::{Body, Route};

pub use self::app::PickerApp;
use self::assets::Asset;
pub use self::dav::WebDav;

/// The path to which the page posts requests for previews.
pub(crate) const PREVIEW_PATH: &str = "/picker/preview";

/// The HTTP route of the picker: the pages `/` (picker) and `/status`, their assets and the preview endpoint below
/// `/picker/`.
#[derive(Debug)]
pub struct Picker;

#[async_trait]
impl Route for Picker {
    fn covers(&self, path: &str) -> bool {
        matches!(path, "/" | "/status") || path.starts_with("/picker/")
    }

    fn public(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
        let asset = Asset::at(path)?;
        Some(match *method {
            Method::GET | Method::HEAD => asset.respond(headers),
            _ => not_allowed("GET, HEAD"),
        })
    }

    async fn answer(&self, call: &Call, request: Request<Bytes>) -> Response<Body> {
        let mut response = match (request.uri().path(), request.method()) {
            (PREVIEW_PATH, &Method::POST) => preview::respond(call, request.body()).await,
            (PREVIEW_PATH, _) => not_allowed("POST"),
            _ => {
                let mut response = Response::new(Body::from("there is no such file\n".to_owned()));
                *response.status_mut() = StatusCode::NOT_FOUND;
                response
            }
        };
        policy::protect(response.headers_mut());
        response
    }
}

fn not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("use {allowed}\n")));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
