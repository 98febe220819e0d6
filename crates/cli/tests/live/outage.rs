//! Sources of every kind, of which a database is stopped and an HTTP API hangs.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Client, Era, Program, eventually};
use crate::database::execute;
use crate::server::Server;
use crate::storms::git;

const STATUS: &str = "libris://status";

/// An HTTP API that accepts connections, and responds on those opened while it does not hang.
fn api(hangs: &Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let hangs = hangs.clone();
    std::thread::spawn(move || {
        let mut hung = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            match hangs.load(Ordering::SeqCst) {
                true => hung.push(stream),
                false => drop(std::thread::spawn(move || answer(stream))),
            }
        }
    });
    url
}

fn answer(mut stream: TcpStream) {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(count) => head.extend_from_slice(&bytes[..count]),
        }
    }
    let body = r#"["paris","lima"]"#;
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
}

/// The schemes of all listed resources, and the sources that the result reports as missing.
async fn listed(client: &Client) -> (BTreeSet<String>, Vec<(String, bool)>) {
    let answer = client.ask("resources/list", json!({})).await;
    let result = &answer["result"];
    assert!(result["nextCursor"].is_null(), "{answer}");
    let scheme = |resource: &Value| resource["uri"].as_str().unwrap().split_once(':').unwrap().0.to_owned();
    let schemes =
        result["resources"].as_array().unwrap_or_else(|| panic!("{answer}")).iter().map(scheme).collect();
    let missing = result["_meta"]["dev.libris/unavailable"].as_array().into_iter().flatten().map(|missing| {
        assert!(missing["since"].as_str().unwrap().ends_with('Z'), "{missing}");
        (missing["source"].as_str().unwrap().to_owned(), missing["stale"].as_bool().unwrap())
    });
    let missing: Vec<_> = missing.collect();
    if !missing.is_empty() && result["resultType"].is_string() {
        assert_eq!((&result["ttlMs"], &result["cacheScope"]), (&json!(0), &json!("private")), "{answer}");
        assert!(result["_meta"]["io.modelcontextprotocol/serverInfo"].is_object(), "{answer}");
    }
    (schemes, missing)
}

fn schemes<const N: usize>(of: [&str; N]) -> BTreeSet<String> {
    of.map(str::to_owned).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_outlasts_its_sources_needs_postgres() {
    let postgres = tokio::task::spawn_blocking(Server::postgres).await.unwrap();
    let hangs = Arc::new(AtomicBool::new(true));
    let api = api(&hangs);
    let folder = tempfile::tempdir().unwrap();
    let docs = folder.path().join("docs");
    std::fs::create_dir(&docs).unwrap();
    std::fs::write(docs.join("a.md"), "# A").unwrap();
    git(&docs, &["init", "-q"]);
    git(&docs, &["add", "."]);
    git(&docs, &["commit", "-qm", "first"]);
    let database = folder.path().join("shop.db");
    std::fs::write(&database, "").unwrap();
    execute(&database, "CREATE TABLE t (id INTEGER PRIMARY KEY, v)").await;
    // With instructions, so that connecting lists nothing: the outage is to begin after the clients have subscribed.
    let config = format!(
        "[server]\nsource_timeout = \"1s\"\ninstructions = \"Ask.\"\n[[files]]\npath = \"docs\"\n[[git]]\npath = \"docs\"\n\
         [[sql]]\nurl = \"sqlite:shop.db\"\n[[sql]]\nurl = \"{}\"\nname = \"orders\"\n\
         [[http]]\nname = \"weather\"\nbase = \"{api}\"\nlimits = {{ allow_private = true }}\n\
         [[http.template]]\nuri = \"weather://station/{{id}}\"\nurl = \"stations/{{id}}\"\n\
         list = {{ url = \"stations\", values = {{ id = \"\" }} }}\n",
        postgres.url("postgres"),
    );
    let file = folder.path().join("libris.toml");
    std::fs::write(&file, config).unwrap();
    let program = Program::serve(&["--config", file.to_str().unwrap()]);
    let status = [STATUS.to_owned()];
    let clients = [
        Client::connect(&program, Era::Legacy, &status).await,
        Client::connect(&program, Era::Modern, &status).await,
    ];

    // The API hangs from the start, so there is no last known list of it.
    let begun = Instant::now();
    let first = listed(&clients[0]).await;
    let took = begun.elapsed();
    let others = schemes(["file", "git", "libris", "postgres", "sqlite"]);
    assert_eq!(first, (others.clone(), vec![("http weather".to_owned(), false)]));
    assert!(took < Duration::from_secs(15), "{took:?}");
    for client in &clients {
        eventually("the status is told", async || client.heard_of().contains(STATUS)).await;
    }

    // The database is stopped. Its last known resources are listed and marked as stale.
    let stopped = tokio::task::spawn_blocking(|| postgres.stop()).await.unwrap();
    let missing = vec![("postgres orders".to_owned(), true), ("http weather".to_owned(), false)];
    for client in &clients {
        eventually("the database is missing", async || {
            listed(client).await == (others.clone(), missing.clone())
        })
        .await;
    }
    let answer = clients[0].ask("resources/read", json!({ "uri": "postgres://orders/schema" })).await;
    let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(message.starts_with("`postgres orders` is unavailable since 20"), "{message}");
    assert!(
        message.ends_with("; try again later; `libris://status` has the state of the sources"),
        "{message}"
    );
    let told = clients[1].read(STATUS).await.unwrap()[0]["text"].as_str().unwrap().to_owned();
    assert!(told.contains("2 of 5 sources are unavailable.\n"), "{told}");
    assert!(told.contains("| http weather | unavailable since 20"), "{told}");
    assert_eq!((program.metric("sources").await, program.metric("sources_unavailable").await), (5, 2));
    assert_eq!(program.said("a source is unavailable"), 2, "each once");
    clients.iter().for_each(|client| drop((client.heard_of(), client.heard_of_list())));

    // Both sources recover, and all clients are notified.
    hangs.store(false, Ordering::SeqCst);
    let _postgres = tokio::task::spawn_blocking(|| stopped.start()).await.unwrap();
    let all = schemes(["file", "git", "libris", "postgres", "sqlite", "weather"]);
    for client in &clients {
        eventually("all are back", async || listed(client).await == (all.clone(), Vec::new())).await;
        eventually("the list is told as changed", async || client.heard_of_list()).await;
        eventually("the status is told again", async || client.heard_of().contains(STATUS)).await;
    }
    assert_eq!(program.metric("sources_unavailable").await, 0);
    eventually("the log tells", async || program.said("a source is available again") == 2).await;
    assert_eq!(program.said("a source is unavailable"), 2, "and nothing more");
    let json =
        clients[0].read("libris://status?as=json").await.unwrap()[0]["text"].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["unavailable"], 0, "{json}");
}
