//! What can be said about a command.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use libris_core::{Uri, UriTemplate};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::descriptive::with_descriptive_keys;

with_descriptive_keys! {
    /// A resource or a template that is what a program prints.
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
        /// Where it is: a URI such as `screen://localhost/display1`, or a template such as
        /// `calendar://events/{year}`.
        pub uri: CommandUri,
        /// The program and its arguments. No shell reads them. `{{name}}` stands for the value of the variable
        /// `name`, and is never more than a part of the one argument that it stands in. A program without a
        /// `/` is looked for in `PATH`, one with a `/` is relative to the configuration file.
        pub run: Vec<String>,
        /// For variables: the regular expression that the whole value must match. Where none is said, a value
        /// is a name: letters, digits and `_`, and after the first of them also `.`, `,`, `:`, `@`, `+`, `=`,
        /// `-` and spaces.
        #[serde(default)]
        pub pattern: BTreeMap<String, String>,
        /// For variables that a URI may leave out: the value that they then have.
        #[serde(default)]
        pub default: BTreeMap<String, String>,
        /// For variables: the values to offer, or a command that prints them, one on each line.
        #[serde(default)]
        pub complete: BTreeMap<String, Values>,
        /// The folder that the program runs in, relative to the configuration file; the folder of that file
        /// where it is not said.
        #[serde(default)]
        pub folder: PathBuf,
        /// The variables of the environment, beside `PATH`, that the program gets as they are here.
        #[serde(default)]
        pub inherit: Vec<String>,
        /// Further variables of the environment.
        #[serde(default)]
        pub env: BTreeMap<String, String>,
        /// How long the program may run. The wait for its turn does not count; it ends after a minute.
        #[serde(default = "ten_seconds", deserialize_with = "crate::settings::duration")]
        pub timeout: Duration,
        /// The most bytes that are read of what it prints. At most 1 GiB.
        #[serde(default = "eight_mebibytes", deserialize_with = "crate::settings::content_bytes")]
        pub max_size: u64,
        /// How many may run at the same time. From 1 to 256, which is also the most of all commands together.
        #[serde(default = "four", deserialize_with = "crate::settings::processes")]
        pub concurrent: usize,
        /// What exit codes mean: `"ok"`, `"not-found"`, `"denied"`, `"invalid"` or `"unavailable"`. Others than
        /// 0 are failures.
        #[serde(default, deserialize_with = "codes")]
        pub exit: BTreeMap<u8, Meaning>,
        /// For how long what it printed is given again, to anybody.
        #[serde(default, deserialize_with = "crate::settings::optional_duration")]
        pub cache: Option<Duration>,
        /// How often it is run, while somebody listens, to see whether it prints something else.
        #[serde(default, deserialize_with = "crate::settings::optional_duration")]
        pub poll: Option<Duration>,
        /// The media type. What the output looks like where it is not said.
        pub mime: Option<String>,
    }
}

/// Where the output of a command is.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandUri {
    /// At one URI.
    Resource(Uri),
    /// At those of a template.
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

/// The values to offer for a variable.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "expected a list of values, or a command as in `{ run = [\"ls\"] }`")]
pub enum Values {
    /// These.
    Fixed(Vec<String>),
    /// Those that a command prints, one on each line.
    Printed(Printer),
}

/// A command that prints values.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printer {
    /// The program and its arguments. It runs in the same folder and environment and with the same limits
    /// as the command whose variable it is for.
    pub run: Vec<String>,
}

/// What an exit code means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Meaning {
    /// What it printed is the answer.
    Ok,
    /// Nothing is at this URI.
    NotFound,
    /// It is there, but not for this caller.
    Denied,
    /// The question makes no sense.
    Invalid,
    /// It cannot be had now.
    Unavailable,
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

fn eight_mebibytes() -> u64 {
    8 << 20
}

fn four() -> usize {
    4
}

/// The keys of a table are texts in TOML.
fn codes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u8, Meaning>, D::Error> {
    let said = BTreeMap::<String, Meaning>::deserialize(deserializer)?;
    let code = |(code, meaning): (String, Meaning)| match code.parse() {
        Ok(code) => Ok((code, meaning)),
        Err(_) => Err(D::Error::custom(format!("`{code}` is not an exit code: they go from 0 to 255"))),
    };
    said.into_iter().map(code).collect()
}
