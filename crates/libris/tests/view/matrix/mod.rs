//! Four identities, two hundred resources and random rules, asked by every method in both eras, over HTTP and over stdio:
//! the answers are those of the reference implementation, and what is hidden looks exactly like what is absent.
//!
//! Every request is sent to two servers with the same rules. The bare one lacks the resources that the rules hide from
//! the caller for every operation. Its answer must be the same, byte for byte.

mod directories;
mod features;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::http::Method;
use libris::rules::RulesPolicy;
use libris::wire::{Caller, Channel, Refusal};
use libris::{Authenticate, Identified, Identity, Operation, Policy, Rights, Uri};
use serde_json::{Value, json};

use crate::people::Who;
use crate::random::{Random, seeds};
use crate::rules::{Person, PlainRule, Verdict, any, compiled, decide};
use crate::shelf::{Predicate, ROOT, Seen, Shelf, Stock, Universe};
use crate::streams;
use crate::worlds::{Connection, Sent, Transport, World};

/// How many sets of rules are checked. For each of them, each caller asks in one way; in the next one, in another.
const CASES: u64 = 24;

const PAGE: usize = 23;

const PEOPLE: [(Who, Person); 4] = [
    (Who::A, Person { name: Some("A"), groups: &["hr"], scopes: &[] }),
    (Who::B, Person { name: Some("B"), groups: &["it"], scopes: &["drafts"] }),
    (Who::C, Person { name: Some("C"), groups: &["hr", "it"], scopes: &["drafts", "other"] }),
    (Who::Anonymous, Person { name: None, groups: &[], scopes: &[] }),
];

/// Identifies the four.
struct Known {
    /// Who has started the server, if it serves stdio.
    local: Mutex<Who>,
}

impl Authenticate for Known {
    fn identify(&self, caller: &Caller<'_>) -> Identified {
        let asking = match caller.channel {
            Channel::Stdio => self.local.lock().unwrap().authorization().map(str::as_bytes),
            _ => caller.authorization,
        };
        let Some(text) = asking else { return Identified::Caller(None) };
        let person = PEOPLE.iter().find(|(who, _)| who.authorization().map(str::as_bytes) == Some(text));
        match person {
            Some((who, Person { groups, scopes, .. })) => {
                let identity = who.identity().unwrap();
                let groups = groups.iter().copied();
                Identified::Caller(Some(identity.with_groups(groups).with_scopes(scopes.iter().copied())))
            }
            None => {
                let message = "nobody of that name is known".to_owned();
                Identified::Refused(Refusal::Unauthenticated { challenge: "Test".into(), message })
            }
        }
    }

    fn scope_challenge(&self, scopes: &[Box<str>]) -> Option<String> {
        Some(format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", scopes.join(" ")))
    }
}

impl Policy for Known {
    fn authentication(&self) -> &dyn Authenticate {
        self
    }

    fn rights(&self, _: Option<&Identity>) -> Rights {
        unreachable!("the rules grant rights")
    }
}

/// How a caller asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Modern,
    Session,
    ModernStdio,
    LegacyStdio,
}

impl Way {
    const ALL: [Self; 4] = [Self::Modern, Self::Session, Self::ModernStdio, Self::LegacyStdio];

    fn is_modern(self) -> bool {
        matches!(self, Self::Modern | Self::ModernStdio)
    }

    fn is_stdio(self) -> bool {
        matches!(self, Self::ModernStdio | Self::LegacyStdio)
    }
}

struct Asking<'a> {
    way: Way,
    who: Who,
    person: &'a Person,
    rules: &'a [PlainRule],
    /// The server with all resources.
    whole: AskedServer,
    /// The server without the resources that the caller cannot know of.
    bare: AskedServer,
    /// How many resources it has asked for.
    asked: usize,
}

/// A connection to one of the servers.
struct AskedServer {
    connection: Connection,
    session: Option<String>,
}

impl AskedServer {
    async fn open(world: &World, address: SocketAddr, way: Way) -> Self {
        let connection = match way.is_stdio() {
            true => Connection::stdio(world),
            false => Connection::http(Transport::Http1, address).await,
        };
        Self { connection, session: None }
    }

    async fn ask(&mut self, way: Way, who: Who, message: &Value) -> (u16, String) {
        if way.is_stdio() {
            let answer = self.connection.ask_line(message);
            return (answer.status, answer.body);
        }
        let (method, params) = (message["method"].as_str().unwrap(), &message["params"]);
        let name = match method {
            "resources/read" => params["uri"].as_str(),
            "tools/call" | "prompts/get" => params["name"].as_str(),
            _ => None,
        };
        let session = self.session.clone().unwrap_or_default();
        let mut headers = vec![JSON, ACCEPT];
        match way {
            Way::Modern => headers.extend([("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)]),
            _ if self.session.is_some() => headers.push(("mcp-session-id", &session)),
            _ => {}
        }
        headers.extend(name.filter(|_| way == Way::Modern).map(|name| ("mcp-name", name)));
        let sent = Sent { method: Method::POST, who, headers: &headers, body: message.to_string() };
        let answer = self.connection.ask(sent).await;
        self.session = self.session.take().or(answer.session);
        (answer.status, answer.body)
    }
}

const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");
const JSON: (&str, &str) = ("content-type", "application/json");

impl Asking<'_> {
    /// The status and the body of the answer, which is that of both servers.
    async fn ask(&mut self, method: &str, mut params: Value) -> (u16, String) {
        if self.way.is_modern() {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = self.whole.ask(self.way, self.who, &message).await;
        let without = self.bare.ask(self.way, self.who, &message).await;
        assert_eq!(answer, without, "{:?} {:?} {message} {:?}", self.way, self.who, self.rules);
        answer
    }

    fn verdict(&self, operation: Operation, uri: &str) -> Verdict {
        decide(self.rules, self.person, operation, uri)
    }

    /// All pages: their URIs are those that the rules show, and all pages but the last are full.
    async fn list(&mut self, universe: &Universe) {
        let shown: Vec<_> = universe
            .resources
            .iter()
            .map(ToString::to_string)
            .filter(|uri| self.verdict(Operation::List, uri) == Verdict::Allow)
            .collect();
        let mut pages: Vec<Vec<String>> = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
            let (_, body) = self.ask("resources/list", params).await;
            let result: Value = serde_json::from_str(&body).unwrap();
            let resources = result["result"]["resources"].as_array().unwrap_or_else(|| panic!("{body}"));
            pages.push(
                resources.iter().map(|resource| resource["uri"].as_str().unwrap().to_owned()).collect(),
            );
            cursor = result["result"]["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        let expected: Vec<_> = match shown.is_empty() {
            true => vec![Vec::new()],
            false => shown.chunks(PAGE).map(<[_]>::to_vec).collect(),
        };
        assert_eq!(pages, expected, "{:?} {:?} {:?}", self.way, self.who, self.rules);
    }

    /// Reads a resource, a part of it, or another spelling of its URI.
    async fn read(&mut self, uri: &str, absent: &str) {
        let path = &uri[ROOT.len()..];
        let spelled = format!("{ROOT}{}", path.replacen(['f', 'g', 'p'], "%2E", 1));
        let letter = path.find(['f', 'g', 'p']).map_or(0, |at| path.as_bytes()[at]);
        let spelled = spelled.replacen("%2E", &format!("%{letter:02X}"), 1);
        // One of its names, so that each caller asks for a few hundred things.
        let names = [uri.to_owned(), format!("{uri}?lines=1-2"), spelled];
        self.asked += 1;
        let name = names[self.asked % names.len()].clone();
        let (status, body) = self.ask("resources/read", json!({ "uri": name })).await;
        let verdict = self.verdict(Operation::Read, uri);
        let context = format!("{:?} {:?} {name} {:?}: {body}", self.way, self.who, self.rules);
        let is_part_of_directory = name.ends_with("/?lines=1-2");
        match verdict {
            _ if is_part_of_directory => assert!(verdict != Verdict::Allow || body.contains("error")),
            Verdict::Allow => assert!(body.contains("\"result\""), "{context}"),
            Verdict::Require => {
                assert!(body.contains("\"insufficient_scope\"") && body.contains("\"drafts\""), "{context}");
                assert_eq!(status, if self.way.is_stdio() { 200 } else { 403 }, "{context}");
            }
            Verdict::Deny => {
                let (absent_status, nothing) = self.ask("resources/read", json!({ "uri": absent })).await;
                assert_eq!(
                    (status, body.replace(&name, "URI")),
                    (absent_status, nothing.replace(absent, "URI")),
                    "{context}"
                );
            }
        }
    }

    /// Subscribes, where the era has a request for it.
    async fn subscribe(&mut self, uri: &str, absent: &str) {
        let (status, body) = self.ask("resources/subscribe", json!({ "uri": uri })).await;
        let context = format!("{:?} {:?} {uri} {:?}: {body}", self.way, self.who, self.rules);
        match self.verdict(Operation::Subscribe, uri) {
            Verdict::Allow => assert!(body.contains("\"result\":{}"), "{context}"),
            Verdict::Require => assert!(body.contains("\"insufficient_scope\""), "{context}"),
            Verdict::Deny => {
                let (absent_status, nothing) =
                    self.ask("resources/subscribe", json!({ "uri": absent })).await;
                let hidden = (status, body.replace(uri, "URI"));
                assert_eq!(hidden, (absent_status, nothing.replace(absent, "URI")), "{context}");
            }
        }
        let (status, body) = self.ask("resources/unsubscribe", json!({ "uri": uri })).await;
        let (absent_status, nothing) = self.ask("resources/unsubscribe", json!({ "uri": absent })).await;
        let ended = (status, body.replace(uri, "URI"));
        assert_eq!(ended, (absent_status, nothing.replace(absent, "URI")), "{}", self.context(uri, &body));
    }

    /// Completes: no value leads to a hidden resource, and all others are offered.
    async fn complete(&mut self, universe: &Universe) {
        let params = json!({
            "ref": { "type": "ref/resource", "uri": "shelf:///d2/{name}" },
            "argument": { "name": "name", "value": "g" },
        });
        let (_, body) = self.ask("completion/complete", params).await;
        let answer: Value = serde_json::from_str(&body).unwrap();
        let visible: BTreeSet<_> = universe
            .resources
            .iter()
            .filter_map(|uri| {
                uri.as_str().strip_prefix("shelf:///d2/").map(|name| (uri.as_str(), name.to_owned()))
            })
            .filter(|(uri, name)| !name.is_empty() && self.verdict(Operation::Read, uri) != Verdict::Deny)
            .map(|(_, name)| name)
            .collect();
        let values = answer["result"]["completion"]["values"].as_array().cloned().unwrap_or_default();
        let values: BTreeSet<_> = values.iter().map(|value| value.as_str().unwrap().to_owned()).collect();
        let first: BTreeSet<_> = visible.iter().take(100).cloned().collect();
        assert_eq!(values, first, "{}", self.context("shelf:///d2/{name}", &body));
    }

    /// What is shown of a message that is not as expected.
    fn context(&self, what: &str, body: &str) -> String {
        format!("{:?} {:?} {what} {:?}: {body}", self.way, self.who, self.rules)
    }

    /// Whether a resource that exists and its content may be shown.
    fn may_read(&self, uri: &str) -> bool {
        self.verdict(Operation::Read, uri) == Verdict::Allow
    }

    /// Completes the argument of a prompt: no value leads to a hidden resource, and all others are offered.
    async fn complete_prompt(&mut self, universe: &Universe) {
        let params = json!({
            "ref": { "type": "ref/prompt", "name": "in-d1" },
            "argument": { "name": "name", "value": "f" },
        });
        let (_, body) = self.ask("completion/complete", params).await;
        let answer: Value = serde_json::from_str(&body).unwrap();
        let expected: Vec<_> = universe
            .resources
            .iter()
            .filter(|uri| self.verdict(Operation::Read, uri.as_str()) != Verdict::Deny)
            .filter_map(|uri| uri.as_str().strip_prefix("shelf:///d1/").filter(|name| !name.is_empty()))
            .collect();
        let values = answer["result"]["completion"]["values"].as_array().cloned().unwrap_or_default();
        let values: Vec<_> = values.iter().map(|value| value.as_str().unwrap()).collect();
        assert_eq!(values, expected, "{}", self.context("in-d1", &body));
    }

    /// Calls the tool that reads.
    async fn call_read(&mut self, uri: &str) {
        let params = json!({ "name": "read_resource", "arguments": { "uri": uri } });
        let (_, body) = self.ask("tools/call", params).await;
        let context = self.context(uri, &body);
        match self.verdict(Operation::Read, uri) {
            Verdict::Allow => assert!(!body.contains("\"isError\":true"), "{context}"),
            Verdict::Require => assert!(!body.contains("version Some"), "{context}"),
            Verdict::Deny => {
                assert!(body.contains("There is no resource at"), "{context}");
                assert!(!body.contains("version Some"), "{context}");
            }
        }
    }

    async fn templates(&mut self, universe: &Universe) {
        let (_, body) = self.ask("resources/templates/list", json!({})).await;
        for (template, prefix) in [("shelf:///d2/{name}", "shelf:///d2/"), ("shelf:///{dir}/{name}", ROOT)] {
            let leads = universe.resources.iter().filter(|uri| uri.as_str().starts_with(prefix));
            let is_offered =
                leads.into_iter().any(|uri| self.verdict(Operation::Read, uri.as_str()) != Verdict::Deny);
            assert_eq!(
                body.contains(template),
                is_offered,
                "{:?} {:?} {:?}: {body}",
                self.way,
                self.who,
                self.rules
            );
        }
    }
}

/// Listens to everything at once: the caller is told that it hears of what it may subscribe to, and a hidden resource is
/// accepted exactly if an absent one is.
async fn listen(address: SocketAddr, asking: &Asking<'_>, universe: &Universe) {
    let mut uris: Vec<_> = universe.resources.iter().map(ToString::to_string).collect();
    uris.extend(["shelf:///d0/absent", "shelf:///absent"].map(String::from));
    uris.retain(|uri| asking.verdict(Operation::Subscribe, uri) != Verdict::Require);
    let mut connection = Connection::http(Transport::Http1, address).await;
    let (_events, granted) = streams::listen_to(&mut connection, asking.who, &uris).await;
    let granted = granted.as_array().cloned().unwrap_or_default();
    let granted: BTreeSet<_> = granted.iter().map(|uri| uri.as_str().unwrap()).collect();
    for uri in &uris {
        let may_appear = uri[ROOT.len()..].trim_end_matches('/').contains('/');
        let expected = match asking.verdict(Operation::Subscribe, uri) {
            Verdict::Allow if universe.resources.iter().any(|resource| resource.as_str() == uri) => true,
            _ => may_appear,
        };
        assert_eq!(granted.contains(&**uri), expected, "{}", asking.context(uri, "listen"));
    }
}

/// A server with these resources.
async fn world(seen: Seen, rules: &[PlainRule], policy: &Arc<Known>) -> World {
    let policy = Arc::new(RulesPolicy::new(&compiled(rules), policy.clone()));
    let stock = Stock::of(Universe::of_two_hundred());
    World::searchable(Shelf::new(&stock, Arc::new(seen)), policy, PAGE).await
}

async fn check(seed: u64) {
    let mut random = Random::new(seed ^ 0x0a11);
    let universe = Universe::of_two_hundred();
    assert_eq!(universe.resources.len(), 200);
    let rules = any(&mut random);
    let known = Arc::new(Known { local: Mutex::new(Who::Anonymous) });
    let whole = world(Seen::new(universe, Predicate::Everything), &rules, &known).await;
    let (address, _serving) = whole.listen().await;
    for (number, (who, person)) in PEOPLE.iter().enumerate() {
        let is_known = |uri: &Uri| {
            let verdict = |operation| decide(&rules, person, operation, uri.as_str());
            Operation::ALL.into_iter().any(|operation| verdict(operation) != Verdict::Deny)
        };
        let bare = world(Seen::of(universe, is_known), &rules, &known).await;
        let (bare_address, _serving) = bare.listen().await;
        let way = Way::ALL[(number + seed as usize) % Way::ALL.len()];
        *known.local.lock().unwrap() = *who;
        let mut asking = Asking {
            way,
            who: *who,
            person,
            rules: &rules,
            whole: AskedServer::open(&whole, address, way).await,
            bare: AskedServer::open(&bare, bare_address, way).await,
            asked: 0,
        };
        asking.introduce().await;
        asking.list(universe).await;
        asking.templates(universe).await;
        asking.complete(universe).await;
        asking.complete_prompt(universe).await;
        asking.directories(universe).await;
        asking.call_list(universe).await;
        asking.skills(universe).await;
        asking.list_tools().await;
        asking.prompts().await;
        if way == Way::Modern {
            listen(address, &asking, universe).await;
        }
        for (number, uri) in universe.resources.iter().enumerate() {
            // Absent, and of the same kind: in a directory something may appear, and elsewhere not.
            let in_directory = uri.as_str()[ROOT.len()..].trim_end_matches('/').contains('/');
            let absent = if in_directory { "shelf:///d0/absent" } else { "shelf:///absent" };
            // What requires a scope is not hidden, be it there or not.
            let may_read = asking.verdict(Operation::Read, absent) != Verdict::Require;
            if may_read {
                asking.read(uri.as_str(), absent).await;
            }
            // A part of the files, since these requests take longer. The names of the others are parts of names.
            if number % 5 == 0 {
                asking.call_read(uri.as_str()).await;
                asking.prompt("named", "path", &uri.as_str()[ROOT.len()..], uri.as_str()).await;
            }
            if number % 5 == 1 && uri.as_str().contains("/g") {
                asking.search(uri.as_str()).await;
            }
            if number % 20 == 1 && uri.as_str().contains("/g") {
                asking.bundle(uri.as_str()).await;
            }
            if !way.is_modern() && asking.verdict(Operation::Subscribe, absent) != Verdict::Require {
                asking.subscribe(uri.as_str(), absent).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_that_of_the_reference_and_hidden_is_absent() {
    for seed in seeds(CASES) {
        check(seed).await;
    }
}
