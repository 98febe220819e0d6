//! An HTTP service with numbered values, which counts the requests of each replica and of each value.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;

/// The service. By default its responses may be cached for ten minutes, so that replicas cache them.
#[derive(Default)]
pub(crate) struct CountingService {
    values: Mutex<BTreeMap<usize, u64>>,
    /// The number of requests, by replica.
    requests: Mutex<BTreeMap<usize, usize>>,
    /// The number of requests, by value.
    reads: Mutex<BTreeMap<usize, usize>>,
    responses: Mutex<BTreeMap<usize, ServiceResponse>>,
}

/// How the service answers requests for a value.
#[derive(Clone, Copy)]
pub(crate) struct ServiceResponse {
    pub(crate) status: u16,
    pub(crate) cache_control: &'static str,
    /// How long the first request takes, and how long each later one.
    pub(crate) delays: [Duration; 2],
    /// The number of bytes after the value.
    pub(crate) padding: usize,
}

impl Default for ServiceResponse {
    fn default() -> Self {
        Self { status: 200, cache_control: "max-age=600", delays: [Duration::ZERO; 2], padding: 0 }
    }
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

    pub(crate) fn respond(&self, number: usize, response: ServiceResponse) {
        self.responses.lock().unwrap().insert(number, response);
    }

    /// The number of requests of a replica so far.
    pub(crate) fn requests(&self, replica: usize) -> usize {
        self.requests.lock().unwrap().get(&replica).copied().unwrap_or_default()
    }

    /// The number of requests for a value so far.
    pub(crate) fn reads(&self, number: usize) -> usize {
        self.reads.lock().unwrap().get(&number).copied().unwrap_or_default()
    }
}

async fn answer(
    State(service): State<Arc<CountingService>>,
    Path(number): Path<usize>,
    headers: HeaderMap,
) -> impl IntoResponse {
    if let Some(replica) = headers.get("x-replica") {
        let replica = replica.to_str().unwrap().parse().unwrap();
        *service.requests.lock().unwrap().entry(replica).or_default() += 1;
    }
    let count = {
        let mut reads = service.reads.lock().unwrap();
        let count = reads.entry(number).or_default();
        *count += 1;
        *count
    };
    let response = service.responses.lock().unwrap().get(&number).copied().unwrap_or_default();
    tokio::time::sleep(response.delays[usize::from(count > 1)]).await;
    let value = service.values.lock().unwrap().get(&number).copied().unwrap_or_default();
    let body = format!("{value}{}", " ".repeat(response.padding));
    let headers = [("content-type", "text/plain"), ("cache-control", response.cache_control)];
    (StatusCode::from_u16(response.status).unwrap(), headers, body)
}

/// The URI of a value of the service.
pub(crate) fn value_uri(number: usize) -> String {
    format!("service://{number}")
}

/// The `[[http]]` table of a replica, with this many values. Its requests have the number of the replica, so replicas share
/// no contents.
pub(crate) fn source(url: &str, replica: usize, values: usize) -> String {
    source_with_header(url, &format!("x-replica = \"{replica}\""), values)
}

/// The `[[http]]` table of replicas that share contents.
pub(crate) fn shared_source(url: &str, values: usize) -> String {
    source_with_header(url, &format!("authorization = \"Bearer {SERVICE_TOKEN}\""), values)
}

/// The credential of replicas that share contents.
pub(crate) const SERVICE_TOKEN: &str = "sesame-of-the-service";

fn source_with_header(url: &str, header: &str, values: usize) -> String {
    let mut text = format!(
        "[[http]]\nname = \"service\"\nbase = \"{url}\"\npoll = \"200ms\"\n\
         headers = {{ {header} }}\nlimits = {{ allow_private = true }}\n"
    );
    for number in 0..values {
        let uri = value_uri(number);
        text += &format!("\n[[http.resource]]\nuri = \"{uri}\"\nurl = \"value/{number}\"\n");
    }
    text
}
