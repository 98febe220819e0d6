//! The configuration of the command source.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use libris_core::{Uri, UriTemplate};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::descriptive::with_descriptive_keys;

with_descriptive_keys! {
    /// A resource or template whose content is the output of a program.
    ///
    /// ```toml
    /// [[command]]
    /// uri = "log://files/{name}{?lines,bytes}"
    /// run = ["cat", "--", "{{name}}"]
    /// folder = "/var/log"
    /// exit = { 1 = "not-found" }
    /// ```
    #[derive(Clone, Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Config {
        /// A URI such as `screen://localhost/display1`, or a template such as
        /// `calendar://events/{year}`.
        pub uri: CommandUri,
        /// The program and its arguments, which are passed without a shell. `{{name}}` is replaced by the value of the
        /// variable `name`, always within one argument. A program without `/` is searched in `PATH`; one with `/` is
        /// relative to the configuration file.
        pub run: Vec<String>,
        /// For variables: a regular expression that the whole value must match. Default: a name of letters, digits and
        /// `_`, and after the first character also `.`, `,`, `:`, `@`, `+`, `=`, `-` and spaces.
        #[serde(default)]
        pub pattern: BTreeMap<String, String>,
        /// For variables that a URI may omit: their default values.
        #[serde(default)]
        pub default: BTreeMap<String, String>,
        /// For variables: completions, or a command that prints them, one per line.
        #[serde(default)]
        pub complete: BTreeMap<String, CompletionValues>,
        /// The working directory of the program, relative to the configuration file. Default: the folder of that file.
        #[serde(default)]
        pub folder: PathBuf,
        /// Environment variables that the program inherits, besides `PATH`.
        #[serde(default)]
        pub inherit: Vec<String>,
        /// Additional environment variables.
        #[serde(default)]
        pub env: BTreeMap<String, String>,
        /// The time-out of a run. The wait for a permit does not count; it has its own time-out of one minute.
        #[serde(default = "ten_seconds", deserialize_with = "crate::settings::duration")]
        pub timeout: Duration,
        /// The largest output, in bytes. At most 1 GiB.
        #[serde(default = "eight_mebibytes", deserialize_with = "crate::settings::content_bytes")]
        pub max_size: u64,
        /// The maximum number of concurrent runs. From 1 to 256, which is also the limit for all commands together.
        #[serde(default = "default_concurrency", deserialize_with = "crate::settings::processes")]
        pub concurrent: usize,
        /// The meanings of exit codes: `"ok"`, `"not-found"`, `"denied"`, `"invalid"` or `"unavailable"`. Default: codes
        /// other than 0 are failures.
        #[serde(default, deserialize_with = "codes")]
        pub exit: BTreeMap<u8, ExitMeaning>,
        /// What happens to standard error, of which only the first 4 KiB are used: `"log"` writes it to the log;
        /// `"send"` also sends the first 1,000 characters of it to the caller if the program fails.
        #[serde(default)]
        pub stderr: StderrUse,
        /// How long the output is cached, for all callers.
        #[serde(default, deserialize_with = "crate::settings::optional_duration")]
        pub cache: Option<Duration>,
        /// The polling interval: while there are subscriptions, the program is run and its output compared.
        #[serde(default, deserialize_with = "crate::settings::optional_duration")]
        pub poll: Option<Duration>,
        /// The media type. Default: detected from the output.
        pub mime: Option<String>,
    }
}

/// The URI or template of a command.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandUri {
    /// One URI.
    Resource(Uri),
    /// The URIs of a template.
    Template(UriTemplate),
}

impl CommandUri {
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::Resource(uri) => uri.as_str(),
            Self::Template(template) => template.as_str(),
        }
    }
}

impl<'de> Deserialize<'de> for CommandUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.contains('{') {
            true => UriTemplate::parse(&text).map(Self::Template),
            false => Uri::parse(&text).map(Self::Resource),
        }
        .map_err(D::Error::custom)
    }
}

/// The completions of a variable.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a list of values, or a command as in `{ run = [\"ls\"] }`")]
pub enum CompletionValues {
    /// Fixed values.
    Fixed(Vec<String>),
    /// The lines that a command prints.
    Printed(CompletionCommand),
}

/// A command that prints completions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionCommand {
    /// The program and its arguments. It has the same working directory, environment and limits as the command that it
    /// belongs to.
    pub run: Vec<String>,
}

/// The meaning of an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitMeaning {
    /// The output is the content.
    Ok,
    /// The resource does not exist.
    NotFound,
    /// The caller is not allowed to read the resource.
    Denied,
    /// The values of the variables are invalid.
    Invalid,
    /// The resource is unavailable now.
    Unavailable,
}

/// What happens to the standard error of a program that fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StderrUse {
    /// It is logged only: it may contain paths or secrets.
    #[default]
    Log,
    /// It is logged, and its beginning is part of the error that the caller gets.
    Send,
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

fn eight_mebibytes() -> u64 {
    8 << 20
}

fn default_concurrency() -> usize {
    4
}

/// Parses exit codes: the keys of a TOML table are strings.
fn codes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u8, ExitMeaning>, D::Error> {
    let meanings = BTreeMap::<String, ExitMeaning>::deserialize(deserializer)?;
    let code = |(code, meaning): (String, ExitMeaning)| match code.parse() {
        Ok(code) => Ok((code, meaning)),
        Err(_) => {
            Err(D::Error::custom(format!("`{code}` is not an exit code; hint: use a number from 0 to 255")))
        }
    };
    meanings.into_iter().map(code).collect()
}
