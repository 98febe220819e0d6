//! The kinds of Redis that a URL can name: with a password, over TLS and a Unix socket, behind Sentinels, and a cluster.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::client::{Client, Era, Program, eventually};
use crate::faults::cluster_status;
use crate::replicas::{Folders, connected};
use crate::service::{CountingService, source};
use crate::sessions::Session;

/// A `redis-server` process.
struct RedisNode {
    port: u16,
    folder: tempfile::TempDir,
    process: Child,
    /// The options of `redis-cli`.
    options: Vec<String>,
}

impl RedisNode {
    /// Starts a server. `settings` are the lines of its configuration file; `options` those of `redis-cli`.
    async fn start(settings: impl Fn(u16, &Path) -> String, options: &[&str]) -> Self {
        Self::run(settings, options, &[]).await
    }

    async fn run(settings: impl Fn(u16, &Path) -> String, options: &[&str], arguments: &[&str]) -> Self {
        for _ in 0..10 {
            // Another program may take the port before Redis does.
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("redis.conf");
            let common = "bind 127.0.0.1\nprotected-mode no\n";
            let written =
                format!("{common}dir {}\n{}", folder.path().display(), settings(port, folder.path()));
            std::fs::write(&file, written).unwrap();
            let process =
                Command::new("redis-server").arg(&file).args(arguments).stdout(Stdio::null()).spawn();
            let options = options.iter().map(ToString::to_string).collect();
            let mut node = Self { port, folder, process: process.unwrap(), options };
            if node.answers().await {
                return node;
            }
        }
        panic!("redis-server does not start");
    }

    async fn answers(&mut self) -> bool {
        let mut is_running = true;
        eventually("redis-server answers or ends", async || {
            is_running = self.process.try_wait().unwrap().is_none();
            !is_running || self.command(&["PING"]) == "PONG"
        })
        .await;
        is_running
    }

    /// What `redis-cli` prints.
    fn command(&self, arguments: &[&str]) -> String {
        let mut client = Command::new("redis-cli");
        let client = client.args(["-p", &self.port.to_string()]).args(&self.options).args(arguments);
        String::from_utf8_lossy(&client.output().expect("redis-cli starts").stdout).trim().to_owned()
    }
}

impl Drop for RedisNode {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Without files on disk.
const VOLATILE: &str = "save \"\"\nappendonly no\n";

/// Two replicas on a Redis, with a source that polls and rate limits.
struct ReplicaPair {
    folders: Folders,
    one: Program,
    other: Program,
}

impl ReplicaPair {
    async fn start(url: &str, environment: &[(&str, &str)]) -> Self {
        let folders = Folders::new(2);
        let (_service, service_url) = CountingService::start().await;
        let start = |replica| {
            let more = format!(
                "[limits.address]\nrequests_per_minute = 60000\n\n{}",
                source(&service_url, replica, 1)
            );
            let path = folders.config(replica, url, &more);
            if !environment.iter().any(|(name, _)| *name == PASSWORD) {
                return Program::serve_in(&["--config", path.to_str().unwrap()], environment);
            }
            let config = std::fs::read_to_string(&path).unwrap();
            let with_password = format!("[cluster]\npassword_env = \"{PASSWORD}\"\n");
            std::fs::write(&path, config.replace("[cluster]\n", &with_password)).unwrap();
            Program::serve_in(&["--config", path.to_str().unwrap()], environment)
        };
        let [one, other] = [start(0), start(1)];
        for program in [&one, &other] {
            connected(program).await;
        }
        Self { folders, one, other }
    }

    /// Changes, sessions, leases and rates pass through Redis.
    async fn share_everything(&self) {
        let Self { one, other, .. } = self;
        self.share_changes("once").await;
        let session = Session::open(one, None).await;
        session.subscribe(one, &crate::replicas::uri(0)).await;
        // The first attempt may come before the connection for queries is open.
        eventually("the session is restored", async || session.status_of_list(other).await == 200).await;
        eventually("one of them polls", async || {
            one.metric("cluster_polled_sources").await + other.metric("cluster_polled_sources").await == 1
        })
        .await;
        eventually("rates are shared", async || {
            one.metric("cluster_requests_elsewhere_total").await > 0
                && other.metric("cluster_requests_elsewhere_total").await > 0
        })
        .await;
        for program in [one, other] {
            eventually("it is connected", async || program.metric("cluster_connected").await == 1).await;
        }
    }

    async fn share_changes(&self, text: &str) {
        let before = self.other.metric("cluster_received_total").await;
        self.folders.write(0, 0, text);
        eventually("the change arrives", async || self.other.metric("cluster_received_total").await > before)
            .await;
    }
}

/// The environment variable with the password.
const PASSWORD: &str = "LIBRIS_TEST_REDIS_PASSWORD";

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_password_and_a_unix_socket() {
    let settings = |port: u16, folder: &Path| {
        let socket = folder.join("redis.sock");
        format!("{VOLATILE}port {port}\nrequirepass secret\nunixsocket {}\n", socket.display())
    };
    let redis = RedisNode::start(settings, &["-a", "secret", "--no-auth-warning"]).await;
    let url = format!("redis://127.0.0.1:{}", redis.port);
    ReplicaPair::start(&url, &[(PASSWORD, "secret")]).await.share_everything().await;
    let folders = Folders::new(1);
    let socket = format!("redis+unix://{}?pass=secret", redis.folder.path().join("redis.sock").display());
    folders.start(0, &socket).await;
    // A wrong password is named as the reason.
    let url = format!("redis://:wrong@127.0.0.1:{}", redis.port);
    let refused = crate::replicas::start(&folders.config(1, &url, ""));
    let client = Client::connect(&refused, Era::Modern, &[]).await;
    eventually("the reason is given", async || {
        cluster_status(&client).await["reason"] == "Redis refused the user or the password"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_tls() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let settings = |port: u16, folder: &Path| {
        let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
        std::fs::write(&certificate, certified.cert.pem()).unwrap();
        std::fs::write(&key, certified.signing_key.serialize_pem()).unwrap();
        let (certificate, key) = (certificate.display(), key.display());
        format!(
            "{VOLATILE}port 0\ntls-port {port}\ntls-cert-file {certificate}\ntls-key-file {key}\n\
             tls-ca-cert-file {certificate}\ntls-auth-clients no\n"
        )
    };
    let redis = RedisNode::start(settings, &["--tls", "--insecure"]).await;
    let url = format!("rediss://localhost:{}", redis.port);
    let certificate = redis.folder.path().join("certificate.pem");
    let trusted = [("SSL_CERT_FILE", certificate.to_str().unwrap())];
    ReplicaPair::start(&url, &trusted).await.share_everything().await;
    // A certificate that nobody vouches for is refused.
    let folders = Folders::new(1);
    let stranger = crate::replicas::start(&folders.config(0, &url, ""));
    let readiness = stranger.url.replace("/mcp", "/readyz");
    eventually("it is degraded", async || {
        reqwest::get(&readiness).await.unwrap().text().await.unwrap().contains("degraded")
    })
    .await;
    assert_eq!(stranger.metric("cluster_connected").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_sentinels_name_the_master_and_the_next_one_when_it_dies() {
    let cli = ["-a", "secret", "--no-auth-warning"];
    let common = format!("{VOLATILE}requirepass secret\nmasterauth secret\n");
    let master = RedisNode::start(|port, _| format!("{common}port {port}\n"), &cli).await;
    let of_master = format!("{common}replicaof 127.0.0.1 {}\n", master.port);
    let replica = RedisNode::start(|port, _| format!("{of_master}port {port}\n"), &cli).await;
    eventually("the replica follows the master", async || {
        replica.command(&["INFO", "replication"]).contains("master_link_status:up")
    })
    .await;
    let monitored = format!(
        "sentinel monitor shelf 127.0.0.1 {} 1\nsentinel auth-pass shelf secret\n\
         sentinel down-after-milliseconds shelf 2000\nsentinel failover-timeout shelf 5000\n",
        master.port
    );
    let sentinel = RedisNode::run(|port, _| format!("port {port}\n{monitored}"), &[], &["--sentinel"]).await;
    eventually("the Sentinel knows the replica", async || {
        sentinel.command(&["SENTINEL", "REPLICAS", "shelf"]).contains(&replica.port.to_string())
    })
    .await;
    // The first of the Sentinels does not answer: its queue of connections is never read.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let unanswered = silent.local_addr().unwrap();
    let url = format!("redis+sentinel://:secret@{unanswered},127.0.0.1:{}/shelf", sentinel.port);
    let replicas = ReplicaPair::start(&url, &[]).await;
    replicas.share_everything().await;
    drop(master);
    eventually("the replica is the master", async || {
        replica.command(&["INFO", "replication"]).contains("role:master")
    })
    .await;
    for program in [&replicas.one, &replicas.other] {
        eventually("the replicas are connected to it", async || {
            program.metric("cluster_reconnections_total").await > 0
                && program.metric("cluster_connected").await == 1
        })
        .await;
        // The last changes may not have reached the new master.
        assert!(program.metric("cluster_lost_total").await > 0);
    }
    replicas.share_changes("at the new master").await;
}

/// The nodes of a Redis Cluster, of which the first three are primaries.
async fn start_cluster(count: usize) -> Vec<RedisNode> {
    let settings = |port: u16, _: &Path| {
        // By default the port of the cluster bus is higher by 10,000, which may be none.
        let bus = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        format!(
            "{VOLATILE}port {port}\ncluster-enabled yes\ncluster-port {bus}\ncluster-node-timeout 2000\n\
             repl-diskless-sync-delay 0\n"
        )
    };
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(RedisNode::start(settings, &[]).await);
    }
    for (node, (first, last)) in nodes.iter().zip([("0", "5460"), ("5461", "10922"), ("10923", "16383")]) {
        assert_eq!(node.command(&["CLUSTER", "ADDSLOTSRANGE", first, last]), "OK");
    }
    for other in &nodes[1..] {
        let bus = other.command(&["CONFIG", "GET", "cluster-port"]);
        let bus = bus.lines().last().unwrap();
        assert_eq!(nodes[0].command(&["CLUSTER", "MEET", "127.0.0.1", &other.port.to_string(), bus]), "OK");
    }
    for node in &nodes {
        eventually("the cluster is complete", async || {
            let info = node.command(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains(&format!("cluster_known_nodes:{count}"))
        })
        .await;
    }
    nodes
}

/// The index of the primary that holds all keys.
fn holder_of_keys(nodes: &[RedisNode]) -> usize {
    match nodes[0].command(&["CLUSTER", "KEYSLOT", "{libris}:changes"]).parse::<u16>().unwrap() {
        ..=5460 => 0,
        5461..=10922 => 1,
        _ => 2,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_a_redis_cluster() {
    let nodes = start_cluster(3).await;
    let holds_keys = |node: &&RedisNode| node.command(&["DBSIZE"]) != "0";
    // The node that the URL names is not the one with the keys.
    let named = &nodes[(holder_of_keys(&nodes) + 1) % 3];
    let url = format!("redis+cluster://127.0.0.1:{}", named.port);
    ReplicaPair::start(&url, &[]).await.share_everything().await;
    assert_eq!(nodes.iter().filter(holds_keys).count(), 1, "all keys are in one slot");
    assert!(!holds_keys(&named));
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_the_failover_of_a_node_of_a_redis_cluster_counts_as_lost_changes() {
    let mut nodes = start_cluster(4).await;
    let holder = holder_of_keys(&nodes);
    let id = nodes[holder].command(&["CLUSTER", "MYID"]);
    let standby = nodes.pop().unwrap();
    eventually("it is the standby of the node with the keys", async || {
        standby.command(&["CLUSTER", "REPLICATE", &id]) == "OK"
            && standby.command(&["INFO", "replication"]).contains("master_link_status:up")
    })
    .await;
    let url = format!("redis+cluster://127.0.0.1:{}", nodes[(holder + 1) % 3].port);
    let replicas = ReplicaPair::start(&url, &[]).await;
    replicas.share_everything().await;
    drop(nodes.remove(holder));
    eventually("the standby is the primary", async || {
        standby.command(&["INFO", "replication"]).contains("role:master")
    })
    .await;
    for program in [&replicas.one, &replicas.other] {
        // The last changes may not have reached the standby.
        eventually("it notifies of everything", async || program.metric("cluster_lost_total").await > 0)
            .await;
        eventually("it is connected", async || program.metric("cluster_connected").await == 1).await;
    }
    replicas.share_changes("at the new primary").await;
}
