//! Random requests of two callers, answered by a server with a policy and by servers without what is hidden.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::Method;
use futures_util::{StreamExt as _, stream};
use libris::{Context, Error, Uri};
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

use crate::people::{People, Sight, Who};
use crate::random::{Random, seeds};
use crate::shelf::{
    BY_NAME, BY_PATH, IN_D1, IN_D2, LINES, OF_LINES, PROMPTS, Predicate, ROOT, SKILLS, Seen, Shelf, Stock,
    TEMPLATES, Universe, uri,
};
use crate::worlds::{Answer, Connection, Sent, Transport, World};

/// How many random sequences of requests are checked.
const CASES: u64 = 1_000;

/// How many run at the same time.
const AT_ONCE: usize = 4;

/// The revisions that have sessions.
const REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// A request that has a counterpart in both eras.
#[derive(Clone, Debug)]
struct Ask {
    method: &'static str,
    params: Value,
    /// Whether variables are missing before the one that is completed: then nothing tells where a value leads to, and
    /// the view may give fewer values than there are.
    undecided: bool,
}

/// A caller's connections to the server with the policy and to the one without what is hidden from the caller.
struct Line {
    who: Who,
    policy: Connection,
    reduced: Connection,
    /// The ids of the session with each; empty strings over stdio.
    session: Option<[String; 2]>,
    revision: &'static str,
}

struct Case {
    random: Random,
    transport: Transport,
    universe: &'static Universe,
    stock: Arc<Stock>,
    sights: [Sight; 2],
    policy: World,
    /// Without what is hidden from A, and from B.
    reduced: [World; 2],
    lines: Vec<Line>,
    asked: Vec<Ask>,
    cursors: Vec<String>,
    ids: u32,
    /// What has happened, to be shown where an answer is wrong.
    log: Vec<String>,
    _serving: Vec<DropGuard>,
}

/// The beginning of the message of a "not found" error, which a hint may follow.
const NOT_FOUND: &str = "\"resource not found";

/// Whether a response is a "not found" error with a hint.
fn has_hint(body: &str) -> bool {
    body.split_once(NOT_FOUND).is_some_and(|(_, rest)| !rest.starts_with('"'))
}

/// A response without the hint of its "not found" error.
fn without_hint(body: &str) -> String {
    let Some((head, rest)) = body.split_once(NOT_FOUND) else { return body.to_owned() };
    let (_, tail) = rest.split_once('"').expect("the message ends");
    format!("{head}{NOT_FOUND}\"{tail}")
}

impl Case {
    async fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let large = random.chance(12);
        let universe = Universe::of(large);
        let stock = Stock::random(universe, &mut random);
        let sights = Sight::pair(universe, &mut random);
        let page = if large { 50 + random.below(100) } else { 1 + random.below(6) };
        let everything = Arc::new(Seen::new(universe, Predicate::Everything));
        let policy = World::new(Shelf::new(&stock, everything), People::new(&sights), page);
        let reduced = [0, 1]
            .map(|at: usize| World::new(Shelf::new(&stock, sights[at].seen.clone()), People::open(), page));
        let transport =
            *random.pick(&[Transport::Http1, Transport::Http1, Transport::Http2, Transport::Stdio]);
        let (mut lines, mut serving) = (Vec::new(), Vec::new());
        if transport == Transport::Stdio {
            let (policy, reduced) = (Connection::stdio(&policy), Connection::stdio(&reduced[0]));
            lines.push(Line { who: Who::Anonymous, policy, reduced, session: None, revision: REVISIONS[0] });
        } else {
            let (whole, guard) = policy.listen().await;
            serving.push(guard);
            let mut addresses = Vec::new();
            for world in &reduced {
                let (address, guard) = world.listen().await;
                addresses.push(address);
                serving.push(guard);
            }
            for (who, at) in [(Who::A, 0), (Who::B, 1), (Who::Anonymous, 0)] {
                let policy = Connection::http(transport, whole).await;
                let reduced = Connection::http(transport, addresses[at]).await;
                lines.push(Line { who, policy, reduced, session: None, revision: REVISIONS[0] });
            }
        }
        let log = vec![format!(
            "seed {seed}: {transport:?}, pages of {page}, A sees {:?}, B sees {:?}",
            sights[0].predicate, sights[1].predicate
        )];
        let (asked, cursors) = (Vec::new(), Vec::new());
        Self {
            random,
            transport,
            universe,
            stock,
            sights,
            policy,
            reduced,
            lines,
            asked,
            cursors,
            ids: 0,
            log,
            _serving: serving,
        }
    }

    async fn run(mut self) {
        for _ in 0..5 + self.random.below(10) {
            let line = self.random.below(self.lines.len());
            match self.random.below(20) {
                0 => {
                    let uri = self.random.pick(&self.universe.resources).clone();
                    self.log.push(format!("{uri} changes"));
                    self.stock.change(&uri, &mut self.random);
                }
                1 => self.replace_policy(),
                2 | 3 => self.initialize(line).await,
                4 => self.list_all(line).await,
                5 if self.transport != Transport::Stdio => self.use_session_of_another(line).await,
                6 => self.children(line).await,
                7..12 if !self.asked.is_empty() => {
                    let ask = self.random.pick(&self.asked).clone();
                    self.ask(line, &ask).await;
                }
                _ => {
                    let ask = self.invent();
                    self.asked.push(ask.clone());
                    self.ask(line, &ask).await;
                }
            }
        }
    }

    fn replace_policy(&mut self) {
        self.sights = Sight::pair(self.universe, &mut self.random);
        let [a, b] = &self.sights;
        self.log.push(format!("now A sees {:?}, and B {:?}", a.predicate, b.predicate));
        self.policy.server.set_policy(People::new(&self.sights));
        for (world, sight) in self.reduced.iter().zip(&self.sights) {
            world.shelf.show(sight.seen.clone());
        }
    }

    /// A URI that may be there, hidden, absent, or none.
    fn uri(&mut self) -> String {
        let strange =
            ["shelf:///nope", "shelf:///d0/f0?lines=9-9", "shelf:///d0/?lines=1-1", "other:thing", "no uri"];
        match self.random.below(10) {
            0 => (*self.random.pick(&strange)).to_owned(),
            1..4 => self.random.pick(&self.universe.all).to_string(),
            4 => "shelf:///me".to_owned(),
            _ => self.random.pick(&self.universe.resources).to_string(),
        }
    }

    fn invent(&mut self) -> Ask {
        let asked = |method, params| Ask { method, params, undecided: false };
        match self.random.below(23) {
            12 | 13 => self.directory(),
            14 | 15 => self.skill(),
            16..20 => self.prompt(),
            20.. => self.tool_call(),
            0 | 1 => {
                let cursor = match self.random.chance(40) {
                    true if !self.cursors.is_empty() => json!({ "cursor": self.random.pick(&self.cursors) }),
                    _ => json!({}),
                };
                asked("resources/list", cursor)
            }
            2 => asked("resources/templates/list", json!({})),
            3 => {
                let uri = self.uri();
                asked("resources/subscribe", json!({ "uri": uri }))
            }
            4..8 => self.completion(),
            _ => {
                let uri = self.uri();
                asked("resources/read", json!({ "uri": uri }))
            }
        }
    }

    /// A request for the children of a directory, whose URI may have no slash at its end, or of something else.
    fn directory(&mut self) -> Ask {
        let uri = match self.random.below(4) {
            0 => self.uri(),
            1 => format!("{ROOT}d{}", self.random.below(4)),
            _ => format!("{ROOT}d{}/", self.random.below(4)),
        };
        let mut params = json!({ "uri": uri });
        if !self.cursors.is_empty() && self.random.chance(40) {
            params["cursor"] = json!(self.random.pick(&self.cursors));
        }
        Ask { method: "resources/directory/read", params, undecided: false }
    }

    /// A request for skills.
    fn skill(&mut self) -> Ask {
        if self.random.chance(50) {
            let cursor = match self.random.chance(30) {
                true if !self.cursors.is_empty() => json!({ "cursor": self.random.pick(&self.cursors) }),
                _ => json!({}),
            };
            return Ask { method: "skills/list", params: cursor, undecided: false };
        }
        let uri = match self.random.chance(80) {
            true => self.random.pick(&SKILLS).0.to_owned(),
            false => self.uri(),
        };
        Ask { method: "skills/get", params: json!({ "uri": uri }), undecided: false }
    }

    /// A request for prompts, or for a completion of their arguments.
    fn prompt(&mut self) -> Ask {
        let asked = |method, params| Ask { method, params, undecided: false };
        let (name, place) = *self.random.pick(&PROMPTS);
        let argument = ["lines", "name", "path"].into_iter().find(|name| place.contains(name));
        match (self.random.below(8), argument) {
            (0, _) => asked("prompts/list", json!({})),
            (1, _) => asked("prompts/get", json!({ "name": "use-resources" })),
            (2, _) => asked("prompts/get", json!({ "name": "unknown", "arguments": {} })),
            (3..6, Some(argument)) => {
                let typed = *self.random.pick(&["", "", "f", "d1/", "1", "x"]);
                let params = json!({
                    "ref": { "type": "ref/prompt", "name": name },
                    "argument": { "name": argument, "value": typed },
                });
                asked("completion/complete", params)
            }
            (_, None) => asked("prompts/get", json!({ "name": name })),
            (_, Some(argument)) => {
                let path = self.random.pick(&self.universe.resources).as_str()[ROOT.len()..].to_owned();
                let value = match argument {
                    "lines" => (*self.random.pick(&LINES)).to_owned(),
                    "name" => path.rsplit('/').next().unwrap_or_default().to_owned(),
                    _ => path,
                };
                asked("prompts/get", json!({ "name": name, "arguments": { argument: value } }))
            }
        }
    }

    /// A call of a tool, also with arguments that are wrong.
    fn tool_call(&mut self) -> Ask {
        let uri = self.uri();
        let words = ["f0", "p1 p2", "d0", "g001 f3", "me", "nothing-like-it"];
        let (name, arguments) = match self.random.below(8) {
            0..3 => ("read_resource", json!({ "uri": uri })),
            3 => ("read_resource", json!({ "uri": uri, "lines": "1-1" })),
            4 => ("list_resources", json!({})),
            5 => ("list_resources", json!({ "parent": uri })),
            6 => ("search_resources", json!({ "query": self.random.pick(&words) })),
            _ => ("search_resources", json!({ "query": self.random.pick(&words), "scope": uri })),
        };
        let params = json!({ "name": name, "arguments": arguments });
        Ask { method: "tools/call", params, undecided: false }
    }

    fn completion(&mut self) -> Ask {
        let template = match self.random.below(8) {
            0 => self.uri(),
            1 => {
                (*self.random.pick(&["shelf:///{other}", "other:{name}", "shelf:///{name}/{dir}"])).to_owned()
            }
            _ => (*self.random.pick(&TEMPLATES)).to_owned(),
        };
        let (variables, required): (&[&str], &[&str]) = match &*template {
            BY_PATH => (&["path", "lines"], &["path"]),
            BY_NAME => (&["dir", "name"], &["dir", "name"]),
            IN_D1 => (&["name", "lines"], &["name"]),
            IN_D2 => (&["name"], &["name"]),
            OF_LINES => (&["path", "lines"], &["path", "lines"]),
            _ => (&["name", "other"], &[]),
        };
        let argument = *self.random.pick(variables);
        let mut known = BTreeMap::new();
        for variable in variables.iter().filter(|variable| **variable != argument) {
            if self.random.chance(70) {
                let uri = self.random.pick(&self.universe.resources).as_str();
                let path = &uri[ROOT.len()..];
                let (directory, name) = path.split_once('/').unwrap_or(("d0", path));
                let value = match *variable {
                    "path" => path,
                    "dir" => directory,
                    "name" => name,
                    _ => *self.random.pick(&LINES),
                };
                known.insert((*variable).to_owned(), value.to_owned());
            }
        }
        let before = variables.iter().take_while(|variable| **variable != argument);
        let undecided = before.into_iter().any(|name| required.contains(name) && !known.contains_key(*name));
        let typed = *self.random.pick(&["", "", "", "d", "d0/", "f", "g1", "p", "1", "x"]);
        let params = json!({
            "ref": { "type": "ref/resource", "uri": template },
            "argument": { "name": argument, "value": typed },
            "context": { "arguments": known },
        });
        Ask { method: "completion/complete", params, undecided }
    }

    /// Sends a request in one of the eras, and compares the responses.
    async fn ask(&mut self, line: usize, ask: &Ask) -> Answer {
        let sessions = self.lines[line].session.is_some();
        let modern = !sessions || (self.random.chance(50) && ask.method != "resources/subscribe");
        self.ids += 1;
        let mut params = ask.params.clone();
        if modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            });
        }
        let message = json!({ "jsonrpc": "2.0", "id": self.ids, "method": ask.method, "params": params });
        let session = self.lines[line].session.clone().filter(|_| !modern);
        let answers = self.exchange(line, Method::POST, &message, session).await;
        let answer = match ask.undecided {
            false => self.same(answers),
            true => self.fewer(answers),
        };
        let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        if let Some(cursor) = body["result"]["nextCursor"].as_str() {
            self.cursors.push(cursor.to_owned());
        }
        answer
    }

    /// The responses of both servers.
    async fn exchange(
        &mut self,
        line: usize,
        method: Method,
        message: &Value,
        session: Option<[String; 2]>,
    ) -> [Answer; 2] {
        let long = self.transport == Transport::Http1 && self.random.chance(50);
        let Line { who, policy, reduced, revision, .. } = &mut self.lines[line];
        let lane = if long { ", through hyper" } else { "" };
        let in_session = if session.is_some() { ", in a session" } else { "" };
        self.log.push(format!("{who:?}{in_session}{lane}: {method} {message}"));
        if self.transport == Transport::Stdio {
            return [policy.ask_line(message), reduced.ask_line(message)];
        }
        let [ours, theirs] = session.map_or([None, None], |[ours, theirs]| [Some(ours), Some(theirs)]);
        let mut answers = Vec::new();
        for (connection, session) in [(policy, ours), (reduced, theirs)] {
            let mut headers =
                vec![("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
            if let Some(session) = &session {
                headers.extend([("mcp-session-id", &**session), ("mcp-protocol-version", *revision)]);
            }
            if message["params"]["_meta"].is_object() {
                headers.extend([
                    ("mcp-protocol-version", "2026-07-28"),
                    ("mcp-method", message["method"].as_str().unwrap()),
                ]);
                let name = match message["method"].as_str() {
                    Some("resources/read") => message["params"]["uri"].as_str(),
                    Some("prompts/get" | "tools/call") => message["params"]["name"].as_str(),
                    _ => None,
                };
                headers.extend(name.map(|name| ("mcp-name", name)));
            }
            if long {
                headers.push(("x-long", "1"));
            }
            let body = if method == Method::POST { message.to_string() } else { String::new() };
            answers.push(
                connection.ask(Sent { method: method.clone(), who: *who, headers: &headers, body }).await,
            );
        }
        answers.try_into().unwrap()
    }

    /// Checks that both servers gave the same response.
    fn same(&self, [ours, theirs]: [Answer; 2]) -> Answer {
        let log = || self.log.join("\n");
        assert!(
            !ours.body.contains("\"cacheScope\":\"public\""),
            "shared between callers: {}\n{}",
            ours.body,
            log()
        );
        let private = theirs.body.replace("\"cacheScope\":\"public\"", "\"cacheScope\":\"private\"");
        // A caller with restricted rights gets no hint. Any hint must be that of a server without what is hidden.
        let body = if has_hint(&ours.body) { private } else { without_hint(&private) };
        let theirs = Answer { body, ..theirs };
        assert!(
            (ours.status, &ours.body) == (theirs.status, &theirs.body),
            "with the policy:\n{} {}\nwithout what is hidden:\n{} {}\n{}",
            ours.status,
            ours.body,
            theirs.status,
            theirs.body,
            log()
        );
        ours
    }

    /// Checks that the server with the policy gave no value that the other did not.
    fn fewer(&self, [ours, theirs]: [Answer; 2]) -> Answer {
        let values = |answer: &Answer| {
            let body: Value = serde_json::from_str(&answer.body).unwrap();
            body["result"]["completion"]["values"].as_array().cloned().unwrap_or_default()
        };
        let (some, all) = (values(&ours), values(&theirs));
        assert!(some.iter().all(|value| all.contains(value)), "{some:?} of {all:?}\n{}", self.log.join("\n"));
        ours
    }

    async fn initialize(&mut self, line: usize) {
        let revision = *self.random.pick(&REVISIONS);
        self.ids += 1;
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": revision, "capabilities": {}, "clientInfo": client });
        let message = json!({ "jsonrpc": "2.0", "id": self.ids, "method": "initialize", "params": params });
        let [ours, theirs] = self.exchange(line, Method::POST, &message, None).await;
        let ids = [&ours, &theirs].map(|answer| answer.session.clone().unwrap_or_default());
        self.same([ours, theirs]);
        let line = &mut self.lines[line];
        (line.session, line.revision) = (Some(ids), revision);
    }

    /// Follows the cursors from the first page to the last.
    async fn list_all(&mut self, line: usize) {
        let mut cursor: Option<String> = None;
        loop {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let ask = Ask { method: "resources/list", params, undecided: false };
            let answer: Value = serde_json::from_str(&self.ask(line, &ask).await.body).unwrap();
            let Some(next) = answer["result"]["nextCursor"].as_str() else { break };
            cursor = Some(next.to_owned());
        }
    }

    /// A session of another caller is as good as one that never was.
    async fn use_session_of_another(&mut self, line: usize) {
        let others: Vec<_> = (0..self.lines.len()).filter(|other| *other != line).collect();
        let other = *self.random.pick(&others);
        let Some([session, _]) = self.lines[other].session.clone() else { return };
        self.log.push(format!("with the session of {:?}", self.lines[other].who));
        let method = self.random.pick(&[Method::POST, Method::POST, Method::GET, Method::DELETE]).clone();
        self.ids += 1;
        let message = json!({ "jsonrpc": "2.0", "id": self.ids, "method": "resources/list", "params": {} });
        let answers = self.exchange(line, method, &message, Some([session, "never-was".into()])).await;
        self.same(answers);
    }

    /// What stands below a directory, asked of the view itself.
    async fn children(&mut self, line: usize) {
        let who = self.lines[line].who;
        let reduced = &self.reduced[usize::from(who == Who::B)];
        let directory = match self.random.chance(80) {
            true => uri(&format!("{ROOT}d{}/", self.random.below(3))),
            false => self.random.pick(&self.universe.resources).clone(),
        };
        self.log.push(format!("{who:?}: what is below {directory}"));
        let (limit, context) = (1 + self.random.below(4), Context::default());
        let (ours, theirs) =
            (self.policy.server.view_for(who.identity()), reduced.server.view_for(who.identity()));
        let mut after: Option<Uri> = None;
        for _ in 0..4 {
            let (ours, theirs) = (ours.snapshot(), theirs.snapshot());
            let ours = ours.children(&directory, after.as_ref(), limit, &context).await;
            let theirs = theirs.children(&directory, after.as_ref(), limit, &context).await;
            let theirs = theirs.map_err(|error| match (&ours, error) {
                (Err(Error::NotFound(_)), Error::Missing { uri, .. }) => Error::NotFound(uri),
                (_, error) => error,
            });
            assert_eq!(format!("{ours:?}"), format!("{theirs:?}"), "{}", self.log.join("\n"));
            after = ours.ok().and_then(|page| page.resources.last().map(|last| last.uri.clone()));
            if after.is_none() {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_view_hides_does_not_exist() {
    stream::iter(seeds(CASES))
        .map(|seed| async move { tokio::spawn(async move { Case::new(seed).await.run().await }).await.unwrap() })
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
}
