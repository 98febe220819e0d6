//! Installs servers in other languages (peers) from their registries, once, in the target directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The runtime of a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runtime {
    Node,
    Python,
}

/// A peer in `bench/peers`.
pub(crate) struct Peer {
    runtime: Runtime,
    /// The folder into which it is installed, which peers may share.
    home: &'static str,
    manifest: &'static str,
    /// The measured package.
    package: &'static str,
    /// The script that is run, and the files that it needs.
    scripts: &'static [(&'static str, &'static str)],
}

const PACKAGES: &str = include_str!("../../peers/package.json");
const SHELF: (&str, &str) = ("shelf.mjs", include_str!("../../peers/shelf.mjs"));
const SHELF_PY: (&str, &str) = ("shelf.py", include_str!("../../peers/shelf.py"));

pub(super) const TYPESCRIPT: Peer = Peer {
    runtime: Runtime::Node,
    home: "node",
    manifest: PACKAGES,
    package: "@modelcontextprotocol/server",
    scripts: &[("typescript.mjs", include_str!("../../peers/typescript.mjs")), SHELF],
};

pub(super) const TYPESCRIPT_1: Peer = Peer {
    runtime: Runtime::Node,
    home: "node",
    manifest: PACKAGES,
    package: "@modelcontextprotocol/sdk",
    scripts: &[("typescript1.mjs", include_str!("../../peers/typescript1.mjs")), SHELF],
};

/// A proxy in front of a server over stdio.
pub(super) const MCP_PROXY: Peer = Peer {
    runtime: Runtime::Node,
    home: "node",
    manifest: PACKAGES,
    package: "mcp-proxy",
    scripts: &[("mcp_proxy.mjs", include_str!("../../peers/mcp_proxy.mjs"))],
};

pub(super) const PYTHON: Peer = Peer {
    runtime: Runtime::Python,
    home: "python",
    manifest: include_str!("../../peers/requirements-python.txt"),
    package: "mcp",
    scripts: &[("serve_python.py", include_str!("../../peers/serve_python.py")), SHELF_PY],
};

pub(super) const FASTMCP: Peer = Peer {
    runtime: Runtime::Python,
    home: "fastmcp",
    manifest: include_str!("../../peers/requirements-fastmcp.txt"),
    package: "fastmcp",
    scripts: &[("serve_fastmcp.py", include_str!("../../peers/serve_fastmcp.py")), SHELF_PY],
};

/// A server of FastMCP for the rows of a SQLite database.
pub(crate) const FASTMCP_ROWS: Peer = Peer {
    runtime: Runtime::Python,
    home: "fastmcp",
    manifest: include_str!("../../peers/requirements-fastmcp.txt"),
    package: "fastmcp",
    scripts: &[("serve_fastmcp_rows.py", include_str!("../../peers/serve_fastmcp_rows.py")), SHELF_PY],
};

const REFERENCE_SCRIPT: (&str, &str) = ("serve_reference.py", include_str!("../../peers/serve_reference.py"));

/// The reference server of MCP for git, which offers tools over stdio.
pub(crate) const REFERENCE_GIT: Peer = Peer {
    runtime: Runtime::Python,
    home: "reference-git",
    manifest: include_str!("../../peers/requirements-reference-git.txt"),
    package: "mcp-server-git",
    scripts: &[REFERENCE_SCRIPT],
};

/// The reference server of MCP for SQLite. It needs version 1 of the SDK, and the one for git needs version 2.
pub(crate) const REFERENCE_SQLITE: Peer = Peer {
    runtime: Runtime::Python,
    home: "reference-sqlite",
    manifest: include_str!("../../peers/requirements-reference-sqlite.txt"),
    package: "mcp-server-sqlite",
    scripts: &[REFERENCE_SCRIPT],
};

/// A peer that can be run.
pub(crate) struct Installed {
    program: PathBuf,
    script: PathBuf,
    /// The versions of the package and of its runtime.
    pub(crate) version: String,
}

impl Installed {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(&self.script);
        command
    }
}

impl Peer {
    /// Installs the peer, unless it is already installed from the same manifest.
    pub(crate) fn install(&self) -> Result<Installed> {
        let bench = std::env::current_exe().context("could not tell where this program is")?;
        let target = bench.ancestors().nth(2).context("this program is nowhere")?;
        let home = target.join("bench-peers").join(self.home);
        let done = home.join("installed");
        if std::fs::read_to_string(&done).ok().as_deref() != Some(self.manifest) {
            eprintln!("installing {} …", self.home);
            // Files of another version could be used by mistake.
            let _ = std::fs::remove_dir_all(&home);
            std::fs::create_dir_all(&home)?;
            self.fetch(&home).with_context(|| format!("could not install {}", self.package))?;
            std::fs::write(done, self.manifest)?;
        }
        for &(name, text) in self.scripts {
            std::fs::write(home.join(name), text)?;
        }
        let program = home.join(match self.runtime {
            Runtime::Node => "node_modules/.bin/node",
            Runtime::Python => "bin/python",
        });
        let version = self.version(&program, &home)?;
        Ok(Installed { program, script: home.join(self.scripts[0].0), version })
    }

    fn fetch(&self, home: &Path) -> Result<()> {
        match self.runtime {
            Runtime::Node => {
                std::fs::write(home.join("package.json"), self.manifest)?;
                let quiet = ["--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"];
                run(Command::new("npm").arg("install").args(quiet).current_dir(home)).map(drop)
            }
            Runtime::Python => {
                let manifest = home.join("requirements.txt");
                std::fs::write(&manifest, self.manifest)?;
                run(Command::new("python3").args(["-m", "venv"]).arg(home))?;
                let quiet = ["install", "--quiet", "--disable-pip-version-check", "--requirement"];
                run(Command::new(home.join("bin/pip")).args(quiet).arg(manifest)).map(drop)
            }
        }
    }

    fn version(&self, program: &Path, home: &Path) -> Result<String> {
        let runtime = run(Command::new(program).arg("--version"))?;
        let package = self.package;
        let version = match self.runtime {
            Runtime::Node => {
                let manifest = home.join("node_modules").join(package).join("package.json");
                let manifest: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(manifest)?)?;
                manifest["version"].as_str().unwrap_or_default().to_owned()
            }
            Runtime::Python => {
                let ask =
                    format!("import importlib.metadata; print(importlib.metadata.version('{package}'))");
                run(Command::new(program).args(["-c", &ask]))?
            }
        };
        let runtime = runtime.replace('v', "Node.js ");
        Ok(format!("{package} {version}, {runtime}"))
    }
}

/// Runs a command and returns its output.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("could not run {:?}", command.get_program()))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
