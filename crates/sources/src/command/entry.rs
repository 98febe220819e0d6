//! One command, checked and ready to run.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libris_core::uri_template::Variables;
use libris_core::{Budget, Client, Context, Error, Lease, Result, Uri, UriTemplate};
use tokio::time::timeout;

use super::argument::{Argument, Rule};
use super::complete::Offer;
use super::process::{self, Ending, Order, Ran};
use super::take::{Take, Taken};
use super::{Config, Meaning, Place, Values};
use crate::followed::{Followed, MOST};
use crate::range::{HINT, HINT_BYTES, Range};

/// The names of variables that ask for a part of the output, unless an argument takes them.
const PARTS: [&str; 2] = ["lines", "bytes"];

/// The shortest time between two runs that look for changes.
const OFTEN: Duration = Duration::from_secs(1);

/// The most processes that all commands together run at once.
const PROCESSES: usize = 256;

/// How many runs of all commands may wait for their turn, and for how long one does. What the program itself may take
/// begins with its start.
const QUEUE: usize = 1024;
const QUEUED: Duration = Duration::from_secs(60);

/// The most bytes that may be taken at once of what programs print to complete something.
const VALUES: usize = 16 << 20;

/// What all commands of a configuration share, each client within its share.
pub(super) struct Room {
    processes: Arc<Budget>,
    values: Arc<Budget>,
    queue: Arc<Budget>,
}

impl Default for Room {
    fn default() -> Self {
        Self { processes: Budget::new(PROCESSES), values: Budget::new(VALUES), queue: Budget::new(QUEUE) }
    }
}

/// A command that can be run.
pub(super) struct Entry {
    pub(super) config: Config,
    line: Line,
    rules: BTreeMap<String, Rule>,
    pub(super) offers: BTreeMap<String, Offer>,
    folder: PathBuf,
    environment: Vec<(OsString, OsString)>,
    turns: Arc<Budget>,
    room: Arc<Room>,
    /// How many bytes of an output to reserve memory for before the program starts.
    expected: Expected,
    /// How often the output was seen to be another.
    pub(super) changes: AtomicU64,
    /// What tells the last outputs that somebody read from others, where it is watched.
    given: Mutex<HashMap<Uri, u64>>,
    pub(super) followed: Arc<Followed<()>>,
}

/// What a program printed.
pub(super) struct Output {
    /// The part that was asked for.
    pub(super) data: Vec<u8>,
    /// How all of it begins.
    pub(super) head: Vec<u8>,
    /// What tells all of it from others, where it came to its end.
    pub(super) digest: Option<u64>,
}

/// A program with its arguments.
pub(super) struct Line {
    program: PathBuf,
    arguments: Vec<Argument>,
}

impl Line {
    fn new(run: &[String], home: &Path) -> Result<Self, String> {
        let (program, arguments) = run.split_first().ok_or("its `run` names no program")?;
        if run.iter().any(|argument| argument.contains('\0')) {
            return Err("its `run` has a zero byte in it".into());
        }
        if Argument::parse(program).variables().next().is_some() {
            return Err("its program cannot be a variable: only arguments can".into());
        }
        let program = find(program, home).ok_or_else(|| format!("there is no program `{program}`"))?;
        Ok(Self { program, arguments: arguments.iter().map(|text| Argument::parse(text)).collect() })
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().flat_map(Argument::variables)
    }
}

/// The file of a program: below `home` if it has a slash in its name, and in `PATH` otherwise.
fn find(program: &str, home: &Path) -> Option<PathBuf> {
    let runs = |file: &PathBuf| {
        std::fs::metadata(file)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(home.join(program)).filter(runs);
    }
    let path = std::env::var_os("PATH")?;
    // A relative folder would be another one for each place that the server is started from.
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(runs)
}

impl Entry {
    /// Checks a command; `home` is the folder of the configuration file, as an absolute path.
    pub(super) fn new(config: Config, home: &Path, room: Arc<Room>) -> Result<Self, String> {
        let line = Line::new(&config.run, home)?;
        let template = match &config.uri {
            Place::Template(template) => Some(template.clone()),
            Place::Resource(_) => None,
        };
        let names: Vec<&str> = template.iter().flat_map(|template| template.variables()).collect();
        check_numbers(&config)?;
        check_environment(&config)?;
        check_names(&config, &line, &names)?;
        if template.as_ref().is_some_and(takes_lists) {
            return Err("its variables must not have `*`: each is one value".into());
        }
        let mut rules = BTreeMap::new();
        for name in &names {
            let rule = config.pattern.get(*name).map_or(Ok(Rule::Name), |pattern| Rule::of(pattern))?;
            rules.insert((*name).to_owned(), rule);
        }
        let mut offers = BTreeMap::new();
        for (name, values) in &config.complete {
            offers.insert(
                name.clone(),
                match values {
                    Values::Fixed(values) => Offer::Fixed(values.clone()),
                    Values::Printed(printer) => Offer::printed(Line::new(&printer.run, home)?)?,
                },
            );
        }
        let folder = home.join(&config.folder);
        if !folder.is_dir() {
            return Err(format!("its folder `{}` is not there", config.folder.display()));
        }
        let entry = Self {
            line,
            rules,
            offers,
            folder,
            environment: environment(&config),
            turns: Budget::new(config.concurrent),
            room,
            expected: Expected::default(),
            changes: AtomicU64::new(0),
            given: Mutex::default(),
            followed: Arc::default(),
            config,
        };
        entry.check_values(template.as_ref())?;
        Ok(entry)
    }

    /// Values of the configuration must be such that a caller may give too.
    fn check_values(&self, template: Option<&UriTemplate>) -> Result<(), String> {
        for (name, rule) in &self.rules {
            if self.is_part(name) {
                if self.config.pattern.contains_key(name) {
                    return Err(format!("its `{name}` asks for a part of the output and has no pattern"));
                }
                continue;
            }
            let default = self.config.default.get(name);
            if default.is_none() && template.is_some_and(|template| template.may_lack(name)) {
                return Err(format!("its variable `{name}` may be left out and so needs a `default`"));
            }
            let offered = match self.offers.get(name) {
                Some(Offer::Fixed(values)) => &values[..],
                _ => &[],
            };
            if let Some(value) = default.into_iter().chain(offered).find(|value| !rule.allows(value)) {
                return Err(format!("`{value}` may not be the value of its variable `{name}`"));
            }
        }
        let parts = PARTS.iter().filter(|name| self.config.default.contains_key(**name));
        if parts.clone().any(|name| self.is_part(name)) {
            self.part(&Variables::new()).map_err(|error| format!("its `default`: {error}"))?;
        }
        Ok(())
    }

    /// Whether a variable asks for a part of the output.
    fn is_part(&self, name: &str) -> bool {
        PARTS.contains(&name)
            && self.rules.contains_key(name)
            && !self.line.variables().any(|used| used == name)
    }

    /// Where the output is when no variable has a value, if it is anywhere then.
    pub(super) fn bare(&self) -> Option<Uri> {
        match &self.config.uri {
            Place::Resource(uri) => Some(uri.clone()),
            Place::Template(template) => {
                let all = template.variables().all(|name| template.may_lack(name));
                all.then(|| template.expand(&Variables::new())).and_then(|text| Uri::parse(&text).ok())
            }
        }
    }

    /// The whole of what these variables name a part of.
    pub(super) fn whole(&self, variables: &Variables) -> Option<Uri> {
        let Place::Template(template) = &self.config.uri else { return None };
        let rest = variables.iter().filter(|(name, _)| !self.is_part(name));
        let rest: Variables = rest.map(|(name, value)| (name, value.clone())).collect();
        if rest.len() == variables.len() {
            return None;
        }
        Uri::parse(&template.expand(&rest)).ok()
    }

    /// The part of the output that is asked for, or that is given where none is.
    pub(super) fn part(&self, variables: &Variables) -> Result<Option<Range>> {
        let query = |value: &dyn Fn(&str) -> Option<String>| {
            let asked = PARTS.iter().filter(|name| self.is_part(name));
            let pairs = asked.filter_map(|name| Some(format!("{name}={}", value(name)?)));
            Range::parse(&pairs.collect::<Vec<_>>().join("&"))
        };
        match query(&|name| variables.text(name).map(str::to_owned))? {
            None => query(&|name| self.config.default.get(name).cloned()),
            asked => Ok(asked),
        }
    }

    /// What the program prints for these variables, or that part of it.
    pub(super) async fn output(
        &self,
        uri: &Uri,
        variables: &Variables,
        part: Option<Range>,
        context: &Context,
    ) -> Result<Output> {
        let arguments = self.arguments(variables)?;
        let turn = self.turn(context.client()).await?;
        // Before the program runs, since it must not run again because of memory.
        let reserved = self.expected.bytes(self.config.max_size);
        context.reserve(reserved)?;
        let take = Take::new(part, self.config.max_size).within(context.clone(), reserved);
        let ran = self.run(&self.line, arguments, take, turn).await?;
        self.expected.update(ran.reserved);
        self.judge(uri, ran)
    }

    /// What tells all that is printed for a URI from other outputs.
    pub(super) async fn look(&self, uri: &Uri) -> Result<Option<u64>> {
        let variables = match &self.config.uri {
            Place::Template(template) => template.matches(uri).unwrap_or_default(),
            Place::Resource(_) => Variables::new(),
        };
        // A change anywhere may be one of some part. What has no parts cannot be read when it is too large.
        let take = match PARTS.iter().any(|name| self.is_part(name)) {
            true => Take::nothing(u64::MAX),
            false => Take::nothing(self.config.max_size),
        };
        let arguments = self.arguments(&variables)?;
        let turn = self.turn(Client::default()).await?;
        let ran = self.run(&self.line, arguments, take, turn).await?;
        self.judge(uri, ran).map(|output| output.digest)
    }

    fn arguments(&self, variables: &Variables) -> Result<Vec<String>> {
        let mut values = BTreeMap::new();
        for (name, rule) in self.rules.iter().filter(|(name, _)| !self.is_part(name)) {
            let value = match rule.value(name, variables)? {
                None => self.config.default.get(name).map(String::as_str),
                given => given,
            };
            let value = value.ok_or_else(|| Error::invalid(format!("`{name}` has no value")))?;
            values.insert(name.as_str(), value);
        }
        self.line.arguments.iter().map(|argument| argument.fill(&values)).collect()
    }

    /// What a program of a completion prints.
    pub(super) async fn print(&self, line: &Line) -> Result<Vec<u8>> {
        let arguments = line.arguments.iter().map(|argument| argument.fill(&BTreeMap::new()));
        let arguments = arguments.collect::<Result<_>>()?;
        let turn = self.turn(Client::default()).await?;
        let bytes = usize::try_from(self.config.max_size).unwrap_or(usize::MAX);
        let _memory = within_queue(self.room.values.take(Client::default(), bytes)).await?;
        let take = Take::new(None, self.config.max_size);
        match self.run(line, arguments, take, turn).await? {
            Ran { taken: Ok(Taken::Part(printed)), ending: Ending::Exited(status), .. }
                if status.success() =>
            {
                Ok(printed)
            }
            Ran { said, .. } => {
                tracing::warn!(program = ?line.program, ?said, "a command that completes failed");
                Err(Error::Unavailable("the values cannot be had now".into()))
            }
        }
    }

    async fn run(&self, line: &Line, arguments: Vec<String>, take: Take, turn: Turn) -> Result<Ran> {
        let order = Order {
            program: line.program.clone(),
            arguments,
            folder: self.folder.clone(),
            environment: self.environment.clone(),
            timeout: self.config.timeout,
            turn,
        };
        process::run(order, take).await.map_err(|cause| Error::failed("run the command", cause))
    }

    /// Waits until this client may run the command.
    async fn turn(&self, client: Client) -> Result<Turn> {
        let _queued = self.room.queue.try_take(client, 1).ok_or_else(busy)?;
        within_queue(async {
            // Its own first, so that a command that is asked for much takes no process from others while it waits.
            let turn = self.turns.take(client, 1).await?;
            Some([turn, self.room.processes.take(client, 1).await?])
        })
        .await
    }

    /// Whether this may be the value of a variable.
    pub(super) fn allows(&self, name: &str, value: &str) -> bool {
        self.rules.get(name).is_some_and(|rule| rule.allows(value))
    }

    fn judge(&self, uri: &Uri, ran: Ran) -> Result<Output> {
        let Ran { head, taken, digest, ending, said, .. } = ran;
        let said = said.trim_end();
        let (code, meaning) = match ending {
            Ending::Enough => (None, Some(Meaning::Ok)),
            Ending::TimedOut => {
                tracing::warn!(%uri, ?said, "a command took too long");
                let time = humantime::format_duration(self.config.timeout);
                return Err(Error::Unavailable(format!("`{uri}` took longer than {time}")));
            }
            Ending::Exited(status) => {
                let said = status.code().and_then(|code| u8::try_from(code).ok());
                let meaning = said.and_then(|code| self.config.exit.get(&code).copied());
                (Some(status), meaning.or(status.success().then_some(Meaning::Ok)))
            }
        };
        match meaning {
            Some(Meaning::Ok) => {
                if !said.is_empty() {
                    tracing::debug!(%uri, ?said, "a command said something on standard error");
                }
                Ok(Output { data: self.part_of(uri, taken?)?, head, digest })
            }
            Some(meaning) => {
                tracing::debug!(%uri, ?code, ?said, "a command gave nothing");
                Err(match meaning {
                    Meaning::Denied => Error::Denied(uri.clone()),
                    Meaning::Invalid => Error::invalid(format!("`{uri}` is not what its command can give")),
                    Meaning::Unavailable => Error::Unavailable(format!("`{uri}` cannot be had now")),
                    Meaning::NotFound | Meaning::Ok => Error::NotFound(uri.clone()),
                })
            }
            None => {
                let status = code.map(|status| status.to_string()).unwrap_or_default();
                tracing::warn!(%uri, %status, ?said, "a command failed");
                Err(Error::failed("run the command", status))
            }
        }
    }

    fn part_of(&self, uri: &Uri, taken: Taken) -> Result<Vec<u8>> {
        match taken {
            Taken::Part(part) => Ok(part),
            Taken::Past(count) => {
                Err(Error::invalid(format!("`{uri}` begins past the end: there are only {count}")))
            }
            Taken::Over(size) => {
                let hint = match (self.is_part("lines"), self.is_part("bytes")) {
                    (true, true) => Some(HINT.to_owned()),
                    (false, true) => Some(HINT_BYTES.to_owned()),
                    _ => None,
                };
                Err(Error::TooLarge { uri: uri.clone(), size, limit: self.config.max_size, hint })
            }
        }
    }

    /// What tells the output that somebody last read at a URI from others, where that is known.
    pub(super) fn given(&self, uri: &Uri) -> Option<u64> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).get(uri).copied()
    }

    /// Notes what somebody read at a URI.
    pub(super) fn give(&self, uri: Uri, digest: u64) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if given.len() >= MOST {
            given.clear();
        }
        given.insert(uri, digest);
    }

    /// Notes that the output is another now.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}

/// The right to run a command, held until no process of it is left: one of its own turns, and one of all processes.
pub(super) type Turn = [Lease; 2];

fn busy() -> Error {
    Error::Unavailable("the command is busy: try again later".into())
}

/// What is waited for in a queue, for as long as a run waits there.
async fn within_queue<T>(waiting: impl Future<Output = Option<T>>) -> Result<T> {
    timeout(QUEUED, waiting).await.ok().flatten().ok_or_else(busy)
}

/// How large outputs are, as far as the last ones tell. A run reserves that much before it starts, and waits for it; one
/// that needs more when it runs fails where there is no memory.
#[derive(Default)]
struct Expected(AtomicU64);

impl Expected {
    /// What a run begins with, at least. Most outputs are smaller.
    const LEAST: u64 = 256 << 10;

    fn bytes(&self, limit: u64) -> u64 {
        self.0.load(Ordering::Relaxed).max(Self::LEAST).min(limit)
    }

    /// Notes what a run needed. After large outputs, small ones bring it down slowly.
    fn update(&self, needed: u64) {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(needed.max(before - before / 8), Ordering::Relaxed);
    }
}

fn check_numbers(config: &Config) -> Result<(), String> {
    if config.timeout.is_zero() {
        return Err("its `timeout` must be longer than nothing".into());
    }
    if config.concurrent == 0 || config.concurrent > PROCESSES {
        return Err(format!("its `concurrent` must be from 1 to {PROCESSES}"));
    }
    if config.poll.is_some_and(|poll| poll < OFTEN) {
        return Err("its `poll` must be at least `1s`".into());
    }
    config.check_descriptive_keys()
}

fn check_environment(config: &Config) -> Result<(), String> {
    let is_name = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
    match config.env.keys().chain(&config.inherit).find(|name| !is_name(name)) {
        Some(name) => Err(format!("`{name}` is no name for a variable of the environment")),
        None if config.env.values().any(|value| value.contains('\0')) => {
            Err("its `env` has a zero byte in it".into())
        }
        None => Ok(()),
    }
}

/// A misspelt variable would otherwise show only when the command is run.
fn check_names(config: &Config, line: &Line, names: &[&str]) -> Result<(), String> {
    let said = config.pattern.keys().chain(config.default.keys()).chain(config.complete.keys());
    let said = said.map(String::as_str).chain(line.variables());
    if let Some(unknown) = said.into_iter().find(|name| !names.contains(name)) {
        let known: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        return Err(match known.is_empty() {
            true => format!("it has no variable `{unknown}`"),
            false => format!("it has no variable `{unknown}`, only {}", known.join(", ")),
        });
    }
    let used = |name: &str| line.variables().any(|used| used == name) || PARTS.contains(&name);
    match names.iter().find(|name| !used(name)) {
        Some(name) => Err(format!("its variable `{name}` stands nowhere in `run`")),
        None => Ok(()),
    }
}

/// Whether a variable of the template can have several values.
fn takes_lists(template: &UriTemplate) -> bool {
    let expressions = template.as_str().split('{').skip(1);
    expressions.filter_map(|rest| rest.split_once('}')).any(|(inside, _)| inside.contains('*'))
}

fn environment(config: &Config) -> Vec<(OsString, OsString)> {
    let inherited = ["PATH"].into_iter().chain(config.inherit.iter().map(String::as_str));
    let inherited = inherited.filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    inherited.chain(config.env.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}
