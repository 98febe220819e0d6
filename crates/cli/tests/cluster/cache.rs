//! The cache that replicas share: contents of a service are read once for all replicas.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;

use crate::client::{Client, Era, Program, eventually};
use crate::replicas::{CuttableProxy, Folders, Redis, connected, settled, start};
use crate::service::{CountingService, SERVICE_TOKEN, ServiceResponse, shared_source, value_uri};
use crate::toolbox::{Handshake, Toolbox};

/// How long a read may take that waits for Redis in vain.
const SOON: Duration = Duration::from_secs(5);

/// Replicas that share the contents of a service, with a client of each era at each.
struct SharingReplicas {
    programs: Vec<Option<Program>>,
    /// First those of the first replica.
    clients: Vec<Client>,
    _folders: Folders,
}

impl SharingReplicas {
    /// Starts replicas with these sources, one for each URL of Redis, whose clients subscribe to these resources. Waits
    /// until no change of the start is outstanding.
    async fn start(redis: &[String], sources: &str, subscribed: &[String]) -> Self {
        let folders = Folders::new(1);
        let mut programs = Vec::new();
        for (number, url) in redis.iter().enumerate() {
            programs.push(start(&folders.config(number, url, sources)));
        }
        let mut clients = Vec::new();
        for program in &programs {
            connected(program).await;
            for era in [Era::Legacy, Era::Modern] {
                clients.push(Client::connect(program, era, subscribed).await);
            }
        }
        join_all(clients.iter().map(settled)).await;
        Self { programs: programs.into_iter().map(Some).collect(), clients, _folders: folders }
    }

    async fn metric(&self, name: &str) -> u64 {
        join_all(self.programs.iter().flatten().map(|program| program.metric(name))).await.iter().sum()
    }
}

/// The value that a client reads; `None` if the read fails.
async fn value(client: &Client, number: usize) -> Option<String> {
    let contents = client.read(&value_uri(number)).await?;
    Some(contents[0]["text"].as_str().unwrap().trim().to_owned())
}

async fn values(clients: &[Client], number: usize) -> Vec<Option<String>> {
    join_all(clients.iter().map(|client| value(client, number))).await
}

fn all(value: &str, count: usize) -> Vec<Option<String>> {
    vec![Some(value.to_owned()); count]
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_contents_are_requested_once_for_all_replicas() {
    let redis = Redis::start().await;
    let (service, url) = CountingService::start().await;
    let slow = ServiceResponse { delays: [Duration::from_millis(1_500); 2], ..ServiceResponse::default() };
    service.respond(1, slow);
    (0..3).for_each(|number| service.set(number, 7_000_123));
    let replicas = SharingReplicas::start(&vec![redis.url(); 3], &shared_source(&url, 3), &[]).await;
    // One after the other, and all at once while the service is slow.
    for client in &replicas.clients {
        assert_eq!(value(client, 0).await.as_deref(), Some("7000123"));
    }
    assert_eq!(service.reads(0), 1);
    assert_eq!(values(&replicas.clients, 1).await, all("7000123", 6));
    assert_eq!(service.reads(1), 1);
    assert_eq!(replicas.metric("cluster_cache_stored_total").await, 2);
    assert_eq!(replicas.metric("cluster_cache_misses_total").await, 2);
    assert_eq!(replicas.metric("cluster_cache_hits_total").await, 4, "two other replicas, two values");
    // What each replica has cached costs no operation of Redis.
    let before = redis.commands().await;
    for _ in 0..50 {
        assert_eq!(values(&replicas.clients, 0).await, all("7000123", 6));
    }
    let operations = redis.commands().await - before;
    assert!(operations < 60, "{operations} operations for 300 reads");
    assert_eq!(replicas.metric("cluster_cache_hits_total").await, 4);
    // Redis has the contents, but not the credential.
    for command in ["CONFIG SET rdbcompression no", "SAVE"] {
        assert_eq!(redis.command(command).await.unwrap(), "+OK\r\n");
    }
    let dump = redis.dump();
    let has = |text: &str| dump.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("7000123") && !has(SERVICE_TOKEN));
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_another_replica_reads_if_the_one_that_reads_dies() {
    let redis = Redis::start().await;
    let (service, url) = CountingService::start().await;
    let delays = [Duration::from_secs(600), Duration::ZERO];
    service.respond(0, ServiceResponse { delays, ..ServiceResponse::default() });
    let mut replicas = SharingReplicas::start(&vec![redis.url(); 3], &shared_source(&url, 1), &[]).await;
    let first = replicas.clients.remove(0);
    replicas.clients.remove(0);
    let reading = tokio::spawn(async move { first.read(&value_uri(0)).await });
    eventually("the first replica reads", async || service.reads(0) == 1).await;
    let waiting = values(&replicas.clients, 0);
    let killed = async {
        // Until it has certainly asked Redis.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(service.reads(0), 1, "the other replicas wait");
        replicas.programs[0] = None;
        Instant::now()
    };
    let (values, killed) = tokio::join!(waiting, killed);
    let took = killed.elapsed();
    eprintln!("another replica has read the contents {took:?} after the death of the first");
    assert_eq!(values, all("0", 4));
    assert_eq!(service.reads(0), 2, "one of the other two reads");
    assert!(took < Duration::from_secs(10), "{took:?}");
    reading.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_what_cannot_be_cached_is_read_by_each_replica_and_failures_are_not_kept() {
    let redis = Redis::start().await;
    let (service, url) = CountingService::start().await;
    service.respond(0, ServiceResponse { cache_control: "no-store", ..ServiceResponse::default() });
    service.respond(1, ServiceResponse { status: 500, ..ServiceResponse::default() });
    // More than replicas share.
    service.respond(2, ServiceResponse { padding: 2 << 20, ..ServiceResponse::default() });
    let replicas = SharingReplicas::start(&vec![redis.url(); 2], &shared_source(&url, 3), &[]).await;
    let one = &replicas.clients[..1];
    for written in 1..=20 {
        service.set(0, written);
        assert_eq!(values(one, 0).await, all(&written.to_string(), 1));
    }
    assert_eq!(service.reads(0), 20);
    assert_eq!(replicas.metric("cluster_cache_misses_total").await, 1, "then the replica knows");
    assert_eq!(values(&replicas.clients, 2).await, all("0", 4));
    assert_eq!(replicas.metric("cluster_cache_stored_total").await, 0);
    assert_eq!(value(&replicas.clients[0], 1).await, None);
    service.respond(1, ServiceResponse::default());
    for client in &replicas.clients {
        eventually("it is read", async || value(client, 1).await.is_some()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_read_after_a_notification_is_new_at_every_replica() {
    let redis = Redis::start().await;
    let (service, url) = CountingService::start().await;
    let replicas =
        SharingReplicas::start(&vec![redis.url(); 3], &shared_source(&url, 1), &[value_uri(0)]).await;
    for written in 1..=20u64 {
        values(&replicas.clients, 0).await;
        service.set(0, written);
        join_all(replicas.clients.iter().map(async |client| {
            eventually("it hears of the change", async || client.heard_of().contains(&value_uri(0))).await;
            assert_eq!(value(client, 0).await, Some(written.to_string()));
        }))
        .await;
    }
    assert!(replicas.metric("cluster_cache_hits_total").await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_size_is_bounded_and_the_newest_contents_remain() {
    const VALUES: usize = 40;
    let redis = Redis::start().await;
    let (service, url) = CountingService::start().await;
    for number in 0..=VALUES {
        // The last one is larger than the cache.
        let padding = if number == VALUES { 70 << 10 } else { 10 << 10 };
        service.respond(number, ServiceResponse { padding, ..ServiceResponse::default() });
        service.set(number, number as u64);
    }
    let folders = Folders::new(1);
    let mut clients = Vec::new();
    let mut programs = Vec::new();
    for number in 0..2 {
        let path = folders.config(number, &redis.url(), &shared_source(&url, VALUES + 1));
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, config.replace("[cluster]\n", "[cluster]\ncache_bytes = \"64KiB\"\n")).unwrap();
        let program = start(&path);
        connected(&program).await;
        clients.push(Client::connect(&program, Era::Modern, &[]).await);
        programs.push(program);
    }
    join_all(clients.iter().map(settled)).await;
    for number in 0..VALUES {
        assert_eq!(value(&clients[0], number).await, Some(number.to_string()));
        eventually("it is stored", async || {
            programs[0].metric("cluster_cache_stored_total").await == number as u64 + 1
        })
        .await;
    }
    let number = async |command: &str| -> u64 {
        let answer = redis.command(command).await.unwrap();
        let text = answer.trim_start_matches(':').trim();
        text.rsplit("\r\n").next().unwrap().parse().unwrap_or_else(|_| panic!("{command}: {answer}"))
    };
    let bytes = number("GET {libris}:cache-bytes").await;
    assert!((32 << 10..=64 << 10).contains(&bytes), "{bytes}");
    for name in [
        "HLEN {libris}:cache",
        "HLEN {libris}:cache-contents",
        "ZCARD {libris}:cache-expiry",
        "ZCARD {libris}:cache-order",
    ] {
        assert!((3..=6).contains(&number(name).await), "{name}");
    }
    assert_eq!(value(&clients[1], VALUES - 1).await, Some((VALUES - 1).to_string()));
    assert_eq!((service.reads(VALUES - 1), service.reads(0)), (1, 1));
    assert_eq!(value(&clients[1], 0).await.as_deref(), Some("0"));
    assert_eq!(service.reads(0), 2, "the oldest contents were removed");
    let entries = number("HLEN {libris}:cache").await;
    assert_eq!(value(&clients[0], VALUES).await, Some(VALUES.to_string()));
    eventually("it was tried to store the largest contents", async || {
        redis.command("KEYS {libris}:cache-lock:*").await.unwrap() == "*0\r\n"
    })
    .await;
    assert_eq!(number("HLEN {libris}:cache").await, entries, "they have displaced nothing");
    // Redis may evict any of the keys.
    redis.command("DEL {libris}:cache-bytes").await.unwrap();
    eventually("further contents are stored and counted", async || {
        let next = programs[1].metric("cluster_cache_stored_total").await as usize;
        value(&clients[1], next % VALUES).await;
        redis.command("EXISTS {libris}:cache-bytes").await.unwrap() == ":1\r\n"
    })
    .await;
    assert!(number("GET {libris}:cache-bytes").await <= 64 << 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_reads_go_on_without_redis_and_are_shared_again_afterwards() {
    // Enough for an attempt every 100 milliseconds.
    const VALUES: usize = 300;
    const PAUSE: Duration = Duration::from_millis(100);
    let mut redis = Redis::start().await;
    let proxy = CuttableProxy::start(redis.address()).await;
    let (service, url) = CountingService::start().await;
    let replicas = SharingReplicas::start(&vec![proxy.url(); 2], &shared_source(&url, VALUES), &[]).await;
    let [one, _, other, _] = &replicas.clients[..] else { panic!("two clients at each replica") };
    let mut next = 0..VALUES;
    let mut read_at_both = async || {
        let number = next.next().expect("values are left");
        let began = Instant::now();
        let values = [value(one, number).await, value(other, number).await];
        assert_eq!(values.to_vec(), all("0", 2));
        (began.elapsed(), service.reads(number))
    };
    assert_eq!(read_at_both().await.1, 1);
    proxy.cut(true);
    for _ in 0..3 {
        let (took, reads) = read_at_both().await;
        assert!(took < SOON && reads == 2, "{took:?} {reads}");
    }
    proxy.cut(false);
    let mut took = Duration::MAX;
    eventually("contents are shared again", async || {
        tokio::time::sleep(PAUSE).await;
        let (longest, reads) = read_at_both().await;
        took = longest;
        reads == 1
    })
    .await;
    assert!(took < SOON, "{took:?}");
    redis.kill();
    for _ in 0..3 {
        let (took, reads) = read_at_both().await;
        assert!(took < SOON && reads == 2, "{took:?} {reads}");
    }
    assert!(redis.run().await);
    eventually("contents are shared again", async || {
        tokio::time::sleep(PAUSE).await;
        read_at_both().await.1 == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_callers_with_different_rules_share_nothing() {
    let redis = Redis::start().await;
    let (service, url) = CountingService::start().await;
    let folders = Folders::new(1);
    let rules = |action: &str| {
        format!(
            "{}\n[[rule]]\nuri = \"file:///docs/0.txt\"\naction = \"{action}\"\n\n[[rule]]\naction = \"allow\"\n",
            shared_source(&url, 1)
        )
    };
    let mut clients = Vec::new();
    let mut programs = Vec::new();
    for (number, action) in ["allow", "deny", "deny"].into_iter().enumerate() {
        let program = start(&folders.config(number, &redis.url(), &rules(action)));
        connected(&program).await;
        clients.push(Client::connect(&program, Era::Modern, &[]).await);
        programs.push(program);
    }
    join_all(clients.iter().map(settled)).await;
    for (client, reads) in clients.iter().zip([1, 2, 2]) {
        assert_eq!(value(client, 0).await.as_deref(), Some("0"));
        assert_eq!(service.reads(0), reads);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_only_public_contents_of_a_server_are_shared() {
    let redis = Redis::start().await;
    let toolbox = Toolbox::start(Handshake::Discover, &[]).await;
    let source = format!("[[mcp]]\nname = \"far\"\nurl = \"{}\"\nuris = \"prefixed\"\n", toolbox.url);
    let replicas = SharingReplicas::start(&vec![redis.url(); 2], &source, &[]).await;
    let reads = |uri: &str| {
        let requests = toolbox.requests("resources/read");
        requests.iter().filter(|request: &&Value| request["params"]["uri"] == uri).count()
    };
    for client in &replicas.clients {
        for uri in ["far+odd://public", "far+odd://private"] {
            assert_eq!(client.read(uri).await.unwrap()[0]["text"], "cacheable");
        }
    }
    assert_eq!(reads("odd://public"), 1);
    assert_eq!(reads("odd://private"), 4, "each client gets its own");
    // All at once, and another time.
    join_all(replicas.clients.iter().map(async |client| client.read("far+odd://private").await.unwrap()))
        .await;
    assert_eq!(reads("odd://private"), 8);
    assert_eq!(replicas.metric("cluster_cache_stored_total").await, 1);
}
