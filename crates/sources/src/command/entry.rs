//! A validated command: runs it and interprets the result.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libris_core::uri_template::Variables;
use libris_core::{Budget, Client, Context, Error, Result, Uri};

use super::argument::ValueRule;
use super::budgets::{CommandBudgets, ExpectedSize, RunPermits, busy, within_queue};
use super::check::{check_environment, check_names, check_numbers, takes_lists};
use super::complete::Offer;
use super::line::{Invocation, environment};
use super::process::{self, Order, ProcessEnd, Ran};
use super::take::{Take, Taken};
use super::{CommandUri, Config, Meaning, Values};
use crate::followed::{Followed, MOST};
use crate::range::{HINT, HINT_BYTES, Range};

/// The variables that select a range of the output, unless an argument uses them.
pub(super) const PARTS: [&str; 2] = ["lines", "bytes"];

/// The shortest polling interval.
pub(super) const OFTEN: Duration = Duration::from_secs(1);

/// A command that can be run.
pub(super) struct RunnableCommand {
    pub(super) config: Config,
    line: Invocation,
    pub(super) rules: BTreeMap<String, ValueRule>,
    pub(super) offers: BTreeMap<String, Offer>,
    folder: PathBuf,
    environment: Vec<(OsString, OsString)>,
    turns: Arc<Budget>,
    room: Arc<CommandBudgets>,
    /// The memory to reserve before the program starts.
    expected: ExpectedSize,
    /// Generation counter: bumped when a poll detects another output.
    pub(super) changes: AtomicU64,
    /// The digests of the outputs that callers last read, while there are subscriptions.
    given: Mutex<HashMap<Uri, u64>>,
    pub(super) followed: Arc<Followed<()>>,
}

/// The output of a program.
pub(super) struct CommandOutput {
    /// The requested range.
    pub(super) data: Vec<u8>,
    /// The beginning of the whole output.
    pub(super) head: Vec<u8>,
    /// The digest of the whole output, if the program ended by itself.
    pub(super) digest: Option<u64>,
}

impl RunnableCommand {
    /// Validates a command; `home` is the absolute path of the folder of the configuration file.
    pub(super) fn new(config: Config, home: &Path, room: Arc<CommandBudgets>) -> Result<Self, String> {
        let line = Invocation::new(&config.run, home)?;
        let template = match &config.uri {
            CommandUri::Template(template) => Some(template.clone()),
            CommandUri::Resource(_) => None,
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
            let rule =
                config.pattern.get(*name).map_or(Ok(ValueRule::Name), |pattern| ValueRule::of(pattern))?;
            rules.insert((*name).to_owned(), rule);
        }
        let mut offers = BTreeMap::new();
        for (name, values) in &config.complete {
            offers.insert(
                name.clone(),
                match values {
                    Values::Fixed(values) => Offer::Fixed(values.clone()),
                    Values::Printed(printer) => Offer::printed(Invocation::new(&printer.run, home)?)?,
                },
            );
        }
        let folder = home.join(&config.folder);
        if !folder.is_dir() {
            return Err(format!("its folder `{}` does not exist", config.folder.display()));
        }
        let entry = Self {
            line,
            rules,
            offers,
            folder,
            environment: environment(&config),
            turns: Budget::new(config.concurrent),
            room,
            expected: ExpectedSize::default(),
            changes: AtomicU64::new(0),
            given: Mutex::default(),
            followed: Arc::default(),
            config,
        };
        entry.check_values(template.as_ref())?;
        Ok(entry)
    }

    /// Whether a variable selects a range of the output.
    pub(super) fn is_part(&self, name: &str) -> bool {
        PARTS.contains(&name)
            && self.rules.contains_key(name)
            && !self.line.variables().any(|used| used == name)
    }

    /// The URI without values of variables, if that is a resource.
    pub(super) fn bare(&self) -> Option<Uri> {
        match &self.config.uri {
            CommandUri::Resource(uri) => Some(uri.clone()),
            CommandUri::Template(template) => {
                let all = template.variables().all(|name| template.is_optional(name));
                all.then(|| template.expand(&Variables::new())).and_then(|text| Uri::parse(&text).ok())
            }
        }
    }

    /// The URI of the whole output, if these variables select a range.
    pub(super) fn whole(&self, variables: &Variables) -> Option<Uri> {
        let CommandUri::Template(template) = &self.config.uri else { return None };
        let rest = variables.iter().filter(|(name, _)| !self.is_part(name));
        let rest: Variables = rest.map(|(name, value)| (name, value.clone())).collect();
        if rest.len() == variables.len() {
            return None;
        }
        Uri::parse(&template.expand(&rest)).ok()
    }

    /// The requested range of the output, or the default range.
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

    /// Runs the program with these variables and returns the range of its output.
    pub(super) async fn output(
        &self,
        uri: &Uri,
        variables: &Variables,
        part: Option<Range>,
        context: &Context,
    ) -> Result<CommandOutput> {
        let arguments = self.arguments(variables)?;
        let turn = self.turn(context.client()).await?;
        // Before the start: a run must not be repeated for lack of memory.
        let reserved = self.expected.bytes(self.config.max_size);
        context.reserve(reserved)?;
        let take = Take::new(part, self.config.max_size).within(context.clone(), reserved);
        let ran = self.run(&self.line, arguments, take, turn).await?;
        self.expected.update(ran.reserved);
        self.judge(uri, ran)
    }

    /// Runs the program and returns the digest of its whole output.
    pub(super) async fn look(&self, uri: &Uri) -> Result<Option<u64>> {
        let variables = match &self.config.uri {
            CommandUri::Template(template) => template.matches(uri).unwrap_or_default(),
            CommandUri::Resource(_) => Variables::new(),
        };
        // A change anywhere may concern some range. Without ranges, an output over the limit is an error.
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

    /// Runs a completion program and returns its output.
    pub(super) async fn print(&self, line: &Invocation) -> Result<Vec<u8>> {
        let arguments = line.arguments.iter().map(|argument| argument.fill(&BTreeMap::new()));
        let arguments = arguments.collect::<Result<_>>()?;
        let turn = self.turn(Client::default()).await?;
        let bytes = usize::try_from(self.config.max_size).unwrap_or(usize::MAX);
        let _memory = within_queue(self.room.values.take(Client::default(), bytes)).await?;
        let take = Take::new(None, self.config.max_size);
        match self.run(line, arguments, take, turn).await? {
            Ran { taken: Ok(Taken::Part(printed)), ending: ProcessEnd::Exited(status), .. }
                if status.success() =>
            {
                Ok(printed)
            }
            Ran { said, .. } => {
                tracing::warn!(program = ?line.program, ?said, "a completion command failed");
                Err(Error::Unavailable("the values are unavailable now; try again later".into()))
            }
        }
    }

    async fn run(
        &self,
        line: &Invocation,
        arguments: Vec<String>,
        take: Take,
        turn: RunPermits,
    ) -> Result<Ran> {
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

    /// Waits for the permits of a run.
    async fn turn(&self, client: Client) -> Result<RunPermits> {
        let _queued = self.room.queue.try_take(client, 1).ok_or_else(busy)?;
        within_queue(async {
            // The permit of the command first, so that a busy command does not occupy shared permits while it waits.
            let turn = self.turns.take(client, 1).await?;
            Some([turn, self.room.processes.take(client, 1).await?])
        })
        .await
    }

    /// Whether a value of a variable is allowed.
    pub(super) fn allows(&self, name: &str, value: &str) -> bool {
        self.rules.get(name).is_some_and(|rule| rule.allows(value))
    }

    fn judge(&self, uri: &Uri, ran: Ran) -> Result<CommandOutput> {
        let Ran { head, taken, digest, ending, said, .. } = ran;
        let said = said.trim_end();
        let (code, meaning) = match ending {
            ProcessEnd::Enough => (None, Some(Meaning::Ok)),
            ProcessEnd::TimedOut => {
                tracing::warn!(%uri, ?said, "a command exceeded its time-out");
                let time = humantime::format_duration(self.config.timeout);
                return Err(Error::Unavailable(format!("`{uri}` took longer than {time}")));
            }
            ProcessEnd::Exited(status) => {
                let said = status.code().and_then(|code| u8::try_from(code).ok());
                let meaning = said.and_then(|code| self.config.exit.get(&code).copied());
                (Some(status), meaning.or(status.success().then_some(Meaning::Ok)))
            }
        };
        match meaning {
            Some(Meaning::Ok) => {
                if !said.is_empty() {
                    tracing::debug!(%uri, ?said, "a command wrote to standard error");
                }
                Ok(CommandOutput { data: self.part_of(uri, taken?)?, head, digest })
            }
            Some(meaning) => {
                tracing::debug!(%uri, ?code, ?said, "a command reported an error by its exit code");
                Err(match meaning {
                    Meaning::Denied => Error::Denied(uri.clone()),
                    Meaning::Invalid => {
                        Error::invalid(format!("`{uri}` is rejected by its command as invalid"))
                    }
                    Meaning::Unavailable => Error::Unavailable(format!("`{uri}` is unavailable now")),
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

    /// The digest of the output that a caller last read at a URI.
    pub(super) fn given(&self, uri: &Uri) -> Option<u64> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner).get(uri).copied()
    }

    /// Records the digest of an output that a caller read.
    pub(super) fn give(&self, uri: Uri, digest: u64) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if given.len() >= MOST {
            given.clear();
        }
        given.insert(uri, digest);
    }

    /// Bumps the generation counter: the output has changed.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}
