//! A program with its arguments and its environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use libris_process::{SYSTEM_VARIABLES, executable};

use super::Config;
use super::argument::ArgumentTemplate;

/// A program with its arguments.
pub(super) struct Invocation {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<ArgumentTemplate>,
}

impl Invocation {
    /// Validates the key `run`; `base` is the folder of the configuration file.
    pub(super) fn new(run: &[String], base: &Path) -> Result<Self, String> {
        let (program, arguments) = run
            .split_first()
            .ok_or("its `run` names no program; hint: write `run = [\"PROGRAM\", \"ARGUMENT\"]`")?;
        if run.iter().any(|argument| argument.contains('\0')) {
            return Err("its `run` contains a zero byte; hint: remove it".into());
        }
        if ArgumentTemplate::parse(program).variables().next().is_some() {
            return Err(
                "its program cannot be a variable; hint: name the program, and use variables as arguments"
                    .into(),
            );
        }
        let program = executable(program.as_ref(), base).ok_or_else(|| {
            format!("there is no program `{program}`; hint: install it, or write its whole path in `run`")
        })?;
        Ok(Self { program, arguments: arguments.iter().map(|text| ArgumentTemplate::parse(text)).collect() })
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().flat_map(ArgumentTemplate::variables)
    }
}

/// The environment of a program: `PATH`, what programs of this system need, the inherited variables and those of the
/// configuration.
pub(super) fn environment(config: &Config) -> Vec<(OsString, OsString)> {
    let system = ["PATH"].into_iter().chain(SYSTEM_VARIABLES.iter().copied());
    let inherited = system.chain(config.inherit.iter().map(String::as_str));
    let inherited = inherited.filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    inherited.chain(config.env.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}
