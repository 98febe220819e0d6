//! A server over stdio that misbehaves in one way.

use std::io::{BufRead as _, Write as _};

use serde_json::{Value, json};

/// Answers requests until its input ends.
pub(crate) fn run(how: &str) {
    let mut output = std::io::stdout().lock();
    // Ends the line in which the test harness may have named the test.
    writeln!(output).unwrap();
    if how == "some garbage" {
        write!(output, "Listening on nothing\n\n{{}}\n[1]\n\u{1b}[31mhello\u{1b}[0m\n").unwrap();
    }
    if how.starts_with("slow start") {
        // Longer than the time after which rmcp gives up `server/discover`.
        std::thread::sleep(std::time::Duration::from_secs(12));
    }
    for line in std::io::stdin().lock().lines() {
        let Ok(request) = serde_json::from_str::<Value>(&line.unwrap()) else { return };
        let (method, params) = (request["method"].as_str().unwrap_or_default(), &request["params"]);
        let id = request["id"].clone();
        if id.is_null() || method.is_empty() {
            continue;
        }
        if how == "mute" {
            continue;
        }
        let is_bad = params["uri"] == "odd://bad";
        if method == "resources/read" && is_bad && misbehave(how, &id, &mut output) {
            continue;
        }
        if how == "talkative" && method.starts_with("resources/") {
            let sampling = json!({ "jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage", "params": { "messages": [], "maxTokens": 1 } });
            let stranger = json!({ "jsonrpc": "2.0", "id": 123_456, "result": {} });
            let unknown = json!({ "jsonrpc": "2.0", "method": "notifications/odd", "params": {} });
            write!(output, "{sampling}\n{stranger}\n{unknown}\n").unwrap();
        }
        if how == "flood" && method == "resources/read" {
            for number in 0..50_000 {
                let params = json!({ "uri": format!("odd://{number}") });
                writeln!(
                    output,
                    "{}",
                    json!({ "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params })
                )
                .unwrap();
            }
        }
        let answer = match result(how, method, params) {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err((code, message)) => {
                json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
            }
        };
        writeln!(output, "{answer}").unwrap();
        output.flush().unwrap();
    }
}

/// Answers the read of `odd://bad`; whether it did.
fn misbehave(how: &str, id: &Value, output: &mut impl std::io::Write) -> bool {
    let huge = || "x".repeat(3 << 20);
    match how {
        "huge, id first" => {
            let text = huge();
            writeln!(output, r#"{{"jsonrpc":"2.0","id":{id},"result":{{"contents":[{{"uri":"odd://bad","text":"{text}"}}]}}}}"#)
        }
        "huge, id last" => {
            let text = huge();
            writeln!(output, r#"{{"result":{{"contents":[{{"uri":"odd://bad","text":"{text}"}}]}},"jsonrpc":"2.0","id":{id}}}"#)
        }
        // The second is nearly as many as are decoded.
        "many values" | "fewer values" => {
            let values = "{\"\":0},".repeat(if how == "many values" { 140_000 } else { 10_800 });
            writeln!(output, r#"{{"jsonrpc":"2.0","id":{id},"result":{{"contents":[{values}0]}}}}"#)
        }
        "endless line" => {
            // Until the client closes the connection.
            while output.write_all(&[b'x'; 65_536]).is_ok() {}
            std::process::exit(0);
        }
        "not UTF-8" => {
            write!(output, r#"{{"jsonrpc":"2.0","id":{id},"result":{{"contents":[{{"uri":"odd://bad","text":""#).unwrap();
            output.write_all(b"\xff\xfe").unwrap();
            writeln!(output, r#""}}]}}}}"#)
        }
        "wrong types" => writeln!(output, r#"{{"jsonrpc":"2.0","id":{id},"result":{{"contents":[7]}}}}"#),
        "base64" => {
            writeln!(output, r#"{{"jsonrpc":"2.0","id":{id},"result":{{"contents":[{{"uri":"odd://bad","blob":"%%%"}}]}}}}"#)
        }
        "silent" => Ok(()),
        "garbage" => {
            while writeln!(output, "warning: this is not a message").is_ok() {}
            std::process::exit(0);
        }
        "half an answer" => {
            write!(output, r#"{{"jsonrpc":"2.0","id":{id},"result":{{"contents":[{{"uri"#).unwrap();
            output.flush().unwrap();
            eprintln!("odd: out of paper \u{1b}[31m");
            std::process::exit(1);
        }
        _ => return false,
    }
    .unwrap();
    output.flush().unwrap();
    true
}

fn result(how: &str, method: &str, params: &Value) -> Result<Value, (i32, String)> {
    let resource = |uri: String| json!({ "uri": uri, "name": uri });
    Ok(match method {
        "initialize" if how == "slow start, modern" => {
            return Err((-32022, "the initialize handshake is not accepted".into()));
        }
        "server/discover" if how == "slow start, modern" => json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": { "resources": {} },
            "ttlMs": 0,
            "cacheScope": "private",
        }),
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "resources": { "subscribe": true, "listChanged": true }, "completions": {}, "tools": {},
            },
            "serverInfo": { "name": "odd", "version": "1" },
        }),
        "ping" | "resources/subscribe" => json!({}),
        "resources/list" => match how {
            "looping cursor" => {
                json!({ "resources": [resource("odd://good".into())], "nextCursor": "again" })
            }
            "endless pages" => {
                let page: usize =
                    params["cursor"].as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
                json!({ "resources": [resource(format!("odd://{page}"))], "nextCursor": (page + 1).to_string() })
            }
            "many resources" => {
                json!({ "resources": (0..2001).map(|number| resource(format!("odd://{number}"))).collect::<Vec<_>>() })
            }
            "wrong types" => json!({ "resources": [
                resource("odd://good".into()),
                { "uri": 7, "name": "a number" },
                { "name": "no URI" },
                "a text",
                resource("not a URI".into()),
                resource("odd://bad".into()),
            ] }),
            "escapes" => json!({ "resources": [{ "uri": "odd://good", "name": "\u{1b}]0;owned\u{7}name" }] }),
            _ => {
                let uris = ["odd://good", "odd://with space", "odd://bad"];
                json!({ "resources": uris.map(|uri| resource(uri.into())) })
            }
        },
        "resources/templates/list" if how == "large templates" => {
            let page: usize = params["cursor"].as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
            let template = json!({
                "uriTemplate": format!("odd://{page}/{{name}}"), "name": "large", "description": "x".repeat(900_000),
            });
            json!({ "resourceTemplates": [template], "nextCursor": (page + 1).to_string() })
        }
        "resources/templates/list" => json!({ "resourceTemplates": [
            { "uriTemplate": "odd://{+path}{?a,b}{&x*}", "name": "good" },
            { "uriTemplate": "odd://{unclosed", "name": "malformed" },
            { "uriTemplate": 7, "name": "no text" },
        ] }),
        "resources/read" => match params["uri"].as_str().unwrap_or_default() {
            "odd://good" if how == "slow start, modern" => json!({
                "resultType": "complete",
                "contents": [{ "uri": "odd://good", "text": "good" }],
                "ttlMs": 0,
                "cacheScope": "private",
            }),
            "odd://good" => json!({ "contents": [{ "uri": "odd://good", "text": "good" }] }),
            "odd://missing" => return Err((-32002, "Resource not found".into())),
            "odd://bad" if how == "escapes" => return Err((7, "no \u{1b}[2J\npaper".into())),
            uri => json!({ "contents": [{ "uri": uri, "text": format!("read {uri}") }] }),
        },
        "tools/list" => {
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
            match how {
                "many tools" => {
                    json!({ "tools": (0..1001).map(|number| tool(&format!("tool{number}"))).collect::<Vec<_>>() })
                }
                "large tools" => {
                    let page: usize =
                        params["cursor"].as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
                    let mut large = tool(&format!("tool{page}"));
                    large["description"] = "x".repeat(300_000).into();
                    json!({ "tools": [large], "nextCursor": (page + 1).to_string() })
                }
                _ => json!({ "tools": [
                    tool("good"), tool("good"), { "name": 7 }, { "name": "no schema" }, tool("\u{1b}[2J"), tool(""),
                    tool(&"long".repeat(100)), tool("bad"),
                ] }),
            }
        }
        "tools/call" => match (params["name"].as_str().unwrap_or_default(), how) {
            ("bad", "wrong types") => json!({ "content": [7] }),
            ("bad", "task") => {
                json!({ "resultType": "task", "task": { "taskId": "1", "status": "working" } })
            }
            ("bad", "input") => json!({ "resultType": "input_required", "inputRequests": {
                "a": { "method": "elicitation/create", "params": { "message": "Password?" } },
            } }),
            (name, _) => json!({ "content": [{ "type": "text", "text": format!("called {name}") }] }),
        },
        "completion/complete" => {
            let values: Vec<_> = (0..1000).map(|number| format!("x{number}")).collect();
            json!({ "completion": { "values": values, "total": 1000 } })
        }
        _ => return Err((-32601, format!("unknown method {method}"))),
    })
}
