//! The contract suite through a load balancer: nginx in front of three replicas, without sticky sessions.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use libris_remote::{ProtocolChoice, Remote, RemoteConfig, RemoteLimits, RemoteTarget};
use tokio::net::TcpStream;

use crate::client::{DEADLINE, Program};
use crate::replicas::{Redis, connected, start};
use crate::upstream::{FILES, Upstream, check};

/// nginx, until this is dropped.
pub(crate) struct Balancer {
    process: Child,
    pub(crate) url: String,
}

impl Balancer {
    /// Starts nginx in front of these replicas; its files are in this folder.
    pub(crate) async fn start(folder: &Path, replicas: &[&Program]) -> Self {
        for _ in 0..10 {
            // Another program may take the port before nginx does.
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let config = folder.join("nginx.conf");
            std::fs::write(&config, nginx_config(folder, port, replicas)).unwrap();
            let process = nginx_command(folder)
                .arg("-c")
                .arg(&config)
                .stdin(Stdio::null())
                .spawn()
                .expect("nginx starts");
            let mut balancer = Self { process, url: format!("http://127.0.0.1:{port}/mcp") };
            if balancer.accepts(port).await {
                return balancer;
            }
        }
        panic!("nginx does not start");
    }

    /// Waits until it accepts connections; false if it has ended.
    async fn accepts(&mut self, port: u16) -> bool {
        let accepting = async {
            while self.process.try_wait().unwrap().is_none() {
                if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            false
        };
        tokio::time::timeout(DEADLINE, accepting).await.unwrap()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        // One process, which has no workers that would survive it.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// nginx with its files in this folder.
fn nginx_command(folder: &Path) -> Command {
    // The `PATH` of unprivileged users often lacks this folder.
    let installed = "/usr/sbin/nginx";
    let mut command = Command::new(if Path::new(installed).exists() { installed } else { "nginx" });
    command.arg("-p").arg(folder).args(["-e", "stderr"]);
    command
}

fn nginx_config(folder: &Path, port: u16, replicas: &[&Program]) -> String {
    let folder = folder.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String = kinds.map(|kind| format!("{kind}_temp_path {folder}/{kind};\n")).concat();
    let host = |program: &Program| {
        let host = program.url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/mcp"));
        format!("server {};\n", host.unwrap())
    };
    let servers: String = replicas.iter().map(|program| host(program)).collect();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log stderr crit;\nevents {{ worker_connections 4096; }}\n\
         http {{\naccess_log off;\n{temporary}upstream libris {{\n{servers}}}\n\
         server {{\nlisten 127.0.0.1:{port};\nlocation / {{\nproxy_pass http://libris;\n\
         proxy_http_version 1.1;\nproxy_set_header Connection \"\";\nproxy_set_header Host $host;\n\
         proxy_set_header X-Forwarded-For $remote_addr;\n\
         proxy_buffering off;\nproxy_read_timeout 75s;\n}}\n}}\n}}\n"
    )
}

async fn check_through_balancer(protocol: ProtocolChoice) {
    let redis = Redis::start().await;
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in FILES {
        let path = folder.path().join("library").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let config = folder.path().join("libris.toml");
    let redis_table = format!("[cluster]\nredis = \"{}\"\n", redis.url());
    std::fs::write(&config, format!("{redis_table}[[files]]\npath = \"library\"\n")).unwrap();
    let replicas: Vec<_> = (0..3).map(|_| start(&config)).collect();
    for program in &replicas {
        connected(program).await;
    }
    let state = folder.path().join("nginx");
    std::fs::create_dir(&state).unwrap();
    let balancer = Balancer::start(&state, &replicas.iter().collect::<Vec<_>>()).await;
    let target =
        RemoteTarget::Http { url: balancer.url.clone(), token: None, headers: BTreeMap::new(), stored: None };
    let limits = RemoteLimits { retry: Duration::from_millis(50), ..RemoteLimits::default() };
    let config = RemoteConfig { protocol, limits, ..RemoteConfig::new("library", target) };
    let source = Arc::new(Remote::new(config).unwrap());
    let servers = (balancer, replicas, redis);
    check(&Upstream::new(folder, source, "file:///library/", servers).await).await;
}

/// The example for containers, with the names and paths of this machine.
#[test]
fn needs_nginx_the_example_is_valid() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let read = |name: &str| std::fs::read_to_string(examples.join("cluster").join(name)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let compose = read("compose.yaml");
    for mounted in [
        "./libris.toml:/etc/libris/libris.toml:ro",
        "../handbook:/srv/handbook:ro",
        "./nginx.conf:/etc/nginx/nginx.conf:ro",
    ] {
        assert!(compose.contains(mounted), "{mounted}");
    }
    let config = read("libris.toml");
    assert!(config.contains("\"/srv/handbook\"") && config.contains("redis://redis"), "{config}");
    let handbook = examples.join("handbook");
    let config = config.replace("/srv/handbook", handbook.to_str().unwrap());
    std::fs::write(folder.path().join("libris.toml"), config).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_libris"));
    let checked = check.arg("check").arg("--config").arg(folder.path().join("libris.toml")).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    let port = compose.split("\"8080:").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let nginx = read("nginx.conf");
    assert!(nginx.contains("server libris:4747 ") && nginx.contains(&format!("listen {port};")));
    assert!(compose.contains("0.0.0.0:4747"));
    let nginx = nginx.replace("server libris:4747", "server 127.0.0.1:4747");
    let written = folder.path().join("nginx.conf");
    // Its temporary files and process id are not part of the example.
    std::fs::write(&written, format!("pid {}/nginx.pid;\n{nginx}", folder.path().display())).unwrap();
    let tested = nginx_command(folder.path()).args(["-t", "-c"]).arg(&written).output().unwrap();
    assert!(tested.status.success(), "{tested:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_needs_nginx_modern_clients_find_one_server_behind_the_balancer() {
    check_through_balancer(ProtocolChoice::Auto).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_redis_needs_nginx_legacy_clients_find_one_server_behind_the_balancer() {
    check_through_balancer(ProtocolChoice::Initialize).await;
}
