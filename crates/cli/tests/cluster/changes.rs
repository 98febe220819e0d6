//! Changes at one replica reach the subscribers of the others.

use crate::client::{Client, Era, eventually};
use crate::replicas::{Folders, Redis, settled, uri};

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
