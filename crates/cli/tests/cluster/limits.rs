//! Rate limits count what a client sends to all replicas.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{DEADLINE, Program, eventually};
use crate::replicas::{Folders, Redis, connected, start};

/// A bucket that is filled so slowly that a busy machine makes no difference.
const REQUESTS_PER_MINUTE: u64 = 60;

/// A caller with an API key.
struct KeyHolder {
    http: reqwest::Client,
    key: String,
}

impl KeyHolder {
    /// Sends requests until one is refused; returns how many were accepted.
    async fn use_up(&self, program: &Program) -> u64 {
        let message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        });
        let mut accepted = 0;
        loop {
            let request = self.http.post(&program.url).bearer_auth(&self.key).timeout(DEADLINE);
            let request = request
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream")
                .header("mcp-protocol-version", "2026-07-28")
                .header("mcp-method", "resources/list")
                .body(message.to_string());
            match request.send().await.unwrap().status().as_u16() {
                200 => accepted += 1,
                429 => return accepted,
                other => panic!("status {other}"),
            }
        }
    }

    /// The requests at other replicas that a replica knows of.
    async fn requests_elsewhere(&self, program: &Program) -> u64 {
        let url = program.url.replace("/mcp", "/metrics");
        let response = self.http.get(url).bearer_auth(&self.key).timeout(DEADLINE).send().await.unwrap();
        let text = response.text().await.unwrap();
        let found =
            text.lines().find_map(|line| line.strip_prefix("libris_cluster_requests_elsewhere_total "));
        found.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_an_identity_uses_up_its_rate_at_all_replicas_together() {
    let redis = Redis::start().await;
    let folders = Folders::new(1);
    let keys = folders.of(0).parent().unwrap().join("keys.toml");
    let caller = |name: &str| {
        let made = std::process::Command::new(env!("CARGO_BIN_EXE_libris"))
            .args(["key", "add", name, "--keys", keys.to_str().unwrap()])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        KeyHolder { http: reqwest::Client::new(), key }
    };
    let (me, observer) = (caller("me"), caller("observer"));
    let more = format!(
        "[auth]\nkeys = \"{}\"\n\n[limits.identity]\nrequests_per_minute = {REQUESTS_PER_MINUTE}\n",
        keys.display()
    );
    let [one, other] = [0, 1].map(|replica| start(&folders.config(replica, &redis.url(), &more)));
    for program in [&one, &other] {
        // Needs no credentials, so that it does not count for an identity.
        let url = program.url.replace("/mcp", "/readyz");
        eventually("the replica is connected", async || {
            let response = reqwest::get(&url).await.unwrap();
            response.text().await.unwrap().contains("\"ready\"")
        })
        .await;
    }
    let began = Instant::now();
    let at_one = me.use_up(&one).await;
    assert!(at_one >= REQUESTS_PER_MINUTE, "{at_one}");
    // Rarely, because the observer has a rate too.
    while observer.requests_elsewhere(&other).await < at_one {
        assert!(began.elapsed() < DEADLINE, "the other replica does not learn of the requests");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let at_other = me.use_up(&other).await;
    let refilled = began.elapsed().as_secs() * REQUESTS_PER_MINUTE / 60 + 1;
    assert!(at_other <= refilled, "{at_other} requests were accepted, {refilled} were refilled");
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_old_addresses_of_clients_are_removed() {
    let redis = Redis::start().await;
    let old = "1000000000000-0";
    redis.command(&format!("XADD {{libris}}:usage {old} r other d a192.0.2.7")).await.unwrap();
    let folders = Folders::new(1);
    let limits = "[limits.address]\nrequests_per_minute = 60000\n";
    let program = start(&folders.config(0, &redis.url(), limits));
    connected(&program).await;
    let url = program.url.replace("/mcp", "/metrics");
    eventually("the replica adds an entry, and removes the old one", async || {
        reqwest::get(&url).await.unwrap();
        let entries = redis.command(&format!("XRANGE {{libris}}:usage - {old}")).await.unwrap();
        let length = redis.command("XLEN {libris}:usage").await.unwrap();
        entries == "*0\r\n" && length != ":0\r\n"
    })
    .await;
}
