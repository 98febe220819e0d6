//! A repository in a temporary folder, and helpers that read it through the source.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use libris_core::{
    Completion, CompletionRequest, Content, ContentBody, Contents, Context, Error, Resource, Source, Uri,
    UriTemplate,
};
use libris_sources::{Git, git};
use tempfile::TempDir;

/// Runs `git` in a folder, without the user's and the system's configuration.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = command(folder).args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?} in {}: {said}", folder.display());
    output.stdout
}

pub(crate) fn command(folder: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(folder).args(["-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("GIT_")) {
        command.env_remove(name);
    }
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    for who in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{who}_NAME"), "Ada Lovelace")
            .env(format!("GIT_{who}_EMAIL"), "ada@example.com");
    }
    command
}

pub(crate) struct Sandbox {
    pub(crate) dir: TempDir,
    /// The working tree.
    pub(crate) work: PathBuf,
    /// The number of commits, so that each gets another timestamp.
    clock: AtomicI64,
}

impl Sandbox {
    /// A repository without commits.
    pub(crate) fn empty() -> Self {
        let dir = TempDir::new().unwrap();
        let work = dir.path().join("repo");
        std::fs::create_dir(&work).unwrap();
        run(&work, &["init", "--quiet"]);
        Self { dir, work, clock: AtomicI64::new(1_700_000_000) }
    }

    /// A repository with one commit of these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let sandbox = Self::empty();
        for (path, text) in files {
            sandbox.write(path, text.as_bytes());
        }
        sandbox.commit("first");
        sandbox
    }

    pub(crate) fn write(&self, path: &str, data: &[u8]) {
        let path = self.work.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, data).unwrap();
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&run(&self.work, arguments)).trim_end().to_owned()
    }

    /// Commits all changes and returns the id.
    pub(crate) fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        let date = format!("{} +0200", self.clock.fetch_add(60, Ordering::Relaxed));
        let mut command = command(&self.work);
        command.args(["commit", "--quiet", "--allow-empty", "--message", message]);
        let status = command.env("GIT_AUTHOR_DATE", &date).env("GIT_COMMITTER_DATE", &date).status().unwrap();
        assert!(status.success());
        self.git(&["rev-parse", "HEAD"])
    }

    pub(crate) fn config(&self) -> git::Config {
        config(&self.work)
    }

    pub(crate) fn open(&self) -> Git {
        Git::open(self.config()).unwrap()
    }
}

pub(crate) fn config(path: &Path) -> git::Config {
    let mut config = git::Config::new(path);
    config.name = Some("repo".into());
    config.poll = Duration::from_millis(20);
    // The default is too short for a test build on a loaded machine.
    config.timeout = Duration::from_secs(60);
    config
}

/// A URI of the repository.
pub(crate) fn uri(rest: &str) -> Uri {
    Uri::parse(&format!("git://repo/{rest}")).unwrap()
}

pub(crate) async fn ask(source: &Git, rest: &str) -> Result<Contents, Error> {
    source.read(&uri(rest), &Context::default()).await
}

/// Reads a resource that has exactly one part.
pub(crate) async fn part(source: &Git, rest: &str) -> Content {
    let mut contents = ask(source, rest).await.unwrap_or_else(|error| panic!("{rest}: {error:?}"));
    assert_eq!(contents.parts.len(), 1, "{rest}");
    contents.parts.remove(0)
}

pub(crate) async fn text(source: &Git, rest: &str) -> String {
    match part(source, rest).await.body {
        ContentBody::Text(text) => text,
        ContentBody::Bytes(bytes) => panic!("{rest} has {} bytes", bytes.len()),
    }
}

pub(crate) async fn bytes(source: &Git, rest: &str) -> Vec<u8> {
    match part(source, rest).await.body {
        ContentBody::Text(text) => text.into_bytes(),
        ContentBody::Bytes(bytes) => bytes.to_vec(),
    }
}

pub(crate) async fn json(source: &Git, rest: &str) -> serde_json::Value {
    serde_json::from_str(&text(source, rest).await).unwrap()
}

/// Lists all resources.
pub(crate) async fn listed(source: &Git) -> Vec<Resource> {
    let mut all: Vec<Resource> = Vec::new();
    loop {
        let after = all.last().map(|last| last.uri.clone());
        let page = source.list(after.as_ref(), 100, &Context::default()).await.unwrap();
        all.extend(page.resources);
        if !page.more {
            return all;
        }
    }
}

pub(crate) async fn complete(
    source: &Git,
    template: &str,
    variable: &str,
    typed: &str,
    known: &[(&str, &str)],
) -> Completion {
    let template = UriTemplate::parse(&format!("git://repo/{template}")).unwrap();
    let known: BTreeMap<_, _> =
        known.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    source
        .complete(
            CompletionRequest { template: &template, variable, typed, known: &known, limit: 100 },
            &Context::default(),
        )
        .await
        .unwrap()
}
