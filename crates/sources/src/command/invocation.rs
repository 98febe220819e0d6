//! A program with its arguments and its environment.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

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
        let program = find(program, base).ok_or_else(|| {
            format!("there is no program `{program}`; hint: install it, or write its whole path in `run`")
        })?;
        Ok(Self { program, arguments: arguments.iter().map(|text| ArgumentTemplate::parse(text)).collect() })
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().flat_map(ArgumentTemplate::variables)
    }
}

/// The executable of a program: relative to `base` if its name contains a slash, otherwise from `PATH`.
fn find(program: &str, base: &Path) -> Option<PathBuf> {
    let runs = |file: &PathBuf| {
        std::fs::metadata(file)
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(base.join(program)).filter(runs);
    }
    let path = std::env::var_os("PATH")?;
    // A relative folder in `PATH` would depend on the working directory of the server.
    std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(runs)
}

/// The environment of a program: `PATH`, the inherited variables and those of the configuration.
pub(super) fn environment(config: &Config) -> Vec<(OsString, OsString)> {
    let inherited = ["PATH"].into_iter().chain(config.inherit.iter().map(String::as_str));
    let inherited = inherited.filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    inherited.chain(config.env.iter().map(|(name, value)| (name.into(), value.into()))).collect()
}
