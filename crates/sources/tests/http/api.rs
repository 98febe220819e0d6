//! A weather and a travel API: listing, completion, reading, and the contract suite.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use libris_core::contract::{Fixture, check};
use libris_core::{CompletionRequest, Context, Source, Uri, UriTemplate};
use libris_sources::Http;
use serde_json::{Value, json};

use crate::server::{Answer, Received, Server};
use crate::{read, refusal, source, uri};

/// Stations by their identifier in URLs.
pub(crate) type Stations = Arc<Mutex<BTreeMap<String, Value>>>;

pub(crate) fn stations() -> Stations {
    let named = [("paris", "Paris"), ("park-city", "Park City"), ("lima", "Lima"), ("quito", "Quito")];
    let station =
        |(id, name): (&str, &str)| (id.to_owned(), json!({ "id": id, "name": name, "about": "A city." }));
    Arc::new(Mutex::new(named.map(station).into_iter().collect()))
}

fn weather(stations: &Stations, received: &Received) -> Answer {
    let path = received.target.split('?').next().unwrap();
    let answer = match path.strip_prefix("/stations") {
        Some("") => Answer::json(json!({ "data": stations.lock().unwrap().values().collect::<Vec<_>>() })),
        Some(rest) => match stations.lock().unwrap().get(&rest[1..]) {
            Some(station) => Answer::json(station),
            None => return Answer::status(404),
        },
        None => return Answer::status(404),
    };
    answer.with("cache-control", "no-cache").tagged(received)
}

pub(crate) const WEATHER: &str = r#"
[[resource]]
uri = "weather://stations"
url = "stations"
mime = "application/json"

[[template]]
uri = "weather://station/{id}"
url = "stations/{id}"
mime = "application/json"
list = { from = "weather://stations", items = "/data", values = { id = "/id" }, name = "/id", title = "/name", description = "/about" }
"#;

struct Weather {
    stations: Stations,
    _server: Server,
    http: Http,
}

impl Weather {
    async fn new() -> Self {
        let stations = stations();
        let held = stations.clone();
        let server = Server::start(move |received| weather(&held, received)).await;
        Self { stations, http: source(&server, WEATHER), _server: server }
    }
}

#[async_trait]
impl Fixture for Weather {
    fn source(&self) -> &dyn Source {
        &self.http
    }

    fn unknown(&self) -> Uri {
        uri("weather://station/nowhere")
    }

    fn invalid(&self) -> Vec<Uri> {
        ["..%2f..%2fadmin", "%00", "%0d%0ax:y", "", "%252e%252e", "x/y", "x?y=z"]
            .map(|id| uri(&format!("weather://station/{id}")))
            .into()
    }

    async fn add(&self, number: usize) -> Option<Uri> {
        let id = format!("added-{number}");
        self.stations.lock().unwrap().insert(id.clone(), json!({ "id": id, "name": "Added" }));
        Some(uri(&format!("weather://station/{id}")))
    }

    async fn change(&self, uri: &Uri) -> bool {
        let id = uri.path().trim_start_matches('/');
        self.stations.lock().unwrap().get_mut(id).unwrap()["about"] = "Changed.".into();
        true
    }

    async fn remove(&self, uri: &Uri) -> bool {
        self.stations.lock().unwrap().remove(uri.path().trim_start_matches('/')).is_some()
    }

    async fn deadline(&self) {
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
}

#[tokio::test]
async fn the_contract_is_kept() {
    check(&Weather::new().await).await;
}

const TRAVEL: &str = r#"
[[resource]]
uri = "travel://cities"
url = "cities"
title = "Cities"

[[template]]
uri = "travel://activities/{city}/{category}"
url = "cities/{city}/activities{?category}"
mime = "application/json"
[template.complete]
city = { from = "travel://cities", value = "/id", label = "/name" }
category = { url = "cities/{city}/categories" }

[[template]]
uri = "flights://search/{airport}"
url = "flights?from={airport}"
[template.complete]
airport = [{ value = "JFK", label = "John F. Kennedy International" }, "LHR"]

[[template]]
uri = "hotels://{hotel}"
url = "hotels/{hotel}"
[template.complete]
hotel = { url = "find{?typed}", items = "/found", value = "/key" }

[[template]]
uri = "money://{currency}"
url = "money/{currency}"
[template.complete]
currency = { url = "currencies", items = "/rates", value = "/key", label = "/value" }

[[template]]
uri = "trains://{train}"
url = "trains/{train}"
[template.complete]
train = { url = "trains/like/{typed}" }

[[link]]
uri = "https://travel.example/guide.pdf"
title = "The guide"
mime = "application/pdf"
"#;

fn travel(received: &Received) -> Answer {
    match received.target.as_str() {
        "/cities" => Answer::json(json!([
            { "id": 7, "name": "Barcelona" }, { "id": 8, "name": "Paris" }, { "id": 9, "name": "Park City" },
        ])),
        "/cities/7/categories" => Answer::json(json!(["museums", "music"])),
        "/cities/7/activities?category=museums" => Answer::json(json!({ "museums": ["Picasso"] })),
        "/flights?from=JFK" => Answer::new(200, "text/csv; charset=iso-8859-1", b"a,caf\xe9\n"),
        "/trains/like/t" => Answer::json(json!(["tgv"])),
        "/currencies" => Answer::json(json!({ "rates": { "EUR": "Euro", "PEN": "Peruvian sol" } })),
        "/find?typed=ritz" => Answer::json(json!({ "found": [{ "key": "h-1" }, { "name": "no key" }] })),
        _ => Answer::status(404),
    }
}

#[tokio::test]
async fn a_travel_api_is_listed_completed_and_read() {
    let server = Server::start(travel).await;
    let source = source(&server, TRAVEL);
    let page = source.list(None, 10, &Context::default()).await.unwrap();
    let listed: Vec<_> = page.resources.iter().map(|one| (one.uri.as_str(), one.title.as_deref())).collect();
    assert_eq!(
        listed,
        [("https://travel.example/guide.pdf", Some("The guide")), ("travel://cities", Some("Cities"))]
    );
    assert_eq!(source.templates(&Context::default()).await.unwrap().templates.len(), 5);
    assert!(server.received().is_empty(), "a list that stands in the configuration asks nobody");

    let complete = async |template: &str, variable: &str, typed: &str, known: &[(&str, &str)]| {
        let template = UriTemplate::parse(template).unwrap();
        let known = known.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let asked = CompletionRequest { template: &template, variable, typed, known: &known, limit: 100 };
        source.complete(asked, &Context::default()).await.unwrap().values
    };
    let activities = "travel://activities/{city}/{category}";
    assert_eq!(complete(activities, "city", "Par", &[]).await, ["8", "9"]);
    assert_eq!(complete(activities, "city", "city", &[]).await, ["9"]);
    assert_eq!(complete(activities, "category", "mus", &[("city", "7")]).await, ["museums", "music"]);
    assert!(complete(activities, "category", "", &[]).await.is_empty(), "the city is not known yet");
    let flights = "flights://search/{airport}";
    for typed in ["JFK", "jf", "John", "kennedy", "inter"] {
        assert_eq!(complete(flights, "airport", typed, &[]).await, ["JFK"], "{typed}");
    }
    assert_eq!(complete("money://{currency}", "currency", "peru", &[]).await, ["PEN"]);
    assert_eq!(complete("trains://{train}", "train", "t", &[]).await, ["tgv"]);
    for typed in ["", "x"] {
        assert!(complete("trains://{train}", "train", typed, &[]).await.is_empty(), "{typed}");
    }
    assert_eq!(complete("hotels://{hotel}", "hotel", "ritz", &[]).await, ["h-1"]);

    assert_eq!(read(&source, "travel://activities/7/museums").await.unwrap(), r#"{"museums":["Picasso"]}"#);
    assert_eq!(read(&source, "flights://search/JFK").await.unwrap(), "a,café\n");
    assert_eq!(
        refusal(&source, "flights://search/ZZZ").await,
        "no resource at `flights://search/ZZZ`: the service answered 404 Not Found; check the value of `airport`"
    );
    assert_eq!(
        refusal(&source, "flights://search/JFQ").await,
        "no resource at `flights://search/JFQ`: the service answered 404 Not Found; did you mean `JFK`?"
    );
    let link = read(&source, "https://travel.example/guide.pdf").await.unwrap();
    assert!(link.contains("fetch it from there"), "{link}");
    let asked: Vec<_> = server.received().into_iter().map(|received| received.target).collect();
    assert!(!asked.iter().any(|target| target.contains("guide")), "{asked:?}");
}

#[tokio::test]
async fn all_pages_of_a_list_are_of_one_answer() {
    let stations = stations();
    let held = stations.clone();
    let server =
        Server::start(move |received| weather(&held, received).with("cache-control", "no-store")).await;
    let source = source(&server, WEATHER);
    let mut listed = source.list(None, 1, &Context::default()).await.unwrap();
    stations.lock().unwrap().clear();
    let mut count = 1;
    while listed.more {
        listed = source.list(Some(&listed.resources[0].uri), 1, &Context::default()).await.unwrap();
        count += 1;
    }
    assert_eq!((count, server.received().len()), (5, 1));
    // A listing from the beginning requests the list again.
    assert_eq!(source.list(None, 10, &Context::default()).await.unwrap().resources.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_cold_reads_are_one_request() {
    let server = Server::start(|_| Answer::json("[1]").with("cache-control", "max-age=60")).await;
    let source = Arc::new(source(&server, WEATHER));
    let reads: Vec<_> = (0..1000)
        .map(|_| {
            let source = source.clone();
            tokio::spawn(async move { read(&*source, "weather://station/paris").await.unwrap() })
        })
        .collect();
    for read in reads {
        assert_eq!(read.await.unwrap(), "[1]");
    }
    assert_eq!(server.received().len(), 1);
}

#[tokio::test]
async fn requests_say_what_the_configuration_says() {
    let server = Server::start(|_| Answer::json("{}").with("x-count", 7)).await;
    // Cargo sets this variable for every test.
    let source = source(
        &server,
        r#"
        headers = { authorization = { env = "CARGO_PKG_NAME", prefix = "Bearer " }, x-plain = "yes" }
        query = { key = { env = "CARGO_PKG_NAME" }, units = "m&m" }
        [[resource]]
        uri = "a://b"
        url = "b?c=d"
        headers = { x-plain = "own" }
        mime = "application/json"
        [[resource]]
        uri = "a://own"
        url = "b"
        query = { units = "own", z = "1" }
        [[resource]]
        uri = "a://head"
        url = "b"
        method = "HEAD"
        "#,
    );
    read(&source, "a://b").await.unwrap();
    let received = server.received().remove(0);
    let headers: HashMap<_, _> = received.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(received.target, "/b?c=d&key=libris-sources&units=m%26m");
    assert_eq!(headers["authorization"], "Bearer libris-sources");
    assert_eq!((headers["x-plain"], headers["accept"]), ("own", "application/json"));
    assert!(headers["user-agent"].starts_with("libris/"));
    let mut names: Vec<_> = headers.keys().copied().collect();
    names.sort_unstable();
    assert_eq!(names, ["accept", "accept-encoding", "authorization", "host", "user-agent", "x-plain"]);

    read(&source, "a://own").await.unwrap();
    assert_eq!(
        server.received().remove(0).target,
        "/b?key=libris-sources&units=own&z=1",
        "the entry's value wins"
    );

    let head: Value = serde_json::from_str(&read(&source, "a://head").await.unwrap()).unwrap();
    assert_eq!(head["x-count"], "7");
    assert_eq!(server.received()[0].method, "HEAD");
}
