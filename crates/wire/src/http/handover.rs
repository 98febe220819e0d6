//! Streams of events leave hyper.
//!
//! For each connection of HTTP/1, hyper has two buffers of 8 KiB for as long as a response is being sent. A stream of
//! events may be open for hours, so hyper is ended once it is to send one, and the stream is sent without it.

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

use super::body::Body;
use super::gather::Gathered;
use super::lane::Lane;
use super::pulse::Pulse;

/// How many places a stream of events takes among all of them where hyper sends it, over HTTP/1 because the connection
/// has other requests before it, or over HTTP/2.
pub(super) const PLACES_IN_HYPER: usize = 4;
pub(super) const PLACES_IN_HTTP_2: usize = 2;

/// How the response to a request of HTTP/1 is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Framing {
    /// It may be sent in chunks; otherwise it ends with the connection.
    pub(super) chunked: bool,
    /// It is the last one of the connection.
    pub(super) last: bool,
}

impl Framing {
    pub(super) fn of<B: HttpBody>(request: &Request<B>) -> Self {
        let chunked = request.version() == Version::HTTP_11;
        let is_close = |token: &str| token.trim().eq_ignore_ascii_case("close");
        let mut connection = request.headers().get_all(CONNECTION).iter();
        let closes = connection.any(|value| value.to_str().is_ok_and(|text| text.split(',').any(is_close)));
        // Whoever listens with POST has sent all of the body by then. Nobody reads one of another request.
        let unread = request.method() != Method::POST && !request.body().is_end_stream();
        Self { chunked, last: !chunked || closes || unread }
    }
}

/// A response that is to be sent without hyper.
pub(super) struct Handed {
    pub(super) response: Response<Body>,
    pub(super) framing: Framing,
}

/// Ends hyper before it has written anything of a response.
#[derive(Debug)]
pub(super) struct HandedOver;

impl fmt::Display for HandedOver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the response is sent without hyper")
    }
}

impl Error for HandedOver {}

/// Serves a connection of HTTP/1 through hyper until one of them ends it; gives the connection back.
pub(super) async fn through_hyper<S>(
    mut hyper: Box<http1::Connection<Lane, S>>,
    pulse: &Pulse,
) -> hyper::Result<Lane>
where
    S: HttpService<Incoming, ResBody = Gathered> + Unpin,
    S::Future: Unpin,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut told = false;
    let ended = poll_fn(|context| {
        if pulse.is_stopping() && !told {
            told = true;
            Pin::new(&mut *hyper).graceful_shutdown();
        }
        Pin::new(&mut *hyper).poll(context)
    })
    .await;
    match (ended, pulse.take_handed()) {
        (Ok(()), _) => Ok(hyper.into_parts().io),
        (Err(cause), None) => Err(cause),
        (Err(_), Some(handed)) => {
            let parts = hyper.into_parts();
            let mut lane = parts.io;
            lane.take_over(&parts.read_buf, *handed);
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
    fn a_response_is_the_last_one_where_the_request_says_so_or_is_not_read_whole() {
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
