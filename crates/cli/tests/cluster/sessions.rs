//! Legacy sessions: every replica serves each of them.

use serde_json::{Value, json};

use crate::client::{DEADLINE, Program, eventually};
use crate::replicas::{Folders, QUIET, Redis, connected, start, uri};

/// A legacy client that speaks to any replica.
pub(crate) struct Session {
    http: reqwest::Client,
    id: String,
    token: Option<String>,
}

impl Session {
    pub(crate) async fn open(program: &Program, token: Option<&str>) -> Self {
        let http = reqwest::Client::new();
        let mut session = Self { http, id: String::new(), token: token.map(ToOwned::to_owned) };
        let hello = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": { "name": "cluster", "version": "1" },
        });
        let response = session.send(program, "initialize", hello).await;
        assert_eq!(response.status(), 200);
        session.id = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        session
    }

    fn request(&self, method: reqwest::Method, program: &Program) -> reqwest::RequestBuilder {
        let request = self.http.request(method, &program.url).timeout(DEADLINE);
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        if self.id.is_empty() { request } else { request.header("mcp-session-id", &self.id) }
    }

    async fn send(&self, program: &Program, method: &str, params: Value) -> reqwest::Response {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.request(reqwest::Method::POST, program)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(message.to_string())
            .send()
            .await
            .unwrap()
    }

    pub(crate) async fn subscribe(&self, program: &Program, uri: &str) {
        let response = self.send(program, "resources/subscribe", json!({ "uri": uri })).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.text().await.unwrap(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    }

    pub(crate) async fn status_of_list(&self, program: &Program) -> u16 {
        self.send(program, "resources/list", json!({})).await.status().as_u16()
    }

    /// Opens the event stream at a replica.
    async fn stream(&self, program: &Program) -> reqwest::Response {
        let request = self.request(reqwest::Method::GET, program).header("accept", "text/event-stream");
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        response
    }
}

/// Reads a stream until no event comes any more: a restored session is notified of everything first.
async fn quiet(stream: &mut reqwest::Response) {
    while let Ok(chunk) = tokio::time::timeout(QUIET, stream.chunk()).await {
        assert!(chunk.unwrap().is_some(), "the stream ended");
    }
}

/// Reads a stream until an event contains this.
async fn hears(stream: &mut reqwest::Response, text: &str) {
    let mut heard = String::new();
    let hearing = async {
        while !heard.contains(text) {
            let chunk = stream.chunk().await.unwrap().unwrap_or_else(|| panic!("the stream ended: {heard}"));
            heard.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    };
    tokio::time::timeout(DEADLINE, hearing).await.unwrap_or_else(|_| panic!("{text} is not in {heard}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_session_survives_the_death_of_its_replica() {
    let redis = Redis::start().await;
    let folders = Folders::new(3);
    let mut dying = folders.start(0, &redis.url()).await;
    let other = folders.start(1, &redis.url()).await;
    let session = Session::open(&dying, None).await;
    session.subscribe(&dying, &uri(0)).await;
    dying.child.kill().unwrap();
    dying.child.wait().unwrap();
    assert_eq!(session.status_of_list(&other).await, 200);
    let mut stream = session.stream(&other).await;
    quiet(&mut stream).await;
    folders.write(1, 0, "changed");
    hears(&mut stream, &uri(0)).await;
    // An id that nobody opened is unknown, and so is one that cannot be an id.
    for id in ["0123456789abcdef0123456789abcdef", "x"] {
        let unknown = Session { http: reqwest::Client::new(), id: id.to_owned(), token: None };
        assert_eq!(unknown.status_of_list(&other).await, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_replicas_agree_on_the_subscriptions_and_the_end_of_a_session() {
    let redis = Redis::start().await;
    let folders = Folders::new(3);
    let one = folders.start(0, &redis.url()).await;
    let other = folders.start(1, &redis.url()).await;
    let session = Session::open(&one, None).await;
    let mut stream = session.stream(&one).await;
    // The stream is at one replica, and the subscription is made at the other.
    session.subscribe(&other, &uri(1)).await;
    eventually("the first replica follows it", async || one.metric("subscriptions").await == 1).await;
    quiet(&mut stream).await;
    folders.write(0, 1, "changed");
    hears(&mut stream, &uri(1)).await;
    let response = session.send(&other, "resources/unsubscribe", json!({ "uri": uri(1) })).await;
    assert_eq!(response.status(), 200);
    eventually("the first replica no longer follows it", async || one.metric("subscriptions").await == 0)
        .await;
    let ended = session.request(reqwest::Method::DELETE, &other).send().await.unwrap();
    assert_eq!(ended.status(), 204);
    eventually("the session ended at the first", async || session.status_of_list(&one).await == 404).await;
    assert_eq!(session.status_of_list(&other).await, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_session_belongs_to_its_principal_at_every_replica() {
    let redis = Redis::start().await;
    let folders = Folders::new(1);
    let keys = folders.of(0).parent().unwrap().join("keys.toml");
    let key = |name: &str| {
        let made = std::process::Command::new(env!("CARGO_BIN_EXE_libris"))
            .args(["key", "add", name, "--keys", keys.to_str().unwrap()])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    };
    let (mine, yours) = (key("me"), key("you"));
    let auth = format!("[auth]\nkeys = \"{}\"", keys.display());
    let [one, other] = [0, 1].map(|replica| start(&folders.config(replica, &redis.url(), &auth)));
    let session = Session::open(&one, Some(&mine)).await;
    let stolen = Session { http: reqwest::Client::new(), id: session.id.clone(), token: Some(yours) };
    eventually("the other replica knows the session", async || session.status_of_list(&other).await == 200)
        .await;
    for program in [&one, &other] {
        assert_eq!(stolen.status_of_list(program).await, 404);
        assert_eq!(session.status_of_list(program).await, 200);
    }
    // Also at a replica that does not know the session yet.
    let third = start(&folders.config(2, &redis.url(), &auth));
    eventually("the session is refused", async || stolen.status_of_list(&third).await == 404).await;
    assert_eq!(session.status_of_list(&third).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_sessions_survive_redis_restarting_empty() {
    let mut redis = Redis::start().await;
    let folders = Folders::new(1);
    let mut dying = folders.start(0, &redis.url()).await;
    let other = folders.start(1, &redis.url()).await;
    let session = Session::open(&dying, None).await;
    session.subscribe(&dying, &uri(0)).await;
    redis.kill();
    // Without Redis, a replica serves its own sessions, and cannot tell whether others exist.
    eventually("the other replica is degraded", async || session.status_of_list(&other).await == 503).await;
    assert_eq!(session.status_of_list(&dying).await, 200);
    let begun_meanwhile = Session::open(&dying, None).await;
    assert!(redis.run().await);
    connected(&other).await;
    for session in [&session, &begun_meanwhile] {
        eventually("it is saved again", async || session.status_of_list(&other).await == 200).await;
    }
    dying.child.kill().unwrap();
    let mut stream = session.stream(&other).await;
    quiet(&mut stream).await;
    folders.write(1, 0, "changed");
    hears(&mut stream, &uri(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_what_a_client_ends_while_redis_is_away_stays_ended() {
    let redis = Redis::start().await;
    let folders = Folders::new(3);
    let mut behind = folders.start(0, &redis.url()).await;
    let other = folders.start(1, &redis.url()).await;
    let (kept, ended) = (Session::open(&behind, None).await, Session::open(&behind, None).await);
    for number in 0..2 {
        kept.subscribe(&behind, &uri(number)).await;
    }
    // Redis refuses writes, as the standby of a server that does not exist.
    assert_eq!(redis.command("REPLICAOF 127.0.0.1 1").await.unwrap(), "+OK\r\n");
    eventually("it is degraded", async || behind.metric("cluster_connected").await == 0).await;
    let response = kept.send(&behind, "resources/unsubscribe", json!({ "uri": uri(1) })).await;
    assert_eq!(response.status(), 200);
    assert_eq!(ended.request(reqwest::Method::DELETE, &behind).send().await.unwrap().status(), 204);
    assert_eq!(redis.command("REPLICAOF NO ONE").await.unwrap(), "+OK\r\n");
    connected(&behind).await;
    let fields = async |session: &Session| {
        let count = redis.command(&format!("HLEN {{libris}}:session:{}", session.id)).await.unwrap();
        count.trim_start_matches(':').trim().parse::<usize>().unwrap()
    };
    // The revision, and one subscription.
    eventually("Redis has what is left", async || fields(&ended).await == 0 && fields(&kept).await == 2)
        .await;
    behind.child.kill().unwrap();
    assert_eq!(ended.status_of_list(&other).await, 404);
    assert_eq!(kept.status_of_list(&other).await, 200);
    assert_eq!(other.metric("subscriptions").await, 1);
}
