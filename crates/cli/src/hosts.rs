//! The MCP hosts that are installed on this machine, and how to add the server to each. Nothing is changed.
//!
//! `docs/hosts.md` describes the hosts and their configuration.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::json;

/// The folders in which installed hosts are found.
pub(crate) struct Machine {
    /// The folders of `PATH`.
    pub(crate) path: Vec<PathBuf>,
    pub(crate) home: PathBuf,
    /// The folder of configurations, usually `~/.config`.
    pub(crate) config: PathBuf,
    /// The folder of application data: on macOS `~/Library/Application Support`, on Windows `%APPDATA%`, otherwise the same
    /// as `config`.
    pub(crate) applications: PathBuf,
}

/// The server to add.
pub(crate) struct NewServer {
    pub(crate) name: String,
    pub(crate) url: String,
    /// The command that serves the same sources over stdio: the program and its arguments.
    pub(crate) command: Vec<String>,
}

/// How to add the server to a host.
#[derive(Debug, PartialEq)]
pub(crate) struct HostInstructions {
    pub(crate) host: &'static str,
    pub(crate) step: Step,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Run this command.
    Run(String),
    /// Add this entry to a file, below a key.
    Add { file: String, key: &'static str, entry: String },
}

impl Machine {
    /// This machine, from the environment.
    pub(crate) fn this() -> Self {
        let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = std::env::home_dir().unwrap_or_default();
        let path = std::env::var_os("PATH").map(|path: OsString| std::env::split_paths(&path).collect());
        let config = folder("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
        let applications = match std::env::consts::OS {
            "macos" => home.join("Library/Application Support"),
            "windows" => folder("APPDATA").unwrap_or_else(|| home.join("AppData/Roaming")),
            _ => config.clone(),
        };
        Self { path: path.unwrap_or_default(), home, config, applications }
    }

    /// How to add the server to each host that is installed.
    pub(crate) fn instructions(&self, server: &NewServer) -> Vec<HostInstructions> {
        let NewServer { name, url, command } = server;
        let http = json!({ "url": url });
        let run = |text: String| Some(Step::Run(text));
        let add = |file: PathBuf, key, entry: String| {
            let file = file.is_file().then(|| self.shown(&file))?;
            Some(Step::Add { file, key, entry })
        };
        let json_entry = |value: serde_json::Value| format!("\"{name}\": {value}");
        let claude = self.has("claude") || self.home.join(".claude.json").is_file();
        let desktop = self.applications.join("Claude");
        let stdio = json!({ "command": command.first(), "args": command.get(1..) });
        let added = json!({ "name": name, "type": "http", "url": url });
        let goose = format!(
            "{name}: {{ name: {name}, type: streamable_http, enabled: true, timeout: 300, uri: \"{url}\" }}"
        );
        let steps = [
            (
                "Claude Code",
                claude.then(|| Step::Run(format!("claude mcp add --transport http {name} {url}"))),
            ),
            // Over HTTP, Claude Desktop accepts only servers that are reachable from the internet; over stdio, any.
            (
                "Claude Desktop",
                add(desktop.join("claude_desktop_config.json"), "mcpServers", json_entry(stdio)),
            ),
            ("VS Code", self.has("code").then(|| Step::Run(format!("code --add-mcp '{added}'")))),
            ("Cursor", add(self.home.join(".cursor/mcp.json"), "mcpServers", json_entry(http.clone()))),
            ("Zed", add(self.config.join("zed/settings.json"), "context_servers", json_entry(http))),
            (
                "Codex",
                match self.has("codex") || self.home.join(".codex/config.toml").is_file() {
                    true => run(format!("codex mcp add {name} --url {url}")),
                    false => None,
                },
            ),
            ("goose", add(self.config.join("goose/config.yaml"), "extensions", goose)),
            (
                "opencode",
                add(
                    self.config.join("opencode/opencode.json"),
                    "mcp",
                    json_entry(json!({ "type": "remote", "url": url })),
                ),
            ),
            (
                "Gemini CLI",
                match self.has("gemini") {
                    true => run(format!("gemini mcp add --transport http {name} {url}")),
                    false => add(
                        self.home.join(".gemini/settings.json"),
                        "mcpServers",
                        json_entry(json!({ "httpUrl": url })),
                    ),
                },
            ),
        ];
        steps.into_iter().filter_map(|(host, step)| Some(HostInstructions { host, step: step? })).collect()
    }

    /// Whether a program is in `PATH`.
    pub(crate) fn has(&self, program: &str) -> bool {
        let names = if cfg!(windows) { &["exe", "cmd"][..] } else { &[""] };
        self.path.iter().any(|folder| {
            names.iter().any(|extension| folder.join(program).with_extension(extension).is_file())
        })
    }

    /// A path below the home folder, with `~`.
    pub(crate) fn shown(&self, path: &Path) -> String {
        match path.strip_prefix(&self.home) {
            Ok(rest) if !self.home.as_os_str().is_empty() => format!("~/{}", rest.display()),
            _ => path.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Machine, NewServer, Step};

    fn machine(files: &[&str]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        let home = folder.path().join("home");
        let config = home.join(".config");
        let machine =
            Machine { path: vec![folder.path().join("bin")], applications: config.clone(), config, home };
        (folder, machine)
    }

    fn said(files: &[&str]) -> Vec<String> {
        let (_folder, machine) = machine(files);
        let server = NewServer {
            name: "libris".into(),
            url: "http://127.0.0.1:4747/mcp".into(),
            command: ["/bin/libris", "serve", "/docs", "--stdio"].map(str::to_owned).to_vec(),
        };
        let text = |step| match step {
            Step::Run(command) => command,
            Step::Add { file, key, entry } => format!("{file} {key} {entry}"),
        };
        let instructions = machine.instructions(&server);
        instructions.into_iter().map(|one| format!("{}: {}", one.host, text(one.step))).collect()
    }

    #[test]
    fn hosts_are_found_by_their_programs_and_their_files() {
        assert_eq!(said(&[]), [""; 0]);
        let programs = ["bin/claude", "bin/code", "bin/codex", "bin/gemini"];
        insta::assert_snapshot!(said(&programs).join("\n"), @r#"
        Claude Code: claude mcp add --transport http libris http://127.0.0.1:4747/mcp
        VS Code: code --add-mcp '{"name":"libris","type":"http","url":"http://127.0.0.1:4747/mcp"}'
        Codex: codex mcp add libris --url http://127.0.0.1:4747/mcp
        Gemini CLI: gemini mcp add --transport http libris http://127.0.0.1:4747/mcp
        "#);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn hosts_are_found_by_their_files() {
        let files = [
            "home/.claude.json",
            "home/.config/Claude/claude_desktop_config.json",
            "home/.cursor/mcp.json",
            "home/.config/zed/settings.json",
            "home/.codex/config.toml",
            "home/.config/goose/config.yaml",
            "home/.config/opencode/opencode.json",
            "home/.gemini/settings.json",
        ];
        insta::assert_snapshot!(said(&files).join("\n"), @r#"
        Claude Code: claude mcp add --transport http libris http://127.0.0.1:4747/mcp
        Claude Desktop: ~/.config/Claude/claude_desktop_config.json mcpServers "libris": {"args":["serve","/docs","--stdio"],"command":"/bin/libris"}
        Cursor: ~/.cursor/mcp.json mcpServers "libris": {"url":"http://127.0.0.1:4747/mcp"}
        Zed: ~/.config/zed/settings.json context_servers "libris": {"url":"http://127.0.0.1:4747/mcp"}
        Codex: codex mcp add libris --url http://127.0.0.1:4747/mcp
        goose: ~/.config/goose/config.yaml extensions libris: { name: libris, type: streamable_http, enabled: true, timeout: 300, uri: "http://127.0.0.1:4747/mcp" }
        opencode: ~/.config/opencode/opencode.json mcp "libris": {"type":"remote","url":"http://127.0.0.1:4747/mcp"}
        Gemini CLI: ~/.gemini/settings.json mcpServers "libris": {"httpUrl":"http://127.0.0.1:4747/mcp"}
        "#);
    }
}
