//! Many subscribers and many changes, while a replica dies, Redis restarts and the network is cut. At the end, every
//! subscriber has heard of each resource after its last change, although no client ever lists or reads.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::balancer::Balancer;
use crate::client::{Program, eventually};
use crate::replicas::{CuttableProxy, Folders, Redis, connected, start, uri};

/// The numbers of a storm.
struct Storm {
    subscribers: usize,
    /// The resources, and how many of them each subscriber has.
    files: usize,
    subscriptions: usize,
    changes: usize,
    /// How long the network is cut.
    cut: Duration,
}

/// nginx is trusted to name the addresses of clients.
const LISTEN: &str = "[listen]\ntrusted_proxies = [\"127.0.0.1/32\"]\n";

async fn start_replica(folders: &Folders, number: usize, redis: &str) -> Program {
    let program = start(&folders.config(number, redis, LISTEN));
    connected(&program).await;
    program
}

/// A modern client that listens at any replica, and at the next one when its stream ends. It never reads.
struct Subscriber {
    /// When it last heard of each resource.
    heard: Arc<Mutex<HashMap<String, Instant>>>,
    uris: Vec<usize>,
    task: JoinHandle<()>,
}

impl Subscriber {
    fn start(number: usize, storm: &Storm, replicas: watch::Receiver<Vec<String>>) -> Self {
        // Each has an address of its own: the rate of subscriptions is limited for each address.
        let address = Ipv4Addr::new(127, 1, (number / 200) as u8, (number % 200 + 1) as u8);
        let http = reqwest::Client::builder().local_address(IpAddr::from(address)).build().unwrap();
        let uris: Vec<usize> =
            (0..storm.subscriptions).map(|at| (number * 7 + at * 13) % storm.files).collect();
        let heard = Arc::<Mutex<HashMap<String, Instant>>>::default();
        let (wanted, hears) = (uris.iter().map(|file| uri(*file)).collect(), heard.clone());
        let task = tokio::spawn(listen(number, http, replicas, wanted, hears));
        Self { heard, uris, task }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(
    mut turn: usize,
    http: reqwest::Client,
    replicas: watch::Receiver<Vec<String>>,
    uris: Vec<String>,
    heard: Arc<Mutex<HashMap<String, Instant>>>,
) {
    let request = json!({
        "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
            "notifications": { "resourceSubscriptions": uris },
        },
    });
    let body = request.to_string();
    loop {
        // As a load balancer would choose.
        let url = {
            let all = replicas.borrow();
            all[turn % all.len()].clone()
        };
        turn += 1;
        let request = http
            .post(url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "subscriptions/listen")
            .body(body.clone());
        let Ok(mut stream) = request.send().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let mut text = String::new();
        while let Ok(Some(chunk)) = stream.chunk().await {
            text.push_str(&String::from_utf8_lossy(&chunk));
            while let Some((event, rest)) = text.split_once("\n\n") {
                if event.contains("notifications/resources/updated")
                    && let Some(uri) =
                        event.split("\"uri\":\"").nth(1).and_then(|rest| rest.split('"').next())
                {
                    heard.lock().unwrap().insert(uri.to_owned(), Instant::now());
                }
                text = rest.to_owned();
            }
        }
    }
}

async fn endure(storm: Storm) {
    let mut redis = Redis::start().await;
    let proxy = CuttableProxy::start(redis.address()).await;
    let folders = Folders::new(storm.files);
    // The changes are made at the first replica; the second reaches Redis through the proxy; the third dies.
    let one = start_replica(&folders, 0, &redis.url()).await;
    let behind = start_replica(&folders, 1, &proxy.url()).await;
    let mut dying = Some(start_replica(&folders, 2, &redis.url()).await);
    let state = tempfile::tempdir().unwrap();
    let balancer = Balancer::start(state.path(), &[&one, &behind, dying.as_ref().unwrap()]).await;
    let balanced = watch::Sender::new(vec![balancer.url.clone()]);
    let addresses = |programs: &[&Program]| programs.iter().map(|program| program.url.clone()).collect();
    let replicas = watch::Sender::new(addresses(&[&one, &behind, dying.as_ref().unwrap()]));
    // Every other subscriber connects to the load balancer, the rest to replicas.
    let subscribe = |number| {
        let servers = if number % 2 == 0 { &balanced } else { &replicas };
        Subscriber::start(number, &storm, servers.subscribe())
    };
    let subscribers: Vec<_> = (0..storm.subscribers).map(subscribe).collect();
    let streams = async |programs: &[&Program]| {
        let mut sum = 0;
        for program in programs {
            sum += program.metric("listen_streams").await;
        }
        sum
    };
    eventually("all listen", async || {
        streams(&[&one, &behind, dying.as_ref().unwrap()]).await == storm.subscribers as u64
    })
    .await;
    let mut changed = vec![None; storm.files];
    let began = Instant::now();
    let (mut cut_since, mut was_cut) = (None, false);
    // Half of the changes are made during the cut, one by one, so that few are made within one debounce window.
    let pace = storm.cut * 2 / storm.changes as u32;
    let mut due = tokio::time::Instant::now();
    for number in 0..storm.changes {
        let file = (number * 31) % storm.files;
        changed[file] = Some(Instant::now());
        folders.write(0, file, &format!("{number} of many"));
        if number == storm.changes / 4 {
            dying = None;
            replicas.send_replace(addresses(&[&one, &behind]));
        }
        if number == storm.changes / 3 {
            proxy.cut(true);
            (cut_since, was_cut) = (Some(Instant::now()), true);
        }
        if number == storm.changes / 2 {
            let restarted = start_replica(&folders, 2, &redis.url()).await;
            replicas.send_replace(addresses(&[&one, &behind, &restarted]));
            dying = Some(restarted);
            redis.kill();
            assert!(redis.run().await);
        }
        if cut_since.is_some_and(|since: Instant| since.elapsed() >= storm.cut) {
            proxy.cut(false);
            cut_since = None;
        }
        due += pace;
        tokio::time::sleep_until(due).await;
    }
    if let Some(since) = cut_since {
        tokio::time::sleep(storm.cut.saturating_sub(since.elapsed())).await;
        proxy.cut(false);
    }
    assert!(was_cut);
    eprintln!("{} changes in {:?}", storm.changes, began.elapsed());
    let replicas = [&one, &behind, dying.as_ref().unwrap()];
    for program in replicas {
        connected(program).await;
    }
    // The last changes, without faults: the lost changes that the faults caused do not cover them.
    for (file, changed) in changed.iter_mut().enumerate().step_by(2) {
        *changed = Some(Instant::now());
        folders.write(0, file, "the last change");
    }
    let missing = || {
        let missing_of = |subscriber: &Subscriber| {
            let heard = subscriber.heard.lock().unwrap();
            let is_missing = |file: &&usize| {
                changed[**file].is_some_and(|when| heard.get(&uri(**file)).is_none_or(|last| *last < when))
            };
            subscriber.uris.iter().filter(is_missing).count()
        };
        subscribers.iter().map(missing_of).sum::<usize>()
    };
    eventually("nobody is missing a resource", async || missing() == 0).await;
    let lost: Vec<_> = [
        one.metric("cluster_lost_total").await,
        behind.metric("cluster_lost_total").await,
        dying.as_ref().unwrap().metric("cluster_lost_total").await,
    ]
    .into();
    eprintln!("nobody is missing a resource after {:?}; lost at the replicas: {lost:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_needs_nginx_a_thousand_subscribers_hear_of_five_thousand_changes() {
    let cut = Duration::from_secs(10);
    endure(Storm { subscribers: 1_000, files: 500, subscriptions: 20, changes: 5_000, cut }).await;
}
