//! A preview counts against the memory budget of contents with everything that it holds.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use libris_web::Picker;
use libris_wire::http::{Body, Config, Endpoint};
use libris_wire::{
    Answer, CacheableRequest, Call, Caller, Capabilities, Client, CompletionParams, Failure, Identity,
    Limits, Listener, Refusal, Reply, Revision, ServerInfo, Service, ServiceView,
};
use serde_json::json;

/// The size of a picture in bytes, and as Base64.
const PICTURE: usize = 1 << 20;
const EMBEDDED: usize = PICTURE / 3 * 4;

/// The number of pictures of the document.
const PICTURES: usize = 16;

/// A document with pictures. All are in the response cache, so that reading them reserves no memory.
struct Gallery {
    picture: Bytes,
}

impl Gallery {
    fn contents(&self, uri: &str) -> Bytes {
        let content = match uri.ends_with(".md") {
            true => {
                let text: String = (0..PICTURES).map(|number| format!("![]({number}.png)\n")).collect();
                json!({ "uri": uri, "mimeType": "text/markdown", "text": text })
            }
            false => {
                return self.picture.clone();
            }
        };
        format!("\"contents\":[{content}]").into()
    }
}

#[async_trait]
impl Service for Gallery {
    fn info(&self) -> ServerInfo {
        ServerInfo::default()
    }

    fn cached_view(&self, _: &Caller<'_>) -> Option<Arc<dyn ServiceView>> {
        Some(Arc::new(Self { picture: self.picture.clone() }))
    }

    async fn admit(&self, _: &Caller<'_>) -> Result<Arc<dyn ServiceView>, Refusal> {
        Err(Refusal::Forbidden { challenge: None, message: "nobody is known here".into() })
    }
}

#[async_trait]
impl ServiceView for Gallery {
    fn caller(&self) -> Option<&Identity> {
        None
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    fn cached(&self, _: Revision, request: CacheableRequest<'_>, _: Instant) -> Option<Answer> {
        let CacheableRequest::Read(uri) = request else { return None };
        Some(Ok(Reply { members: self.contents(uri).into(), freshness: None, meta: Bytes::new() }))
    }

    async fn list(&self, _: &Call, _: Option<&str>) -> Answer {
        Err(Failure::invalid("nothing is here"))
    }

    async fn templates(&self, _: &Call, _: Option<&str>) -> Answer {
        Err(Failure::invalid("nothing is here"))
    }

    async fn read(&self, _: &Call, _: &str) -> Answer {
        Err(Failure::invalid("nothing is here"))
    }

    async fn complete(&self, _: &Call, _: &CompletionParams) -> Answer {
        Err(Failure::invalid("nothing is here"))
    }

    fn listener(&self, _: Client) -> Result<Arc<dyn Listener>, Failure> {
        Err(Failure::invalid("nothing is here"))
    }
}

/// Pictures for which the client has no memory are left out.
#[tokio::test]
async fn the_pictures_of_a_preview_count_together() {
    let picture = [b"\x89PNG\r\n\x1a\n".as_slice(), &vec![0; PICTURE - 8]].concat();
    let picture =
        json!({ "uri": "file:///x.png", "mimeType": "image/png", "blob": STANDARD.encode(picture) });
    let picture = Bytes::from(format!("\"contents\":[{picture}]"));
    // Three quarters of this are for contents of more than 1 MiB, and three quarters of these for one client.
    let content_bytes = 24 << 20;
    let share = content_bytes / 4 * 3 / 4 * 3;
    let config =
        Config { limits: Limits { content_bytes, ..Limits::default() }, express: false, ..Config::default() };
    let endpoint = Endpoint::with_routes(Arc::new(Gallery { picture }), config, vec![Arc::new(Picker)]);
    let preview = async || {
        let request = Request::post("/picker/preview")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(json!({ "uri": "file:///gallery.md" }).to_string())))
            .unwrap();
        let response = endpoint.clone().handle(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body()
    };
    let text =
        async |body: Body| String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let pictures = |text: &str| text.matches("data:image/png").count();
    // Not sent yet, so it counts against the share of the client.
    let first = preview().await;
    let second = pictures(&text(preview().await).await);
    let first = text(first).await;
    let (first, held) = (pictures(&first), first.len());
    assert!(first > 1 && first < PICTURES && held >= first * EMBEDDED, "{first} pictures, {held} bytes");
    // As read, in the HTML, and in the response.
    assert!(3 * second * EMBEDDED <= share - held, "{second} pictures beside {held} bytes");
    // Afterwards the client has its whole share again.
    assert_eq!(pictures(&text(preview().await).await), first);
}
