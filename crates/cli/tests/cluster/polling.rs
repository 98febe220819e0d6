//! A source that polls a service is polled by one replica, and by another one when that dies.

use std::io::Write as _;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::client::{Client, Era, Program, eventually};
use crate::replicas::{CuttableProxy, Folders, Redis, connected, settled, start};
use crate::service::{CountingService, source, value_uri};

fn replica(folders: &Folders, number: usize, redis: &str, service: &str) -> Program {
    start(&folders.config(number, redis, &source(service, number, 1)))
}

async fn value(client: &Client) -> String {
    client.read(&value_uri(0)).await.unwrap()[0]["text"].as_str().unwrap().to_owned()
}

/// The replicas that poll.
async fn pollers(replicas: &[Option<Program>]) -> Vec<usize> {
    let mut pollers = Vec::new();
    for (number, program) in replicas.iter().enumerate() {
        if let Some(program) = program
            && program.metric("cluster_polled_sources").await == 1
        {
            pollers.push(number);
        }
    }
    pollers
}

/// Waits until exactly one replica polls.
async fn only_poller(replicas: &[Option<Program>]) -> usize {
    let mut only = Vec::new();
    eventually("one replica polls", async || {
        only = pollers(replicas).await;
        only.len() == 1
    })
    .await;
    only[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_one_replica_polls_a_service_for_all_and_another_takes_over() {
    let redis = Redis::start().await;
    let folders = Folders::new(1);
    let (service, url) = CountingService::start().await;
    service.set(0, 1);
    let mut replicas: Vec<_> =
        (0..3).map(|number| Some(replica(&folders, number, &redis.url(), &url))).collect();
    let mut clients = Vec::new();
    for program in replicas.iter().flatten() {
        connected(program).await;
        for era in [Era::Legacy, Era::Modern] {
            clients.push(Client::connect(program, era, &[value_uri(0)]).await);
        }
    }
    join_all(clients.iter().map(settled)).await;
    for client in &clients {
        assert_eq!(value(client).await, "1");
    }
    // A stall of this machine for longer than the lease moves it to another replica; then it is measured again.
    let first = loop {
        let first = only_poller(&replicas).await;
        let before: Vec<_> = (0..3).map(|number| service.requests(number)).collect();
        eventually("it polls", async || service.requests(first) >= before[first] + 15).await;
        let polls: Vec<_> = (0..3).map(|number| service.requests(number) - before[number]).collect();
        if pollers(&replicas).await == [first] {
            eprintln!("polls of the three replicas in the same time: {polls:?}");
            let mut others = polls.iter().enumerate().filter(|(number, _)| *number != first);
            assert!(others.all(|(_, polls)| *polls == 0), "{polls:?}");
            break first;
        }
    };
    // Clients of every replica hear of a change, and none reads the old value after that.
    let hears_of = async |clients: &[Client], written: u64| {
        service.set(0, written);
        for client in clients {
            eventually("it hears of the change and reads it", async || {
                client.heard_of().contains(&value_uri(0)) && value(client).await == written.to_string()
            })
            .await;
        }
    };
    hears_of(&clients, 2).await;
    replicas[first] = None;
    clients.drain(2 * first..2 * first + 2);
    let died = Instant::now();
    let requests: Vec<_> = (0..3).map(|number| service.requests(number)).collect();
    let mut taken_over = None;
    eventually("another replica polls", async || {
        taken_over = (0..3).find(|number| *number != first && service.requests(*number) > requests[*number]);
        taken_over.is_some()
    })
    .await;
    let took = died.elapsed();
    // Unlike `eprintln!`, this is shown although the test passes.
    writeln!(
        std::io::stderr(),
        "take-over time: another replica polls {took:.1?} after the death of the first"
    )
    .unwrap();
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_ne!(only_poller(&replicas).await, first);
    join_all(clients.iter().map(settled)).await;
    hears_of(&clients, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_replica_that_is_cut_off_polls_by_itself() {
    let redis = Redis::start().await;
    let proxy = CuttableProxy::start(redis.address()).await;
    let folders = Folders::new(1);
    let (service, url) = CountingService::start().await;
    service.set(0, 1);
    let holder = replica(&folders, 0, &redis.url(), &url);
    connected(&holder).await;
    eventually("it polls", async || holder.metric("cluster_polled_sources").await == 1).await;
    let behind = replica(&folders, 1, &proxy.url(), &url);
    connected(&behind).await;
    let client = Client::connect(&behind, Era::Modern, &[value_uri(0)]).await;
    settled(&client).await;
    assert_eq!(behind.metric("cluster_polled_sources").await, 0);
    assert_eq!(value(&client).await, "1");
    proxy.cut(true);
    service.set(0, 2);
    eventually("it hears of the change", async || {
        client.heard_of().contains(&value_uri(0)) && value(&client).await == "2"
    })
    .await;
    assert_eq!(behind.metric("cluster_polled_sources").await, 1);
    proxy.cut(false);
    let replicas = [Some(holder), Some(behind)];
    only_poller(&replicas).await;
    service.set(0, 3);
    eventually("it hears of the change", async || {
        client.heard_of().contains(&value_uri(0)) && value(&client).await == "3"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_each_replica_polls_by_itself_if_clients_follow_too_much() {
    let redis = Redis::start().await;
    let folders = Folders::new(1);
    let (service, url) = CountingService::start().await;
    service.set(0, 1);
    let replicas: Vec<_> = (0..2).map(|number| Some(replica(&folders, number, &redis.url(), &url))).collect();
    let mut clients = Vec::new();
    for program in replicas.iter().flatten() {
        connected(program).await;
        clients.push(Client::connect(program, Era::Modern, &[value_uri(0)]).await);
    }
    only_poller(&replicas).await;
    // The size of the subjects, which Redis adds up.
    let size = format!("\r\n{}\r\n", 2 * value_uri(0).len());
    eventually("both have announced what they follow", async || {
        redis.command("GET {libris}:followed-bytes").await.unwrap().ends_with(&size)
    })
    .await;
    let grow = async |bytes: i64| {
        redis.command(&format!("INCRBY {{libris}}:followed-bytes {bytes}")).await.unwrap();
    };
    grow(5 << 20).await;
    eventually("both poll", async || pollers(&replicas).await.len() == 2).await;
    join_all(clients.iter().map(settled)).await;
    service.set(0, 2);
    for client in &clients {
        eventually("it hears of the change and reads it", async || {
            client.heard_of().contains(&value_uri(0)) && value(client).await == "2"
        })
        .await;
    }
    grow(-(5 << 20)).await;
    only_poller(&replicas).await;
}
