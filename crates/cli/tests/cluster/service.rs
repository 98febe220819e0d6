//! An HTTP service with numbered values, which counts the requests of each replica.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::get;

/// The service. Its responses may be cached for ten minutes, so that replicas cache them.
#[derive(Default)]
pub(crate) struct CountingService {
    values: Mutex<BTreeMap<usize, u64>>,
    /// The number of requests, by replica.
    requests: Mutex<BTreeMap<usize, usize>>,
}

impl CountingService {
    /// Starts the service; returns its URL too.
    pub(crate) async fn start() -> (Arc<Self>, String) {
        let service = Arc::new(Self::default());
        let router = Router::new().route("/value/{number}", get(answer)).with_state(service.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (service, url)
    }

    pub(crate) fn set(&self, number: usize, value: u64) {
        self.values.lock().unwrap().insert(number, value);
    }

    /// The number of requests of a replica so far.
    pub(crate) fn requests(&self, replica: usize) -> usize {
        self.requests.lock().unwrap().get(&replica).copied().unwrap_or_default()
    }
}

async fn answer(
    State(service): State<Arc<CountingService>>,
    Path(number): Path<usize>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let replica = headers["x-replica"].to_str().unwrap().parse().unwrap();
    *service.requests.lock().unwrap().entry(replica).or_default() += 1;
    let value = service.values.lock().unwrap().get(&number).copied().unwrap_or_default();
    ([("content-type", "text/plain"), ("cache-control", "max-age=600")], value.to_string())
}

/// The URI of a value of the service.
pub(crate) fn value_uri(number: usize) -> String {
    format!("service://{number}")
}

/// The `[[http]]` table of a replica, with this many values.
pub(crate) fn source(url: &str, replica: usize, values: usize) -> String {
    let mut text = format!(
        "[[http]]\nname = \"service\"\nbase = \"{url}\"\npoll = \"200ms\"\n\
         headers = {{ x-replica = \"{replica}\" }}\nlimits = {{ allow_private = true }}\n"
    );
    for number in 0..values {
        let uri = value_uri(number);
        text += &format!("\n[[http.resource]]\nuri = \"{uri}\"\nurl = \"value/{number}\"\n");
    }
    text
}
