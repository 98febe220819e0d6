//! Commands as resources.
#![cfg(unix)]

mod check;
mod fairness;
mod injection;
mod limits;
mod memory;
mod read;
mod watch;

use std::io::Write as _;
use std::process::Stdio;

use libris_core::{Body, Contents, Context, Error, Result, Source as _, Uri};
use libris_sources::{Commands, command};
use tempfile::TempDir;

/// Commands as they stand in a configuration, in a folder of their own.
struct Bench {
    dir: TempDir,
    commands: Commands,
}

impl Bench {
    fn new(config: &str) -> Self {
        Self::with(config, &[])
    }

    /// With these scripts in the folder.
    fn with(config: &str, scripts: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().unwrap();
        for (name, script) in scripts {
            install(&dir, name, script);
        }
        let commands = commands(config, &dir).unwrap();
        Self { dir, commands }
    }

    async fn read(&self, uri: &str) -> Result<Contents> {
        self.commands.read(&Uri::parse(uri).unwrap(), &Context::default()).await
    }

    /// What reading gives, or what it says.
    async fn text(&self, uri: &str) -> String {
        match self.read(uri).await {
            Ok(contents) => match &contents.parts[0].body {
                Body::Text(text) => text.clone(),
                Body::Bytes(bytes) => format!("{bytes:?}"),
            },
            Err(error) => format!("{}: {error}", kind(&error)),
        }
    }
}

fn kind(error: &Error) -> &'static str {
    match error {
        Error::NotFound(_) => "not found",
        Error::Denied(_) => "denied",
        Error::Invalid(_) => "invalid",
        Error::TooLarge { .. } => "too large",
        Error::Unavailable(_) => "unavailable",
        Error::Failed { .. } => "failed",
        _ => "another",
    }
}

fn commands(config: &str, dir: &TempDir) -> Result<Commands> {
    #[derive(serde::Deserialize)]
    struct File {
        command: Vec<command::Config>,
    }
    let file: File = toml::from_str(config).map_err(|cause| Error::invalid(cause.message()))?;
    Commands::new(file.command, dir.path())
}

/// Puts a script where it can be run. Another process writes it: a file that this one has open for writing
/// may, for a moment, be open in what another test starts, and then it cannot be run.
fn install(dir: &TempDir, name: &str, script: &str) {
    let mut install = std::process::Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(dir.path().join(name))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    install.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(install.wait().unwrap().success());
}
