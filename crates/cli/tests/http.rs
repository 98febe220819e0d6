//! The binary with HTTP sources, against local API servers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The responses of an API by request target, and the requests it received.
#[derive(Clone, Default)]
struct Api {
    holds: Arc<Mutex<BTreeMap<String, String>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Api {
    fn new(holds: &[(&str, Value)]) -> Self {
        let api = Self::default();
        for (target, value) in holds {
            api.put(target, value.clone());
        }
        api
    }

    /// Serves on a free port until the test ends. Returns the address.
    fn start(holds: &[(&str, Value)]) -> (Self, String) {
        let api = Self::new(holds);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = api.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let api = served.clone();
                std::thread::spawn(move || api.serve(stream));
            }
        });
        (api, url)
    }

    fn put(&self, target: &str, value: Value) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.holds.lock().unwrap().insert(target.to_owned(), text);
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// The same over TLS, with this certificate and its key.
    #[cfg(target_os = "linux")]
    fn start_secure(self, certified: &rcgen::CertifiedKey<rcgen::KeyPair>) -> String {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = rustls::pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (api, config) = (self.clone(), config.clone());
                std::thread::spawn(move || {
                    let connection = rustls::ServerConnection::new(config).unwrap();
                    api.serve(rustls::StreamOwned::new(connection, stream));
                });
            }
        });
        url
    }

    fn serve(&self, mut stream: impl Read + Write) {
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or(0) == 0 {
                    return;
                }
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let target = head.split(' ').nth(1).unwrap().to_owned();
            let body = self.holds.lock().unwrap().get(&target).cloned();
            self.asked.lock().unwrap().push(target);
            let (status, body) = body.map_or((404, String::new()), |body| (200, body));
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            if stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    }
}

struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Opens a session of an older revision, which has subscriptions by URI.
    fn session(arguments: &[&str], folder: &Path) -> Self {
        Self::with(arguments, folder, &[("WEATHER_TOKEN", "sunshine")])
    }

    fn with(arguments: &[&str], folder: &Path, environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_libris"))
            .arg("serve")
            .args(arguments)
            .current_dir(folder)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut program = Self { child, input, output: BufReader::new(output) };
        let answer = program.ask(
            "initialize",
            json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } }),
        );
        assert!(answer["result"]["capabilities"]["resources"]["subscribe"].as_bool().unwrap(), "{answer}");
        program.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        program
    }

    fn send(&mut self, message: Value) {
        writeln!(self.input, "{message}").unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|cause| panic!("{cause}: {line:?}"))
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
        loop {
            let message = self.receive();
            if message.get("id").is_some() {
                return message;
            }
        }
    }

    fn read(&mut self, uri: &str) -> Value {
        let answer = self.ask("resources/read", json!({ "uri": uri }));
        let Some(text) = answer["result"]["contents"][0]["text"].as_str() else { return answer };
        serde_json::from_str(text).unwrap_or_else(|_| text.into())
    }

    fn complete(&mut self, template: &str, variable: &str, typed: &str) -> Value {
        let asked = json!({
            "ref": { "type": "ref/resource", "uri": template },
            "argument": { "name": variable, "value": typed },
        });
        self.ask("completion/complete", asked)["result"]["completion"]["values"].clone()
    }

    fn uris(&mut self, method: &str, list: &str, key: &str) -> Vec<Value> {
        let answer = self.ask(method, json!({}));
        answer["result"][list].as_array().unwrap().iter().map(|one| one[key].clone()).collect()
    }

    fn hears(&mut self, method: &str) -> Value {
        loop {
            let message = self.receive();
            if message["method"] == method {
                return message["params"].clone();
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An example configuration with the URL replaced by that of a local server.
fn weather(url: &str) -> tempfile::TempDir {
    let example = include_str!("../../../examples/weather.toml");
    let ours = example.replace(
        "base = \"https://api.weather.example/v1\"",
        &format!("base = \"{url}\"\npoll = \"50ms\"\nlimits = {{ allow_private = true }}"),
    );
    assert_ne!(ours, example);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libris.toml"), ours.replace("cache = { ttl = \"1m\" }\n", ""))
        .unwrap();
    folder
}

#[test]
fn a_weather_api_is_listed_completed_read_and_followed() {
    let stations = json!({ "stations": [
        { "id": "par", "name": "Paris" }, { "id": "pkc", "name": "Park City" }, { "id": "lim", "name": "Lima" },
    ]});
    let (api, url) = Api::start(&[
        ("/stations?units=metric", stations.clone()),
        ("/forecast/par?date=today&units=metric", json!({ "sky": "blue" })),
    ]);
    let mut program = Program::session(&[], weather(&url).path());
    let listed = program.uris("resources/list", "resources", "uri");
    assert_eq!(
        listed,
        ["https://weather.example/handbook.pdf", "libris://index", "libris://status", "weather://stations"]
    );
    let forecast = "weather://forecast/{city}/{date}";
    let templates = program.uris("resources/templates/list", "resourceTemplates", "uriTemplate");
    assert_eq!(
        templates,
        ["flights://search/{airport}", "libris://index{?below}", "libris://status{?as}", forecast]
    );
    assert_eq!(program.complete(forecast, "city", "Par"), json!(["par", "pkc"]));
    assert_eq!(program.complete("flights://search/{airport}", "airport", "kennedy"), json!(["JFK"]));
    assert_eq!(program.read("weather://stations"), stations);
    assert_eq!(program.read("weather://forecast/par/today"), json!({ "sky": "blue" }));
    assert_eq!(program.read("weather://forecast/nowhere/today")["error"]["code"], -32002);

    let uri = "weather://forecast/par/today";
    let confirmed = program.ask("resources/subscribe", json!({ "uri": uri }));
    assert!(confirmed["error"].is_null(), "{confirmed}");
    api.put("/forecast/par?date=today&units=metric", json!({ "sky": "grey" }));
    assert_eq!(program.hears("notifications/resources/updated"), json!({ "uri": uri }));
    assert_eq!(program.read(uri), json!({ "sky": "grey" }));
    program.ask("resources/unsubscribe", json!({ "uri": uri }));
    api.asked();
    let climbing = program.read("weather://forecast/..%2F..%2Fadmin/today");
    assert_eq!(climbing["error"]["code"], -32002, "{climbing}");
    assert!(!api.asked().iter().any(|target| target.contains("admin")));
}

#[test]
fn a_subscription_outlives_a_new_configuration() {
    let (api, url) = Api::start(&[("/a", json!(1))]);
    let config = format!(
        "[[http]]\nbase = \"{url}\"\npoll = \"50ms\"\nlimits = {{ allow_private = true }}\n\
         [[http.template]]\nuri = \"a://{{x}}\"\nurl = \"{{/x}}\"\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libris.toml");
    std::fs::write(&file, &config).unwrap();
    let mut program = Program::session(&[], folder.path());
    program.ask("resources/subscribe", json!({ "uri": "a://a" }));
    std::fs::write(&file, config + "[[http.resource]]\nuri = \"b://b\"\nurl = \"b\"\n").unwrap();
    // Subscribed resources may have changed and are notified once; later changes are notified again.
    assert_eq!(program.hears("notifications/resources/updated"), json!({ "uri": "a://a" }));
    assert_eq!(program.read("a://a"), json!(1));
    api.put("/a", json!(2));
    assert_eq!(program.hears("notifications/resources/updated"), json!({ "uri": "a://a" }));
}

#[cfg(target_os = "linux")]
#[test]
fn a_certificate_that_nobody_vouches_for_is_refused() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let url = Api::new(&[("/a", json!(1))]).start_secure(&certified);
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[[http]]\nlimits = {{ allow_private = true }}\n[[http.resource]]\nuri = \"a://a\"\nurl = \"{url}/a\"\n"
    );
    std::fs::write(folder.path().join("libris.toml"), config).unwrap();
    let own = folder.path().join("own.pem");
    let pem = |der: &[u8]| {
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    };
    std::fs::write(&own, pem(certified.cert.der())).unwrap();
    let other = folder.path().join("other.pem");
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&other, pem(stranger.cert.der())).unwrap();

    let mut program = Program::with(&[], folder.path(), &[("SSL_CERT_FILE", own.to_str().unwrap())]);
    assert_eq!(program.read("a://a"), json!(1));
    let mut program = Program::with(&[], folder.path(), &[("SSL_CERT_FILE", other.to_str().unwrap())]);
    let message = "the service behind `a://a` cannot be reached now; try again later";
    assert_eq!(program.read("a://a")["error"]["message"], message);
}

#[test]
fn what_is_wrong_upstream_says_nothing_of_it() {
    let (_, url) = Api::start(&[("/stations?units=metric", json!("{ malformed"))]);
    let folder = weather(&url);
    let mut program = Program::session(&[], folder.path());
    let answer = program.read("weather://stations");
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(message, "the service behind `weather://stations` sent malformed JSON");
    assert!(!answer.to_string().contains("sunshine") && !answer.to_string().contains("127.0.0.1"));
}

#[test]
fn an_openapi_document_is_served() {
    let (_, url) = Api::start(&[
        ("/books", json!(["all"])),
        ("/books?language=fr", json!(["Les Misérables"])),
        ("/books/7", json!({ "title": "Emma" })),
    ]);
    let folder = tempfile::tempdir().unwrap();
    let document = include_str!("../../../examples/openapi/library.yaml");
    std::fs::write(folder.path().join("api.yaml"), document).unwrap();
    let config = format!(
        "[[openapi]]\ndocument = \"api.yaml\"\nname = \"library\"\nbase = \"{url}\"\nlimits = {{ allow_private = true }}\n"
    );
    std::fs::write(folder.path().join("libris.toml"), config).unwrap();
    let mut program = Program::session(&[], folder.path());
    let listed = program.uris("resources/list", "resources", "uri");
    assert_eq!(listed, ["library://books", "library://branches", "libris://index", "libris://status"]);
    assert_eq!(program.read("library://books"), json!(["all"]));
    assert_eq!(program.read("library://books?language=fr"), json!(["Les Misérables"]));
    assert_eq!(program.read("library://books/7"), json!({ "title": "Emma" }));
    let books = "library://books{?genre*,language,page_size}";
    assert_eq!(program.complete(books, "language", ""), json!(["en", "fr", "es"]));
    assert_eq!(program.complete(books, "genre", "p"), json!(["poetry"]));

    // The same by a URL: the paths are then relative to where the document is.
    let (_, url) = Api::start(&[
        ("/openapi.yaml", json!(document.replace("https://api.library.example/{version}", "/"))),
        ("/books/7", json!({ "title": "Emma" })),
    ]);
    let mut program = Program::session(&[&format!("openapi:{url}/openapi.yaml")], folder.path());
    assert_eq!(program.read("city-library://books/7"), json!({ "title": "Emma" }));
}

#[test]
fn a_document_that_cannot_be_had_says_why() {
    let check = |source: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_libris")).args(["check", source]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = check("openapi:no-such-file.yaml");
    assert!(said.starts_with("error: could not read `openapi:no-such-file.yaml`\n  because: "), "{said}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let said = check(&format!("openapi:http://{address}/api.json"));
    assert!(said.contains("answered 500 Internal Server Error; try again later"), "{said}");
}
