//! Four identities, two hundred resources and random rules, asked by every method in both eras and over stdio: the answers
//! are those of the reference implementation, and what is hidden looks exactly like what is absent.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::Method;
use libris::rules::RulesPolicy;
use libris::wire::{Caller, Refusal};
use libris::{Authenticate, Identified, Identity, Operation, Policy, Rights};
use serde_json::{Value, json};

use crate::people::Who;
use crate::random::{Random, seeds};
use crate::rules::{Person, PlainRule, Verdict, any, compiled, decide};
use crate::shelf::{Predicate, ROOT, Seen, Shelf, Stock, Universe};
use crate::worlds::{Connection, Sent, Transport, World};

/// How many sets of rules are checked.
const CASES: u64 = 2;

const PAGE: usize = 23;

const PEOPLE: [(Who, Person); 4] = [
    (Who::A, Person { groups: &["hr"], scopes: &[] }),
    (Who::B, Person { groups: &["it"], scopes: &["drafts"] }),
    (Who::C, Person { groups: &["hr", "it"], scopes: &["drafts", "other"] }),
    (Who::Anonymous, Person { groups: &[], scopes: &[] }),
];

/// Identifies the four.
struct Known;

impl Authenticate for Known {
    fn identify(&self, caller: &Caller<'_>) -> Identified {
        let Some(text) = caller.authorization else { return Identified::Caller(None) };
        let person = PEOPLE.iter().find(|(who, _)| who.authorization().map(str::as_bytes) == Some(text));
        match person {
            Some((who, Person { groups, scopes })) => {
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
    Stdio,
}

struct Asking<'a> {
    way: Way,
    who: Who,
    person: &'a Person,
    rules: &'a [PlainRule],
    connection: Connection,
    session: Option<String>,
    /// How many resources it has asked for.
    asked: usize,
}

const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");
const JSON: (&str, &str) = ("content-type", "application/json");

impl Asking<'_> {
    async fn ask(&mut self, method: &str, mut params: Value) -> (u16, String) {
        if self.way == Way::Modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        if self.way == Way::Stdio {
            let answer = self.connection.ask_line(&message);
            return (answer.status, answer.body);
        }
        let name = params["uri"].as_str().unwrap_or_default().to_owned();
        let session = self.session.clone().unwrap_or_default();
        let mut headers = vec![JSON, ACCEPT];
        match self.way {
            Way::Modern => headers.extend([("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)]),
            _ if self.session.is_some() => headers.push(("mcp-session-id", &session)),
            _ => {}
        }
        headers
            .extend((self.way == Way::Modern && method == "resources/read").then_some(("mcp-name", &*name)));
        let sent = Sent { method: Method::POST, who: self.who, headers: &headers, body: message.to_string() };
        let answer = self.connection.ask(sent).await;
        self.session = self.session.take().or(answer.session);
        (answer.status, answer.body)
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
                assert_eq!(status, if self.way == Way::Stdio { 200 } else { 403 }, "{context}");
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
        assert_eq!(values, first, "{:?} {:?} {:?}: {body}", self.way, self.who, self.rules);
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

async fn check(seed: u64) {
    let mut random = Random::new(seed ^ 0x0a11);
    let universe = Universe::of_two_hundred();
    assert_eq!(universe.resources.len(), 200);
    let rules = any(&mut random);
    let everything = Arc::new(Seen::new(universe, Predicate::Everything));
    let policy = Arc::new(RulesPolicy::new(&compiled(&rules), Arc::new(Known)));
    let world = World::new(Shelf::new(&Stock::of(universe), everything), policy, PAGE);
    let (address, _serving) = world.listen().await;
    for (who, person) in &PEOPLE {
        for way in [Way::Modern, Way::Session, Way::Stdio] {
            let connection = match way {
                // Over stdio nobody names itself.
                Way::Stdio if *who != Who::Anonymous => continue,
                Way::Stdio => Connection::stdio(&world),
                _ => Connection::http(Transport::Http1, address).await,
            };
            let mut asking =
                Asking { way, who: *who, person, rules: &rules, connection, session: None, asked: 0 };
            if way != Way::Modern {
                let client = json!({ "name": "test", "version": "1" });
                let params =
                    json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
                asking.ask("initialize", params).await;
            }
            asking.list(universe).await;
            asking.templates(universe).await;
            asking.complete(universe).await;
            for uri in &universe.resources {
                // Absent, and of the same kind: in a directory something may appear, and elsewhere not.
                let in_directory = uri.as_str()[ROOT.len()..].trim_end_matches('/').contains('/');
                let absent = if in_directory { "shelf:///d0/absent" } else { "shelf:///absent" };
                // What requires a scope is not hidden, be it there or not.
                let may_read = asking.verdict(Operation::Read, absent) != Verdict::Require;
                if may_read {
                    asking.read(uri.as_str(), absent).await;
                }
                if way != Way::Modern && asking.verdict(Operation::Subscribe, absent) != Verdict::Require {
                    asking.subscribe(uri.as_str(), absent).await;
                }
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
