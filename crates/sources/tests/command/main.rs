//! Integration tests of the command source.
#![cfg(unix)]

mod check;
mod fairness;
mod injection;
mod limits;
mod memory;
mod read;
mod transcript;
mod watch;

use std::io::Write as _;
use std::process::Stdio;

use libris_core::{ContentBody, Contents, Context, Error, Result, Source as _, Uri};
use libris_sources::{Commands, command};
use tempfile::TempDir;

/// Commands of a configuration in a temporary folder.
struct Bench {
    dir: TempDir,
    commands: Commands,
}

impl Bench {
    fn new(config: &str) -> Self {
        Self::with(config, &[])
    }

    /// The same, with these scripts in the folder.
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

    /// The text of a resource, or the error as text.
    async fn text(&self, uri: &str) -> String {
        match self.read(uri).await {
            Ok(contents) => match &contents.parts[0].body {
                ContentBody::Text(text) => text.clone(),
                ContentBody::Bytes(bytes) => format!("{bytes:?}"),
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

/// Writes an executable script. A child process writes it: if this process did, another test could fork while the
/// file is open for writing, and executing it would fail with ETXTBSY.
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
