//! The attacked server and the data that it serves: a folder for bystanders, and what the attack needs.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::{Stage, priority};
use crate::process;
use crate::program::OverHttp;

/// The most address space that a server gets, in KiB: an attack must not take the machine down.
const ADDRESS_SPACE: u64 = 14 << 20;

/// Folders and a configuration, in a temporary folder.
pub(super) struct Site {
    root: TempDir,
    config: String,
    /// Further arguments of `libris serve`.
    pub(super) arguments: Vec<&'static str>,
    /// The limit of file descriptors of the server; `None` for the system's default.
    pub(super) descriptors: Option<usize>,
}

impl Site {
    /// A site with the folder that bystanders read.
    pub(super) fn new() -> Result<Self> {
        let root = tempfile::Builder::new().prefix("libris-hostile-").tempdir()?;
        let mut site = Self { root, config: String::new(), arguments: Vec::new(), descriptors: None };
        let calm = site.folder("calm")?;
        std::fs::write(calm.join("small.txt"), "sixteen letters.".repeat(64))?;
        Ok(site)
    }

    pub(super) fn path(&self) -> &Path {
        self.root.path()
    }

    /// Makes a folder that is served under its own name.
    pub(super) fn folder(&mut self, name: &str) -> Result<PathBuf> {
        let path = self.path().join(name);
        std::fs::create_dir(&path)?;
        writeln!(self.config, "[[files]]\npath = \"{name}\"")?;
        Ok(path)
    }

    /// Adds to the configuration.
    pub(super) fn configure(&mut self, text: &str) {
        self.config.push_str(text);
        self.config.push('\n');
    }

    /// Starts the server over HTTP, and a second one that is not attacked. The folders exist as long as the [`Target`].
    pub(super) fn serve(self, stage: &Stage<'_>) -> Result<Target> {
        let logged = Arc::<AtomicUsize>::default();
        let calm = Self::new()?;
        let control = calm.start(stage, Arc::default())?;
        let server = self.start(stage, logged.clone())?;
        Ok(Target { server, control, logged, _sites: [self, calm] })
    }

    /// Starts a server. `logged` counts the lines that it logs.
    fn start(&self, stage: &Stage<'_>, logged: Arc<AtomicUsize>) -> Result<OverHttp> {
        let file = self.path().join("libris.toml");
        std::fs::write(&file, &self.config)?;
        let server = stage.binary.configured(&file);
        let descriptors = self.descriptors.map_or(String::new(), |most| format!("ulimit -n {most}; "));
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("ulimit -v {ADDRESS_SPACE}; {descriptors}exec \"$@\""), "sh"])
            .arg(server.get_program())
            .args(server.get_args())
            .args(["--http", "127.0.0.1:0"])
            .args(&self.arguments)
            .env_remove("LIBRIS_LOG")
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let child = priority::usual(move || shell.spawn())?.context("could not start libris")?;
        // An attack may cause many lines, so they are only counted.
        OverHttp::listening_with(child, "libris", move |_| {
            logged.fetch_add(1, Ordering::Relaxed);
        })
    }
}

/// A server that is attacked.
pub(super) struct Target {
    server: OverHttp,
    /// A server on the same machine that serves the same folder to one bystander and is not attacked.
    control: OverHttp,
    logged: Arc<AtomicUsize>,
    _sites: [Site; 2],
}

impl Target {
    pub(super) fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// The address of the server that is not attacked.
    pub(super) fn control(&self) -> SocketAddr {
        self.control.address
    }

    pub(super) fn id(&self) -> u32 {
        self.server.id()
    }

    /// The number of open file descriptors of the server.
    pub(super) fn descriptors(&self) -> usize {
        process::descriptors(self.id()).unwrap_or_default()
    }

    /// How many lines the server has logged.
    pub(super) fn logged(&self) -> usize {
        self.logged.load(Ordering::Relaxed)
    }
}
