//! Changes at one replica reach the subscribers of the others.

use std::time::Duration;

use serde_json::json;

use crate::client::{Client, Era, eventually};
use crate::replicas::{Folders, Redis, connected, settled, start, uri};

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_subscribers_of_every_replica_hear_of_changes_at_one() {
    let redis = Redis::start().await;
    let folders = Folders::new(3);
    let one = folders.start(0, &redis.url()).await;
    let other = folders.start(1, &redis.url()).await;
    let uris = [uri(0), uri(1)];
    let mut clients = Vec::new();
    for program in [&one, &other] {
        for era in [Era::Legacy, Era::Modern] {
            clients.push(Client::connect(program, era, &uris).await);
        }
    }
    for client in &clients {
        settled(client).await;
    }
    folders.write(0, 0, "changed");
    folders.write(0, 2, "nobody subscribed to this");
    for client in &clients {
        eventually("each client hears of it", async || client.heard_of().contains(&uri(0))).await;
    }
    clients.iter().for_each(|client| {
        let heard = client.heard.lock().unwrap();
        assert!(!heard.updated.contains(&uri(1)), "only one of them has changed");
        assert_eq!(heard.updates.get(&uri(2)), None, "nobody subscribed to it");
    });
    std::fs::write(folders.of(0).join("new.txt"), "new").unwrap();
    for client in &clients {
        eventually("each client hears of the list", async || client.heard_of_list()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_client_that_comes_later_hears_of_changes_of_the_last_minute() {
    let redis = Redis::start().await;
    let folders = Folders::new(3);
    let one = folders.start(0, &redis.url()).await;
    let published = one.metric("cluster_published_total").await;
    folders.write(0, 0, "changed before anybody listened");
    eventually("it is published", async || one.metric("cluster_published_total").await > published).await;
    // It was not running when the file changed.
    let other = folders.start(1, &redis.url()).await;
    for program in [&one, &other] {
        let client = Client::connect(program, Era::Modern, &[uri(0)]).await;
        eventually("it hears of the change", async || client.heard_of().contains(&uri(0))).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_gap_between_the_entries_of_a_replica_is_noticed() {
    let redis = Redis::start().await;
    let folders = Folders::new(2);
    let replica = folders.start(0, &redis.url()).await;
    let client = Client::connect(&replica, Era::Modern, &[uri(0), uri(1)]).await;
    settled(&client).await;
    let write = async |number: u64, file: usize| {
        let uri = uri(file);
        let added = redis.command(&format!("XADD {{libris}}:changes * r other n {number} d U{uri}")).await;
        assert!(added.unwrap().starts_with('$'));
    };
    write(1, 0).await;
    write(2, 0).await;
    eventually("both arrive", async || replica.metric("cluster_received_total").await == 2).await;
    assert_eq!(replica.metric("cluster_lost_total").await, 0);
    // The third is missing, so anything may have changed.
    write(4, 0).await;
    eventually("the gap is noticed", async || replica.metric("cluster_lost_total").await == 1).await;
    eventually("the client hears of everything", async || client.heard_of().contains(&uri(1))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_cached_reads_cause_no_redis_operations() {
    let redis = Redis::start().await;
    let folders = Folders::new(1);
    let one = folders.start(0, &redis.url()).await;
    let clients =
        [Client::connect(&one, Era::Legacy, &[]).await, Client::connect(&one, Era::Modern, &[]).await];
    let before = redis.commands().await;
    for client in &clients {
        for _ in 0..500 {
            assert!(client.read(&uri(0)).await.is_some());
        }
    }
    let after = redis.commands().await;
    // A session is recorded as used every 20 seconds.
    assert!(after - before < 20, "{} commands for 1,000 reads", after - before);
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_change_at_one_replica_is_found_by_a_search_at_another() {
    let redis = Redis::start().await;
    let folders = Folders::new(3);
    let one = folders.start(0, &redis.url()).await;
    // This replica does not see changes itself.
    let config = folders.config(1, &redis.url(), "[search]\nenabled = true\n");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}watch = \"poll\"\npoll = \"1h\"\n")).unwrap();
    let other = start(&config);
    connected(&other).await;
    let client = Client::connect(&other, Era::Modern, &[uri(0)]).await;
    settled(&client).await;
    let finds = async |word: &str| {
        let arguments = json!({ "query": word });
        let called = json!({ "name": "search_resources", "arguments": arguments });
        let answer = client.ask("tools/call", called).await;
        let text = answer["result"]["content"].to_string();
        assert!(answer["result"]["isError"] != true, "{answer}");
        text.contains(&uri(0))
    };
    eventually("it is indexed", async || other.metric("search_pending").await == 0).await;
    folders.write(1, 0, "quokka");
    settled(&client).await;
    assert!(!finds("quokka").await, "it does not know of the change");
    folders.write(0, 0, "quokka");
    eventually("the search finds it", async || finds("quokka").await).await;
    drop(one);
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_client_that_was_away_for_long_is_notified_of_each_of_its_resources() {
    let redis = Redis::start().await;
    // Redis has been in use for long, and the stream shows that nothing has changed within the last minute.
    assert_eq!(redis.command("SET {libris}:incarnation \"1000 another\"").await.unwrap(), "+OK\r\n");
    let folders = Folders::new(3);
    let replica = folders.start(0, &redis.url()).await;
    let uris = [uri(0), uri(1)];
    // For a minute after its start, a replica does not know whether a resource has changed.
    tokio::time::sleep(libris::cluster::RECENT_PERIOD + Duration::from_secs(2)).await;
    for _ in 0..2 {
        let client = Client::connect(&replica, Era::Modern, &uris).await;
        let mut heard = std::collections::BTreeSet::new();
        eventually("it hears of each of its resources", async || {
            heard.extend(client.heard_of());
            uris.iter().all(|uri| heard.contains(uri))
        })
        .await;
        eventually("it hears of the list", async || client.heard_of_list()).await;
        settled(&client).await;
        let updates = client.heard.lock().unwrap().updates.clone();
        assert_eq!(updates, uris.iter().map(|uri| (uri.clone(), 1)).collect(), "once each, and no others");
    }
}
