//! Redis away: replicas serve what they have, say so, and catch up.

use serde_json::Value;

use crate::client::{Client, Era, Program, eventually};
use crate::replicas::{CuttableProxy, Folders, Redis, connected, disconnected, settled, uri};

async fn ready(program: &Program) -> Value {
    let response = reqwest::get(program.url.replace("/mcp", "/readyz")).await.unwrap();
    assert_eq!(response.status(), 200);
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

pub(crate) async fn cluster_status(client: &Client) -> Value {
    let contents = client.read("libris://status?as=json").await.unwrap();
    let status: Value = serde_json::from_str(contents[0]["text"].as_str().unwrap()).unwrap();
    status["cluster"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_replica_without_redis_is_degraded_and_catches_up() {
    let mut redis = Redis::start().await;
    let folders = Folders::new(2);
    let one = folders.start(0, &redis.url()).await;
    let other = folders.start(1, &redis.url()).await;
    let client = Client::connect(&other, Era::Modern, &[uri(0), uri(1)]).await;
    settled(&client).await;
    assert_eq!(ready(&one).await["status"], "ready");
    assert_eq!(cluster_status(&client).await["connected"], true);
    redis.kill();
    for program in [&one, &other] {
        eventually("it is degraded", async || program.metric("cluster_connected").await == 0).await;
        let ready = ready(program).await;
        assert_eq!(ready["status"], "degraded", "{ready}");
        assert!(!ready.to_string().contains(&redis.address().to_string()), "{ready}");
    }
    let status = cluster_status(&client).await;
    assert_eq!(status["connected"], false, "{status}");
    assert!(status["reason"].is_string(), "{status}");
    // Clients of the replica itself hear of its changes as ever.
    folders.write(1, 1, "here");
    eventually("it hears of the change here", async || client.heard_of().contains(&uri(1))).await;
    folders.write(0, 0, "elsewhere");
    eventually("it waits to be published", async || one.metric("cluster_unpublished").await > 0).await;
    client.heard_of();
    assert!(redis.run().await);
    connected(&one).await;
    connected(&other).await;
    eventually("it hears of the change elsewhere", async || client.heard_of().contains(&uri(0))).await;
    eventually("all is published", async || one.metric("cluster_unpublished").await == 0).await;
    assert_eq!(ready(&other).await["status"], "ready");
    // Redis came back empty, so changes that it had may be lost.
    assert!(other.metric("cluster_lost_total").await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_cut_network_is_noticed_and_nothing_is_lost() {
    let redis = Redis::start().await;
    let proxy = CuttableProxy::start(redis.address()).await;
    let folders = Folders::new(50);
    let one = folders.start(0, &redis.url()).await;
    let behind = folders.start(1, &proxy.url()).await;
    let uris: Vec<_> = (0..50).map(uri).collect();
    let client = Client::connect(&behind, Era::Modern, &uris).await;
    settled(&client).await;
    proxy.cut(true);
    (0..50).for_each(|file| folders.write(0, file, "changed"));
    disconnected(&behind).await;
    assert_eq!(one.metric("cluster_connected").await, 1);
    proxy.cut(false);
    let mut heard = std::collections::BTreeSet::new();
    eventually("it hears of every change", async || {
        heard.extend(client.heard_of());
        uris.iter().all(|uri| heard.contains(uri))
    })
    .await;
    // The stream had them all, so the replica continued where it was.
    assert_eq!(behind.metric("cluster_lost_total").await, 0);
    assert!(behind.metric("cluster_reconnections_total").await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_replica_starts_without_redis() {
    let mut redis = Redis::start().await;
    redis.kill();
    let folders = Folders::new(1);
    let one = crate::replicas::start(&folders.config(0, &redis.url(), ""));
    let client = Client::connect(&one, Era::Modern, &[uri(0)]).await;
    assert!(client.read(&uri(0)).await.is_some());
    assert_eq!(ready(&one).await["status"], "degraded");
    assert!(redis.run().await);
    connected(&one).await;
    assert_eq!(ready(&one).await["status"], "ready");
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_replica_that_is_cut_off_withdraws_rights_in_time() {
    let redis = Redis::start().await;
    let proxy = CuttableProxy::start(redis.address()).await;
    let folders = Folders::new(2);
    let allow = "[[rule]]\naction = \"allow\"\n";
    let config = folders.config(1, &proxy.url(), allow);
    let _other = folders.start(0, &redis.url()).await;
    let behind = crate::replicas::start(&config);
    connected(&behind).await;
    let clients = [
        Client::connect(&behind, Era::Modern, &[uri(0), uri(1)]).await,
        Client::connect(&behind, Era::Legacy, &[uri(0), uri(1)]).await,
    ];
    futures_util::future::join_all(clients.iter().map(settled)).await;
    proxy.cut(true);
    eventually("the cut is noticed", async || behind.metric("cluster_connected").await == 0).await;
    assert!(clients[0].read(&uri(0)).await.is_some());
    let deny = format!("[[rule]]\nuri = \"{}\"\naction = \"deny\"\n\n{allow}", uri(0));
    let revoked = std::time::Instant::now();
    folders.config(1, &proxy.url(), &deny);
    for client in &clients {
        eventually("the read is refused", async || client.read(&uri(0)).await.is_none()).await;
    }
    let took = revoked.elapsed();
    // A second, and what a busy machine needs.
    assert!(took < std::time::Duration::from_secs(3), "{took:?}");
    for client in &clients {
        settled(client).await;
        // The stream ends with the right: of the denied file it says nothing any more.
        for text in ["one", "two", "three"] {
            folders.write(1, 0, text);
            folders.write(1, 1, text);
            eventually("it hears of the other file", async || {
                let heard = client.heard_of();
                assert!(!heard.contains(&uri(0)), "{heard:?}");
                heard.contains(&uri(1))
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_changes_that_were_trimmed_during_a_cut_are_lost_once_and_everybody_is_notified() {
    let redis = Redis::start().await;
    let proxy = CuttableProxy::start(redis.address()).await;
    let folders = Folders::new(3);
    let one = folders.start(0, &redis.url()).await;
    let behind = folders.start(1, &proxy.url()).await;
    let uris: Vec<_> = (0..3).map(uri).collect();
    let clients = [
        Client::connect(&behind, Era::Modern, &uris).await,
        Client::connect(&behind, Era::Legacy, &uris).await,
    ];
    futures_util::future::join_all(clients.iter().map(settled)).await;
    let lost = behind.metric("cluster_lost_total").await;
    proxy.cut(true);
    disconnected(&behind).await;
    let published = one.metric("cluster_published_total").await;
    folders.write(0, 0, "changed");
    eventually("it is published", async || one.metric("cluster_published_total").await > published).await;
    let trimmed = redis.command("XTRIM {libris}:changes MAXLEN 0").await.unwrap();
    assert!(trimmed.starts_with(':') && trimmed != ":0\r\n", "{trimmed}");
    proxy.cut(false);
    eventually("the loss is noticed", async || behind.metric("cluster_lost_total").await > lost).await;
    for client in &clients {
        let mut heard = std::collections::BTreeSet::new();
        eventually("it hears of every resource", async || {
            heard.extend(client.heard_of());
            uris.iter().all(|uri| heard.contains(uri))
        })
        .await;
    }
    futures_util::future::join_all(clients.iter().map(settled)).await;
    assert_eq!(behind.metric("cluster_lost_total").await, lost + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_redis_that_refuses_writes_is_noticed_and_nothing_is_lost() {
    let redis = Redis::start().await;
    let folders = Folders::new(2);
    let one = folders.start(0, &redis.url()).await;
    let other = folders.start(1, &redis.url()).await;
    let client = Client::connect(&other, Era::Modern, &[uri(0)]).await;
    settled(&client).await;
    // Full, and then a replica of a server that does not exist.
    for (refuse, accept) in
        [("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"), ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE")]
    {
        let lost = other.metric("cluster_lost_total").await;
        assert_eq!(redis.command(refuse).await.unwrap(), "+OK\r\n");
        for program in [&one, &other] {
            // Without a change that would have to be written.
            eventually("it is degraded", async || program.metric("cluster_connected").await == 0).await;
            assert_eq!(ready(program).await["status"], "degraded");
        }
        folders.write(0, 0, refuse);
        eventually("the change waits", async || one.metric("cluster_unpublished").await > 0).await;
        assert!(client.read(&uri(0)).await.is_some());
        client.heard_of();
        assert_eq!(redis.command(accept).await.unwrap(), "+OK\r\n");
        eventually("the change arrives", async || client.heard_of().contains(&uri(0))).await;
        for program in [&one, &other] {
            eventually("it is connected", async || program.metric("cluster_connected").await == 1).await;
            assert_eq!(ready(program).await["status"], "ready");
        }
        assert_eq!(other.metric("cluster_lost_total").await, lost);
    }
}
