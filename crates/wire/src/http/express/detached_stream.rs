//! Event streams that the lane takes over from hyper.
//!
//! For each HTTP/1 connection, hyper holds two buffers of 8 KiB while it sends a response. An event stream may be
//! open for hours, so hyper is shut down before it sends one, and the connection's [`Lane`] sends the stream instead.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;

use http::header::CONNECTION;
use http::{Method, Request, Response, Version};
use http_body::Body as HttpBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::HttpService;

use super::lane::Lane;
use crate::http::body::Body;
use crate::http::gathered_body::GatheredBody;
use crate::http::liveness::Liveness;

/// The framing of the response to an HTTP/1 request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) struct Framing {
    /// Whether the response may use chunked encoding; otherwise the response ends with the connection.
    pub(in crate::http) chunked: bool,
    /// Whether the connection closes after the response.
    pub(in crate::http) last: bool,
}

impl Framing {
    pub(in crate::http) fn of<B: HttpBody>(request: &Request<B>) -> Self {
        let chunked = request.version() == Version::HTTP_11;
        let is_close = |token: &str| token.trim().eq_ignore_ascii_case("close");
        let mut connection = request.headers().get_all(CONNECTION).iter();
        let closes = connection.any(|value| value.to_str().is_ok_and(|text| text.split(',').any(is_close)));
        // The handler of a POST has read the whole body before it returns an event stream. Other handlers read no body; if
        // there is one, its bytes must not be parsed as the next request.
        let unread = request.method() != Method::POST && !request.body().is_end_stream();
        Self { chunked, last: !chunked || closes || unread }
    }
}

/// An event stream that the lane sends instead of hyper.
pub(in crate::http) struct DetachedStream {
    pub(in crate::http) response: Response<Body>,
    pub(in crate::http) framing: Framing,
}

/// The service error that shuts hyper down before it has written any of the response.
#[derive(Debug)]
pub(in crate::http) struct StreamDetached;

impl fmt::Display for StreamDetached {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the response is sent without hyper")
    }
}

impl Error for StreamDetached {}

/// Serves an HTTP/1 connection through hyper until the connection ends, the lane takes an event stream over, or an idle
/// hyper ends to free its memory. In the last two cases [`Lane::take_detached_flag`] is true. Returns the connection.
pub(in crate::http) async fn through_hyper<S>(
    mut hyper: Box<http1::Connection<Lane, S>>,
    liveness: &Liveness,
) -> hyper::Result<Lane>
where
    S: HttpService<Incoming, ResBody = GatheredBody> + Unpin,
    S::Future: Unpin,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut shutting_down = false;
    let ended = poll_fn(|context| {
        if liveness.is_stopping() && !shutting_down {
            shutting_down = true;
            Pin::new(&mut *hyper).graceful_shutdown();
        }
        Pin::new(&mut *hyper).poll(context)
    })
    .await;
    match (ended, liveness.take_detached()) {
        (Ok(()), _) => Ok(hyper.into_parts().io),
        (Err(cause), None) => Err(cause),
        (Err(_), Some(detached)) => {
            let parts = hyper.into_parts();
            let mut lane = parts.io;
            lane.take_over(&parts.read_buf, *detached);
            Ok(lane)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Framing;
    use http::{Request, Version};
    use http_body_util::Full;

    #[test]
    fn the_connection_closes_if_the_request_asks_for_it_or_was_not_read_whole() {
        let framing = |method: &str, version, connection: &[&str], body: &'static str| {
            let mut request = Request::builder().method(method).version(version);
            for value in connection {
                request = request.header("connection", *value);
            }
            let Framing { chunked, last } = Framing::of(&request.body(Full::new(body.as_bytes())).unwrap());
            (chunked, last)
        };
        let (new, old) = (Version::HTTP_11, Version::HTTP_10);
        assert_eq!(framing("GET", new, &[], ""), (true, false));
        assert_eq!(framing("GET", new, &["keep-alive"], ""), (true, false));
        assert_eq!(framing("GET", new, &["x", "keep-alive, Close"], ""), (true, true));
        assert_eq!(framing("GET", old, &["keep-alive"], ""), (false, true));
        assert_eq!(framing("GET", new, &[], "body"), (true, true));
        assert_eq!(framing("POST", new, &[], "body"), (true, false));
    }
}
