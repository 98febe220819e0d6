//! The stdio transport, over pipes.

mod limits;
mod shutdown;
#[path = "../support/mod.rs"]
mod support;

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use libris_wire::{Limits, stdio};
use serde_json::{Value, json};
use support::{Toy, initialize, modern, request};
use tokio_util::sync::CancellationToken;

/// A client and the server it talks to.
struct Client {
    input: PipeWriter,
    output: BufReader<PipeReader>,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Client {
    fn connect(toy: &Arc<Toy>, limits: Limits) -> Self {
        let (server_input, input) = std::io::pipe().unwrap();
        let (output, server_output) = std::io::pipe().unwrap();
        let server = tokio::spawn(stdio::serve(
            toy.clone(),
            limits,
            server_input,
            server_output,
            CancellationToken::new(),
        ));
        Self { input, output: BufReader::new(output), server }
    }

    fn send(&mut self, message: &Value) {
        self.send_raw(message.to_string().as_bytes());
    }

    fn send_raw(&mut self, line: &[u8]) {
        self.input.write_all(line).unwrap();
        self.input.write_all(b"\n").unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|cause| panic!("{cause}: {line:?}"))
    }

    /// The id of a response, without parsing all of it.
    fn receive_id(&mut self) -> u32 {
        let mut line = Vec::new();
        self.output.read_until(b'\n', &mut line).unwrap();
        let head = std::str::from_utf8(&line[..40]).unwrap();
        let (id, _) = head.strip_prefix("{\"jsonrpc\":\"2.0\",\"id\":").unwrap().split_once(',').unwrap();
        id.parse().unwrap()
    }

    fn ask(&mut self, message: &Value) -> Value {
        self.send(message);
        self.receive()
    }
}

/// Runs a test with blocking pipe I/O on a thread, concurrently with the server.
async fn drive(limits: Limits, test: impl FnOnce(&mut Client, &Toy) + Send + 'static) {
    let toy = Toy::new();
    let mut client = Client::connect(&toy, limits);
    let server = tokio::task::spawn_blocking(move || {
        test(&mut client, &toy);
        // Dropping the pipes ends the server's input.
        client.server
    });
    server.await.unwrap().await.unwrap().unwrap();
}

/// The clock is paused: it advances only when the test says so, since the test runs on a blocking thread.
#[tokio::test(start_paused = true)]
async fn requests_before_the_end_of_the_input_are_answered() {
    drive(Limits::default(), |client, toy| {
        client.send(&modern(1, "resources/read", json!({ "uri": "toy:wait" })));
        let listen = json!({ "notifications": { "resourcesListChanged": true } });
        client.send(&modern(2, "subscriptions/listen", listen));
        client.receive();
        // Dropped, which ends the input.
        client.input = std::io::pipe().unwrap().1;
        // The stream ends as soon as the server has seen the end.
        assert_eq!(client.receive()["id"], 2);
        // Longer than a server that is stopped waits.
        let later = tokio::time::advance(Duration::from_secs(20));
        tokio::runtime::Handle::current().block_on(later);
        toy.go.notify_one();
        assert_eq!(client.receive()["id"], 1);
        // Without a blocking thread of the runtime, a paused clock would jump while the server waits for its writer.
        tokio::time::resume();
    })
    .await;
}

fn code(answer: &Value) -> (i64, Value) {
    (answer["error"]["code"].as_i64().unwrap_or_default(), answer["id"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_eras_are_served_in_one_process() {
    drive(Limits::default(), |client, _| {
        let list = modern(1, "resources/list", json!({}));
        assert_eq!(client.ask(&list)["result"]["resultType"], "complete");
        assert_eq!(code(&client.ask(&request(2, "resources/list", json!({})))), (-32602, json!(2)));
        for date in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            let answer = client.ask(&initialize(date));
            assert_eq!(answer["result"]["protocolVersion"], date);
            let list = client.ask(&request(3, "resources/list", json!({})));
            assert_eq!(list["result"], json!({ "resources": [], "nextCursor": "first" }));
        }
        assert_eq!(client.ask(&list)["result"]["ttlMs"], 0);
        assert_eq!(client.ask(&initialize("2026-07-28"))["result"]["protocolVersion"], "2025-11-25");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn not_found_has_the_code_of_the_revision() {
    drive(Limits::default(), |client, _| {
        let read = |id| request(id, "resources/read", json!({ "uri": "toy:nowhere" }));
        client.ask(&initialize("2025-06-18"));
        let answer = client.ask(&read(1));
        assert_eq!(answer["error"]["data"], json!({ "uri": "toy:nowhere" }));
        assert_eq!(code(&answer), (-32002, json!(1)));
        let answer = client.ask(&modern(2, "resources/read", json!({ "uri": "toy:nowhere" })));
        assert_eq!(answer["error"]["data"], json!({ "uri": "toy:nowhere" }));
        assert_eq!(code(&answer), (-32602, json!(2)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_answered_and_the_next_request_too() {
    let limits = Limits { message: 1 << 20, ..Limits::default() };
    drive(limits, |client, _| {
        let ping = request(9, "ping", json!({}));
        let garbage: Vec<u8> = (0..=255).filter(|&byte| byte != b'\n').collect();
        for line in [&b"{"[..], b"nonsense", &garbage, b"{\"jsonrpc\":\"2.0\",", b"\xff\xfe{}"] {
            client.send_raw(line);
            assert_eq!(code(&client.receive()), (-32700, Value::Null), "{line:?}");
            assert_eq!(client.ask(&ping)["result"], json!({}));
        }
        for (line, expected) in [
            ("1", (-32600, Value::Null)),
            ("[]", (-32600, Value::Null)),
            ("[{}]", (-32600, Value::Null)),
            (r#"{"jsonrpc":"2.0","id":null,"method":7}"#, (-32600, Value::Null)),
            (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, (-32600, Value::Null)),
            (r#"{"jsonrpc":"2.0","id":5,"method":"ping","params":"x"}"#, (-32600, json!(5))),
            (r#"{"jsonrpc":"2.0","id":6,"method":"no/such","params":{}}"#, (-32602, json!(6))),
        ] {
            client.send_raw(line.as_bytes());
            assert_eq!(code(&client.receive()), expected, "{line}");
        }
        client.ask(&initialize("2025-06-18"));
        assert_eq!(code(&client.ask(&request(7, "no/such", json!({})))), (-32601, json!(7)));
        assert_eq!(code(&client.ask(&request(8, "resources/read", json!({})))), (-32602, json!(8)));
        let number = request(8, "resources/read", json!({ "uri": 1 }));
        assert_eq!(code(&client.ask(&number)), (-32602, json!(8)));
        let huge = format!(r#"{{"jsonrpc":"2.0","id":{},"method":"ping"}}"#, "9".repeat(500));
        client.send_raw(huge.as_bytes());
        let mut line = String::new();
        client.output.read_line(&mut line).unwrap();
        assert!(line.contains(&format!("\"id\":{}", "9".repeat(500))));
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"ping"}}"#, "x".repeat(5000));
        client.send_raw(long.as_bytes());
        assert_eq!(code(&client.receive()), (-32600, Value::Null));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_100_mib_is_refused_without_being_kept() {
    drive(Limits::default(), |client, _| {
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..100 {
            client.input.write_all(&piece).unwrap();
        }
        client.send_raw(b"");
        assert_eq!(code(&client.receive()), (-32600, Value::Null));
        assert_eq!(client.ask(&request(1, "ping", json!({})))["id"], 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_for_their_turn_can_be_taken_back() {
    let limits = Limits { in_flight: 2, ..Limits::default() };
    drive(limits, |client, toy| {
        client.ask(&initialize("2025-11-25"));
        for id in 1..=10 {
            client.send(&request(id, "resources/read", json!({ "uri": "toy:wait" })));
        }
        assert_eq!(client.ask(&request(11, "ping", json!({})))["id"], 11);
        assert_eq!(toy.begun.load(Ordering::SeqCst), 2);
        // The waiting requests first: otherwise they would start.
        for id in (1..=9).rev() {
            let params = json!({ "requestId": id });
            client.send(&json!({
                "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params,
            }));
        }
        while toy.begun.load(Ordering::SeqCst) < 3 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        toy.go.notify_one();
        assert_eq!(client.receive()["id"], 10);
        assert_eq!(toy.begun.load(Ordering::SeqCst), 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_request_is_not_answered() {
    drive(Limits::default(), |client, toy| {
        client.ask(&initialize("2025-11-25"));
        client.send(&request(1, "resources/read", json!({ "uri": "toy:wait" })));
        client.send(&request(2, "ping", json!({})));
        assert_eq!(client.receive()["id"], 2);
        let cancelled = json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 },
        });
        client.send(&cancelled);
        assert_eq!(client.ask(&request(3, "ping", json!({})))["id"], 3);
        while toy.ended.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(client.ask(&request(4, "ping", json!({})))["id"], 4);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_before_the_answer() {
    drive(Limits::default(), |client, toy| {
        client.ask(&initialize("2025-11-25"));
        let params = json!({ "uri": "toy:progress", "_meta": { "progressToken": "p" } });
        let progress = client.ask(&request(1, "resources/read", params));
        assert_eq!(progress["params"], json!({ "progressToken": "p", "progress": 1, "total": 2 }));
        toy.go.notify_one();
        assert_eq!(client.receive()["id"], 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_are_of_one_revision() {
    let batch = json!([
        request(1, "ping", json!({})),
        { "jsonrpc": "2.0", "method": "notifications/initialized" },
        { "jsonrpc": "2.0", "id": 2 },
        request(3, "no/such", json!({})),
        initialize("2025-03-26"),
    ]);
    drive(Limits::default(), move |client, _| {
        client.ask(&initialize("2025-03-26"));
        let answer = client.ask(&batch);
        let codes: Vec<_> = answer.as_array().unwrap().iter().map(code).collect();
        assert_eq!(codes, [(0, json!(1)), (-32600, json!(2)), (-32601, json!(3)), (-32600, json!(0))]);
        let subscribe = json!([request(5, "resources/subscribe", json!({ "uri": "toy:a" }))]);
        assert_eq!(client.ask(&subscribe)[0]["result"], json!({}));
        let silent = json!([{ "jsonrpc": "2.0", "method": "notifications/initialized" }]);
        client.send(&silent);
        assert_eq!(client.ask(&request(4, "ping", json!({})))["id"], 4);
        client.ask(&initialize("2025-06-18"));
        assert_eq!(code(&client.ask(&batch)), (-32600, Value::Null));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_flight_when_the_input_ends_is_answered() {
    let toy = Toy::new();
    let mut client = Client::connect(&toy, Limits::default());
    client.send(&modern(1, "resources/read", json!({ "uri": "toy:wait" })));
    while toy.begun.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let Client { input, mut output, server } = client;
    drop(input);
    toy.go.notify_one();
    server.await.unwrap().unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(answer["result"]["contents"][0]["text"], "waited");
}

fn note(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_hears_of_what_it_subscribed_to() {
    drive(Limits::default(), |client, toy| {
        client.ask(&initialize("2024-11-05"));
        client.send(&note("notifications/initialized", json!({})));
        let subscribe = |id, uri: &str| request(id, "resources/subscribe", json!({ "uri": uri }));
        assert_eq!(client.ask(&subscribe(1, "toy:a"))["result"], json!({}));
        assert_eq!(code(&client.ask(&subscribe(2, "other:a"))), (-32002, json!(2)));
        toy.update("toy:b");
        toy.update("toy:a");
        assert_eq!(client.receive(), note("notifications/resources/updated", json!({ "uri": "toy:a" })));
        while toy.following() == 0 {
            std::thread::yield_now();
        }
        toy.relist();
        let list = json!({ "jsonrpc": "2.0", "method": "notifications/resources/list_changed" });
        assert_eq!(client.receive(), list);
        client.ask(&request(3, "resources/unsubscribe", json!({ "uri": "toy:a" })));
        toy.update("toy:a");
        assert_eq!(client.ask(&request(4, "ping", json!({})))["id"], 4);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_handshake_ends_the_first_session() {
    drive(Limits::default(), |client, toy| {
        for _ in 0..2 {
            client.ask(&initialize("2025-06-18"));
            client.ask(&request(1, "resources/subscribe", json!({ "uri": "toy:a" })));
        }
        while toy.listening() > 1 {
            std::thread::yield_now();
        }
        toy.update("toy:a");
        assert_eq!(client.receive()["method"], "notifications/resources/updated");
        assert_eq!(client.ask(&request(2, "ping", json!({})))["id"], 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_listen_streams_share_the_channel() {
    drive(Limits::default(), |client, toy| {
        let listen =
            |id, notifications| modern(id, "subscriptions/listen", json!({ "notifications": notifications }));
        let tagged = |id: u32, mut params: Value| {
            params["_meta"] = json!({ "io.modelcontextprotocol/subscriptionId": id });
            params
        };
        let wanted = json!({ "resourceSubscriptions": ["toy:a", "other:b"], "toolsListChanged": true });
        let granted = json!({ "notifications": { "resourceSubscriptions": ["toy:a"] } });
        let acknowledged = "notifications/subscriptions/acknowledged";
        assert_eq!(client.ask(&listen(1, wanted)), note(acknowledged, tagged(1, granted)));
        let granted = json!({ "notifications": { "resourcesListChanged": true } });
        let answer = client.ask(&listen(2, json!({ "resourcesListChanged": true })));
        assert_eq!(answer, note(acknowledged, tagged(2, granted)));
        toy.update("toy:a");
        let updated = note("notifications/resources/updated", tagged(1, json!({ "uri": "toy:a" })));
        assert_eq!(client.receive(), updated);
        toy.relist();
        let relisted = note("notifications/resources/list_changed", tagged(2, json!({})));
        assert_eq!(client.receive(), relisted);

        assert_eq!(code(&client.ask(&listen(2, json!({})))), (-32600, json!(2)), "its id is in use");
        client.send(&note("notifications/cancelled", json!({ "requestId": 1 })));
        while toy.listening() > 1 {
            std::thread::yield_now();
        }
        toy.update("toy:a");
        toy.relist();
        assert_eq!(client.receive(), relisted);
        assert_eq!(code(&client.ask(&modern(3, "subscriptions/listen", json!({})))), (-32602, json!(3)));
        for id in 10..73 {
            client.ask(&listen(id, json!({})));
        }
        assert_eq!(code(&client.ask(&listen(99, json!({})))), (-32603, json!(99)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_answer_is_the_same_however_often_it_is_written() {
    drive(Limits::default(), |client, toy| {
        for letter in ["a", "b"] {
            let members = format!("\"contents\":[{{\"text\":\"{}\"}}]", letter.repeat(1_500_000));
            *toy.large.lock().unwrap() = Some(members.into_bytes().into());
            for id in 0..20 {
                for uri in ["toy:kept/large", "toy:kept/small"] {
                    client.send(&modern(id, "resources/read", json!({ "uri": uri })));
                }
            }
            for id in 0..20 {
                let large = client.receive();
                assert_eq!(large["id"], id);
                let text = large["result"]["contents"][0]["text"].as_str().unwrap();
                assert!(text.len() == 1_500_000 && text.matches(letter).count() == text.len());
                assert_eq!(client.receive()["result"]["contents"][0]["text"], "kept");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listen_streams_end_with_their_result() {
    let toy = Toy::new();
    let (server_input, mut input) = std::io::pipe().unwrap();
    let (output, server_output) = std::io::pipe().unwrap();
    let stop = CancellationToken::new();
    let server =
        tokio::spawn(stdio::serve(toy.clone(), Limits::default(), server_input, server_output, stop.clone()));
    let listen = modern(1, "subscriptions/listen", json!({ "notifications": {} }));
    writeln!(input, "{listen}").unwrap();
    while toy.listening() == 0 {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    server.await.unwrap().unwrap();
    let lines: Vec<Value> = BufReader::new(output)
        .lines()
        .take(2)
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    let meta = json!({ "io.modelcontextprotocol/subscriptionId": 1 });
    assert_eq!(lines[1]["result"], json!({ "resultType": "complete", "_meta": meta }));
    drop(input);
}
