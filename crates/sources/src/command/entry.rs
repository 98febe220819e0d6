//! One command, checked and ready to run.

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

/// The names of variables that ask for a part of the output, unless an argument takes them.
pub(super) const PARTS: [&str; 2] = ["lines", "bytes"];

/// The shortest time between two runs that look for changes.
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
    /// How many bytes of an output to reserve memory for before the program starts.
    expected: ExpectedSize,
    /// How often the output was seen to be another.
    pub(super) changes: AtomicU64,
    /// What tells the last outputs that somebody read from others, where it is watched.
    given: Mutex<HashMap<Uri, u64>>,
    pub(super) followed: Arc<Followed<()>>,
}

/// What a program printed.
pub(super) struct CommandOutput {
    /// The part that was asked for.
    pub(super) data: Vec<u8>,
    /// How all of it begins.
    pub(super) head: Vec<u8>,
    /// What tells all of it from others, where it came to its end.
    pub(super) digest: Option<u64>,
}

impl RunnableCommand {
    /// Checks a command; `home` is the folder of the configuration file, as an absolute path.
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

    /// Whether a variable asks for a part of the output.
    pub(super) fn is_part(&self, name: &str) -> bool {
        PARTS.contains(&name)
            && self.rules.contains_key(name)
            && !self.line.variables().any(|used| used == name)
    }

    /// Where the output is when no variable has a value, if it is anywhere then.
    pub(super) fn bare(&self) -> Option<Uri> {
        match &self.config.uri {
            CommandUri::Resource(uri) => Some(uri.clone()),
            CommandUri::Template(template) => {
                let all = template.variables().all(|name| template.may_lack(name));
                all.then(|| template.expand(&Variables::new())).and_then(|text| Uri::parse(&text).ok())
            }
        }
    }

    /// The whole of what these variables name a part of.
    pub(super) fn whole(&self, variables: &Variables) -> Option<Uri> {
        let CommandUri::Template(template) = &self.config.uri else { return None };
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
    ) -> Result<CommandOutput> {
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
            CommandUri::Template(template) => template.matches(uri).unwrap_or_default(),
            CommandUri::Resource(_) => Variables::new(),
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
                tracing::warn!(program = ?line.program, ?said, "a command that completes failed");
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

    /// Waits until this client may run the command.
    async fn turn(&self, client: Client) -> Result<RunPermits> {
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

    fn judge(&self, uri: &Uri, ran: Ran) -> Result<CommandOutput> {
        let Ran { head, taken, digest, ending, said, .. } = ran;
        let said = said.trim_end();
        let (code, meaning) = match ending {
            ProcessEnd::Enough => (None, Some(Meaning::Ok)),
            ProcessEnd::TimedOut => {
                tracing::warn!(%uri, ?said, "a command took too long");
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
                    tracing::debug!(%uri, ?said, "a command said something on standard error");
                }
                Ok(CommandOutput { data: self.part_of(uri, taken?)?, head, digest })
            }
            Some(meaning) => {
                tracing::debug!(%uri, ?code, ?said, "a command gave nothing");
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
