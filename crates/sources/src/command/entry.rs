//! A validated command: runs it and interprets the result.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libris_core::uri_template::Variables;
use libris_core::{Budget, Client, Context, Error, Result, Uri};

use super::argument::ValueRule;
use super::budgets::{CommandBudgets, ExpectedSize, RunPermits, busy, with_queue_timeout};
use super::check::{check_environment, check_names, check_numbers, takes_lists};
use super::complete::VariableCompletions;
use super::invocation::{Invocation, environment};
use super::process::{self, ProcessEnd, ProcessOutput, ProcessSpec};
use super::range_extractor::{ExtractedRange, RangeExtent, RangeExtractor};
use super::{CommandUri, CompletionValues, Config, ExitMeaning, StderrUse};
use crate::followed::{Followed, MAX_FOLLOWED};
use crate::range::{HINT, HINT_BYTES, Range, RangeSpan};
use crate::suggest;

/// The variables that select a range of the output, unless an argument uses them.
pub(super) const RANGE_VARIABLES: [&str; 2] = ["lines", "bytes"];

/// The shortest polling interval.
pub(super) const MIN_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of characters of standard error that are sent to a caller.
const MAX_SENT_STDERR_CHARACTERS: usize = 1_000;

/// A command that can be run.
pub(super) struct RunnableCommand {
    pub(super) config: Config,
    invocation: Invocation,
    pub(super) rules: BTreeMap<String, ValueRule>,
    pub(super) completions: BTreeMap<String, VariableCompletions>,
    folder: PathBuf,
    environment: Vec<(OsString, OsString)>,
    /// Concurrent runs of this command.
    permit_budget: Arc<Budget>,
    budgets: Arc<CommandBudgets>,
    /// The memory to reserve before the program starts.
    expected: ExpectedSize,
    /// Generation counter: bumped when a poll detects a changed output.
    pub(super) changes: AtomicU64,
    /// For commands that are polled: the digests of the outputs that callers last read.
    last_digests: Mutex<HashMap<Uri, u64>>,
    pub(super) followed: Arc<Followed<()>>,
}

/// The output of a program.
pub(super) struct CommandOutput {
    /// The requested range.
    pub(super) data: Vec<u8>,
    /// The beginning of the whole output.
    pub(super) head: Vec<u8>,
    /// The digest of the whole output, if all of it was read.
    pub(super) digest: Option<u64>,
    /// The total size of the output, or the range that follows the requested one, if known.
    pub(super) extent: RangeExtent,
}

impl RunnableCommand {
    /// Validates a command; `base` is the absolute path of the folder of the configuration file.
    pub(super) fn new(config: Config, base: &Path, budgets: Arc<CommandBudgets>) -> Result<Self, String> {
        let invocation = Invocation::new(&config.run, base)?;
        let template = match &config.uri {
            CommandUri::Template(template) => Some(template.clone()),
            CommandUri::Resource(_) => None,
        };
        let names: Vec<&str> = template.iter().flat_map(|template| template.variables()).collect();
        check_numbers(&config)?;
        check_environment(&config)?;
        check_names(&config, &invocation, &names)?;
        if template.as_ref().is_some_and(takes_lists) {
            return Err(
                "its `uri` must not contain the modifier `*`, as in `{name*}`: each variable has one value"
                    .into(),
            );
        }
        let mut rules = BTreeMap::new();
        for name in &names {
            let rule =
                config.pattern.get(*name).map_or(Ok(ValueRule::Name), |pattern| ValueRule::of(pattern))?;
            rules.insert((*name).to_owned(), rule);
        }
        let mut completions = BTreeMap::new();
        for (name, values) in &config.complete {
            completions.insert(
                name.clone(),
                match values {
                    CompletionValues::Fixed(values) => VariableCompletions::Fixed(values.clone()),
                    CompletionValues::Printed(printer) => {
                        VariableCompletions::printed(Invocation::new(&printer.run, base)?)?
                    }
                },
            );
        }
        let folder = base.join(&config.folder);
        if !folder.is_dir() {
            return Err(format!(
                "its folder `{}` does not exist; hint: create it, or correct `folder`",
                config.folder.display()
            ));
        }
        let entry = Self {
            invocation,
            rules,
            completions,
            folder,
            environment: environment(&config),
            permit_budget: Budget::new(config.concurrent),
            budgets,
            expected: ExpectedSize::default(),
            changes: AtomicU64::new(0),
            last_digests: Mutex::default(),
            followed: Arc::default(),
            config,
        };
        entry.check_values(template.as_ref())?;
        Ok(entry)
    }

    /// Whether a variable selects a range of the output. If an argument uses `lines` or `bytes`, that variable is
    /// an ordinary variable.
    pub(super) fn is_range_variable(&self, name: &str) -> bool {
        RANGE_VARIABLES.contains(&name)
            && self.rules.contains_key(name)
            && !self.invocation.variables().any(|used| used == name)
    }

    /// The URI in which no variable has a value; `None` if the template has a required variable.
    pub(super) fn uri_without_variables(&self) -> Option<Uri> {
        match &self.config.uri {
            CommandUri::Resource(uri) => Some(uri.clone()),
            CommandUri::Template(template) => {
                let all = template.variables().all(|name| template.is_optional(name));
                all.then(|| template.expand(&Variables::new()).ok())
                    .flatten()
                    .and_then(|text| Uri::parse(&text).ok())
            }
        }
    }

    /// The URI without the range variables, under which changes of the output are reported; `None` if these variables
    /// select no range.
    pub(super) fn uri_without_range(&self, variables: &Variables) -> Option<Uri> {
        let CommandUri::Template(template) = &self.config.uri else { return None };
        let rest = variables.iter().filter(|(name, _)| !self.is_range_variable(name));
        let rest: Variables = rest.map(|(name, value)| (name, value.clone())).collect();
        if rest.len() == variables.len() {
            return None;
        }
        Uri::parse(&template.expand(&rest).ok()?).ok()
    }

    /// The URI of another range of the same output; `None` for a range that counts from the end.
    pub(super) fn range_uri(&self, variables: &Variables, range: Range) -> Option<Uri> {
        let CommandUri::Template(template) = &self.config.uri else { return None };
        let (name, span) = match range {
            Range::Lines(span) => ("lines", span),
            Range::Bytes(span) => ("bytes", span),
        };
        let RangeSpan::From(first, last) = span else { return None };
        let mut variables = variables.clone();
        variables.insert(name, format!("{first}-{}", last.map(|last| last.to_string()).unwrap_or_default()));
        Uri::parse(&template.expand(&variables).ok()?).ok()
    }

    /// The requested range of the output, or else the default range; `None` for the whole output.
    pub(super) fn requested_range(&self, variables: &Variables) -> Result<Option<Range>> {
        let query = |value: &dyn Fn(&str) -> Option<String>| {
            let asked = RANGE_VARIABLES.iter().filter(|name| self.is_range_variable(name));
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
        range: Option<Range>,
        context: &Context,
    ) -> Result<CommandOutput> {
        let arguments = self.arguments(variables)?;
        let permits = self.permits(context.client()).await?;
        // Reserved before the program starts: if there is no memory, the program is not run.
        let reserved = self.expected.bytes(self.config.max_size);
        context.reserve(reserved)?;
        let extractor =
            RangeExtractor::new(range, self.config.max_size).with_context(context.clone(), reserved);
        let ran = self.run(&self.invocation, arguments, extractor, permits).await?;
        self.expected.update(ran.needed);
        self.interpret_exit(uri, ran)
    }

    /// Runs the program and returns the digest of its whole output.
    pub(super) async fn digest_output(&self, uri: &Uri) -> Result<Option<u64>> {
        let variables = match &self.config.uri {
            CommandUri::Template(template) => template.matches(uri).unwrap_or_default(),
            CommandUri::Resource(_) => Variables::new(),
        };
        // If clients can read ranges, a change beyond `max_size` matters too. Otherwise an output that exceeds
        // `max_size` is an error.
        let extractor = match RANGE_VARIABLES.iter().any(|name| self.is_range_variable(name)) {
            true => RangeExtractor::digest_only(u64::MAX),
            false => RangeExtractor::digest_only(self.config.max_size),
        };
        let arguments = self.arguments(&variables)?;
        let permits = self.permits(Client::default()).await?;
        let ran = self.run(&self.invocation, arguments, extractor, permits).await?;
        self.interpret_exit(uri, ran).map(|output| output.digest)
    }

    /// Validates the values of the variables, and expands the arguments with them and with the defaults.
    fn arguments(&self, variables: &Variables) -> Result<Vec<String>> {
        let mut values = BTreeMap::new();
        for (name, rule) in self.rules.iter().filter(|(name, _)| !self.is_range_variable(name)) {
            let value = rule
                .value(name, variables)
                .map_err(|error| self.with_known_values(error, name, variables))?;
            let value = match value {
                None => self.config.default.get(name).map(String::as_str),
                given => given,
            };
            let value = value.ok_or_else(|| Error::invalid(format!("`{name}` has no value: give it one")))?;
            values.insert(name.as_str(), value);
        }
        self.invocation.arguments.iter().map(|argument| argument.fill(&values)).collect()
    }

    /// Runs a completion program and returns its output.
    pub(super) async fn run_completion_program(&self, invocation: &Invocation) -> Result<Vec<u8>> {
        let arguments = invocation.arguments.iter().map(|argument| argument.fill(&BTreeMap::new()));
        let arguments = arguments.collect::<Result<_>>()?;
        let permits = self.permits(Client::default()).await?;
        let bytes = usize::try_from(self.config.max_size).unwrap_or(usize::MAX);
        let _memory =
            with_queue_timeout(self.budgets.completion_memory.take(Client::default(), bytes)).await?;
        let extractor = RangeExtractor::new(None, self.config.max_size);
        match self.run(invocation, arguments, extractor, permits).await? {
            ProcessOutput {
                extracted: Ok(ExtractedRange::Bytes(printed)),
                ending: ProcessEnd::Exited(status),
                ..
            } if status.success() => Ok(printed),
            ProcessOutput { extracted, stderr, ending, .. } => {
                tracing::warn!(program = ?invocation.program, ?stderr, "a completion command failed");
                let why = match (ending, extracted) {
                    (_, Err(error)) => return Err(error),
                    (ProcessEnd::TimedOut, _) => {
                        format!("took longer than {}", humantime::format_duration(self.config.timeout))
                    }
                    (ProcessEnd::Exited(status), _) if !status.success() => {
                        failure(status) + &self.sent_stderr(&stderr)
                    }
                    _ => format!("printed more than {} bytes", self.config.max_size),
                };
                Err(Error::Unavailable(format!("the command that lists the values {why}")))
            }
        }
    }

    async fn run(
        &self,
        invocation: &Invocation,
        arguments: Vec<String>,
        extractor: RangeExtractor,
        permits: RunPermits,
    ) -> Result<ProcessOutput> {
        let spec = ProcessSpec {
            program: invocation.program.clone(),
            arguments,
            folder: self.folder.clone(),
            environment: self.environment.clone(),
            timeout: self.config.timeout,
            permits,
        };
        process::run(spec, extractor).await.map_err(|cause| Error::failed("run the command", cause))
    }

    /// Waits for the permits of a run.
    async fn permits(&self, client: Client) -> Result<RunPermits> {
        let _queued = self.budgets.queue.try_take(client, 1).ok_or_else(busy)?;
        with_queue_timeout(async {
            // The permit of the command is taken first, so that the runs of a busy command do not hold shared
            // permits while they wait.
            let permits = self.permit_budget.take(client, 1).await?;
            Some([permits, self.budgets.processes.take(client, 1).await?])
        })
        .await
    }

    /// Whether a value of a variable is allowed.
    pub(super) fn allows(&self, name: &str, value: &str) -> bool {
        self.rules.get(name).is_some_and(|rule| rule.allows(value))
    }

    /// The output of a run, or the error that its exit code means.
    fn interpret_exit(&self, uri: &Uri, ran: ProcessOutput) -> Result<CommandOutput> {
        let ProcessOutput { head, extracted, extent, digest, ending, stderr, .. } = ran;
        let stderr = stderr.trim_end();
        let (code, meaning) = match ending {
            ProcessEnd::Enough => (None, Some(ExitMeaning::Ok)),
            ProcessEnd::TimedOut => {
                tracing::warn!(%uri, ?stderr, "a command exceeded its time-out; hint: make it faster, or raise its `timeout`");
                let time = humantime::format_duration(self.config.timeout);
                return Err(Error::Unavailable(format!(
                    "`{uri}` took longer than {time}; ask for less, or let the administrator raise `timeout`"
                )));
            }
            ProcessEnd::Exited(status) => {
                let code = status.code().and_then(|code| u8::try_from(code).ok());
                let meaning = code.and_then(|code| self.config.exit.get(&code).copied());
                (Some(status), meaning.or(status.success().then_some(ExitMeaning::Ok)))
            }
        };
        match meaning {
            Some(ExitMeaning::Ok) => {
                if !stderr.is_empty() {
                    tracing::debug!(%uri, ?stderr, "a command wrote to standard error");
                }
                Ok(CommandOutput { data: self.range_bytes(uri, extracted?)?, head, digest, extent })
            }
            Some(meaning) => {
                tracing::debug!(%uri, ?code, ?stderr, "a command reported an error by its exit code");
                let sent = self.sent_stderr(stderr);
                Err(match meaning {
                    ExitMeaning::Denied => Error::Denied(uri.clone()),
                    ExitMeaning::Invalid => {
                        Error::invalid(format!("`{uri}` is rejected by its command as invalid{sent}"))
                    }
                    ExitMeaning::Unavailable => {
                        Error::Unavailable(format!("`{uri}` is unavailable now{sent}"))
                    }
                    ExitMeaning::NotFound | ExitMeaning::Ok if sent.is_empty() => {
                        Error::NotFound(uri.clone())
                    }
                    ExitMeaning::NotFound | ExitMeaning::Ok => {
                        Error::missing(uri, format!("the command reported{sent}"))
                    }
                })
            }
            None => {
                let why = code.map(failure).unwrap_or_default();
                tracing::warn!(%uri, %why, ?stderr, "a command failed");
                Err(Error::Unavailable(format!("the command of `{uri}` {why}{}", self.sent_stderr(stderr))))
            }
        }
    }

    /// Standard error as a suffix of an error message; empty unless it is text and the configuration allows sending it.
    fn sent_stderr(&self, stderr: &str) -> String {
        let is_text = !stderr.contains(['\0', char::REPLACEMENT_CHARACTER]);
        let stderr = stderr.trim();
        if self.config.stderr == StderrUse::Log || stderr.is_empty() || !is_text {
            return String::new();
        }
        let mut sent: String = stderr
            .chars()
            .filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t'))
            .take(MAX_SENT_STDERR_CHARACTERS)
            .collect();
        if stderr.chars().nth(MAX_SENT_STDERR_CHARACTERS).is_some() {
            sent.push('…');
        }
        format!(": {sent}")
    }

    /// Adds similar fixed completions to the error for a rejected value.
    fn with_known_values(&self, error: Error, name: &str, variables: &Variables) -> Error {
        match (error, self.completions.get(name), variables.text(name)) {
            (Error::Invalid(why), Some(VariableCompletions::Fixed(values)), Some(value)) => {
                Error::invalid(why + &suggest::did_you_mean(value, values.iter().map(String::as_str)))
            }
            (error, ..) => error,
        }
    }

    /// The bytes of a range, or the error if it is too large or begins past the end.
    fn range_bytes(&self, uri: &Uri, extracted: ExtractedRange) -> Result<Vec<u8>> {
        match extracted {
            ExtractedRange::Bytes(bytes) => Ok(bytes),
            ExtractedRange::PastEnd { count, unit } => Err(Error::invalid(format!(
                "`{uri}` begins past the end: the output has only {count} {unit}"
            ))),
            ExtractedRange::TooLarge(size) => {
                let hint = match (self.is_range_variable("lines"), self.is_range_variable("bytes")) {
                    (true, true) => Some(HINT.to_owned()),
                    (false, true) => Some(HINT_BYTES.to_owned()),
                    _ => None,
                };
                Err(Error::TooLarge { uri: uri.clone(), size, limit: self.config.max_size, hint })
            }
        }
    }

    /// The digest of the output that a caller last read at a URI.
    pub(super) fn last_read_digest(&self, uri: &Uri) -> Option<u64> {
        self.last_digests.lock().unwrap_or_else(PoisonError::into_inner).get(uri).copied()
    }

    /// Records the digest of an output that a caller read.
    pub(super) fn record_digest(&self, uri: Uri, digest: u64) {
        let mut digests = self.last_digests.lock().unwrap_or_else(PoisonError::into_inner);
        if digests.len() >= MAX_FOLLOWED {
            digests.clear();
        }
        digests.insert(uri, digest);
    }

    /// Bumps the generation counter: the output has changed.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}

/// How a program failed, by its exit status: completes "the command …".
fn failure(status: ExitStatus) -> String {
    if let Some(code) = status.code() {
        return format!("failed with exit code {code}");
    }
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("was killed by signal {signal}");
    }
    "failed".to_owned()
}
