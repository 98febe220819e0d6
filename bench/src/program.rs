//! Finds or builds the measured binary, and runs it until the handle is dropped.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// The path of the binary.
pub(crate) struct Binary(PathBuf);

impl Binary {
    /// The binary that LIBRIS_BIN names; otherwise builds this workspace with the profile `dist`, as for a release.
    pub(crate) fn find() -> Result<Self> {
        if let Some(path) = std::env::var_os("LIBRIS_BIN") {
            let path = PathBuf::from(path);
            ensure!(path.is_file(), "LIBRIS_BIN names `{}`, which is not a file", path.display());
            return Ok(Self(path));
        }
        let bench = std::env::current_exe().context("could not determine the path of this program")?;
        let folder = bench.parent().context("the path of this program has no parent")?;
        ensure!(
            folder.ends_with("dist"),
            "this is not a build with the profile `dist`\nhint: cargo run --profile dist -p bench -- …, or name a server in LIBRIS_BIN"
        );
        // Always builds: cargo knows whether the binary is current, and measuring an outdated one would mislead.
        eprintln!("building libris …");
        let built = Command::new("cargo")
            .args(["build", "--profile", "dist", "--quiet", "-p", "libris-cli"])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
            .status()
            .context("could not run `cargo`")?;
        ensure!(built.success(), "libris could not be built");
        let path = folder.join("libris");
        ensure!(path.is_file(), "`{}` is not there after the build", path.display());
        Ok(Self(path))
    }

    /// The path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The output of `--version`.
    pub(crate) fn version(&self) -> Result<String> {
        let output = Command::new(&self.0).arg("--version").output();
        let output = output.with_context(|| format!("could not run `{}`", self.0.display()))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Serves a folder over HTTP, on a free port of this machine.
    pub(crate) fn over_http(&self, folder: &Path) -> Result<OverHttp> {
        let child = self.command(folder).args(["--http", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn();
        OverHttp::listening(child.context("could not start libris")?, "libris")
    }

    /// Serves a folder over its standard input and output.
    pub(crate) fn over_stdio(&self, folder: &Path) -> Result<OverStdio> {
        let child = self.command(folder).arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        OverStdio::connected(child.context("could not start libris")?)
    }

    /// The command that serves a configuration file; the caller adds the transport.
    pub(crate) fn configured(&self, file: &Path) -> Command {
        let mut command = Command::new(&self.0);
        command.arg("serve").arg("--config").arg(file).env_remove("LIBRIS_LOG");
        command
    }

    /// The command that serves another server over stdio; the caller adds the transport, and after `--` the server.
    pub(crate) fn in_front_of_program(&self) -> Command {
        let mut command = Command::new(&self.0);
        command.arg("serve").env_remove("LIBRIS_LOG");
        command
    }

    /// The command that serves a folder; the caller adds the transport.
    pub(crate) fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.0);
        command.arg("serve").arg(folder).stdin(Stdio::null()).env_remove("LIBRIS_LOG");
        command
    }
}

/// A process that ends when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server over HTTP.
pub(crate) struct OverHttp {
    running: Running,
    pub(crate) address: SocketAddr,
    /// The server behind this one, if this one is a gateway. Its computing time does not count.
    _upstream: Option<Box<OverHttp>>,
}

impl OverHttp {
    /// Waits until a started process, whose standard error is piped, prints its address there.
    pub(crate) fn listening(child: Child, name: &'static str) -> Result<Self> {
        Self::listening_with(child, name, move |line| eprintln!("{name}: {line}"))
    }

    /// Like [`listening`](Self::listening); `log` receives each line that the process prints after its address.
    pub(crate) fn listening_with(
        child: Child,
        name: &'static str,
        log: impl FnMut(String) + Send + 'static,
    ) -> Result<Self> {
        let mut running = Running(child);
        let mut lines = BufReader::new(running.0.stderr.take().context("no standard error")?).lines();
        let address = loop {
            let Some(line) = lines.next().transpose()? else { bail!("{name} ended before it listened") };
            match line.strip_prefix("listening on http://").and_then(|rest| rest.strip_suffix("/mcp")) {
                Some(address) => break address.parse().context("the server listens on no address")?,
                None => eprintln!("{name}: {line}"),
            }
        };
        // Drains the pipe, on which the process would block otherwise.
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(log);
        });
        Ok(Self { running, address, _upstream: None })
    }

    /// The same server, with the server behind it, which ends with it.
    pub(crate) fn in_front_of(self, upstream: Self) -> Self {
        Self { _upstream: Some(Box::new(upstream)), ..self }
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.running.0.id()
    }
}

/// A server over standard input and output.
pub(crate) struct OverStdio {
    running: Running,
    pub(crate) input: ChildStdin,
    pub(crate) output: ChildStdout,
}

impl OverStdio {
    /// A process whose standard input and output are piped.
    pub(crate) fn connected(child: Child) -> Result<Self> {
        let mut running = Running(child);
        let input = running.0.stdin.take().context("no standard input")?;
        let output = running.0.stdout.take().context("no standard output")?;
        Ok(Self { running, input, output })
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.running.0.id()
    }
}
