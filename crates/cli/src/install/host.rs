//! The hosts that `libris install` knows: where each has its configuration, and the entry of a server in it.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Value, json};

use super::edit::ConfigFormat;
use crate::hosts::Machine;
use crate::terminal::advice;

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Host {
    ClaudeCode,
    ClaudeDesktop,
    Vscode,
    Cursor,
    Zed,
    Codex,
    Goose,
    Opencode,
    Gemini,
}

/// How a host reaches the server.
pub(super) enum Connection {
    /// The host starts this program with these arguments.
    Stdio(Vec<String>),
    /// The server listens at this URL.
    Http(String),
}

impl Host {
    /// The display name of the host.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Vscode => "VS Code",
            Self::Cursor => "Cursor",
            Self::Zed => "Zed",
            Self::Codex => "Codex",
            Self::Goose => "goose",
            Self::Opencode => "opencode",
            Self::Gemini => "Gemini CLI",
        }
    }

    /// The name of the host on the command line.
    pub(super) fn argument(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The configuration file of the user.
    pub(super) fn file(self, machine: &Machine) -> PathBuf {
        let Machine { home, config, applications, .. } = machine;
        match self {
            Self::ClaudeCode => home.join(".claude.json"),
            Self::ClaudeDesktop => applications.join("Claude/claude_desktop_config.json"),
            Self::Vscode => applications.join("Code/User/mcp.json"),
            Self::Cursor => home.join(".cursor/mcp.json"),
            Self::Zed if cfg!(windows) => applications.join("Zed/settings.json"),
            Self::Zed => config.join("zed/settings.json"),
            Self::Codex => home.join(".codex/config.toml"),
            Self::Goose if cfg!(windows) => applications.join("Block/goose/config/config.yaml"),
            Self::Goose => config.join("goose/config.yaml"),
            Self::Opencode => {
                let folder = config.join("opencode");
                let with_comments = folder.join("opencode.jsonc");
                if with_comments.is_file() { with_comments } else { folder.join("opencode.json") }
            }
            Self::Gemini => home.join(".gemini/settings.json"),
        }
    }

    /// Whether the host is, or once was, installed: its configuration file, the folder of that file, or its program
    /// exists.
    pub(super) fn is_found(self, machine: &Machine) -> bool {
        let file = self.file(machine);
        // The file of Claude Code is directly in the home folder, whose existence proves nothing.
        let has_folder = self != Self::ClaudeCode && file.parent().is_some_and(|folder| folder.is_dir());
        let program = match self {
            Self::ClaudeCode => Some("claude"),
            Self::Vscode => Some("code"),
            Self::Codex => Some("codex"),
            Self::Goose => Some("goose"),
            Self::Opencode => Some("opencode"),
            Self::Gemini => Some("gemini"),
            Self::ClaudeDesktop | Self::Cursor | Self::Zed => None,
        };
        file.is_file() || has_folder || program.is_some_and(|program| machine.has(program))
    }

    pub(super) fn format(self) -> ConfigFormat {
        match self {
            Self::Codex => ConfigFormat::Toml,
            Self::Goose => ConfigFormat::Yaml,
            _ => ConfigFormat::Json,
        }
    }

    /// The key below which the file has its servers, by name.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::ClaudeDesktop | Self::Cursor | Self::Gemini => "mcpServers",
            Self::Vscode => "servers",
            Self::Zed => "context_servers",
            Self::Codex => "mcp_servers",
            Self::Goose => "extensions",
            Self::Opencode => "mcp",
        }
    }

    /// The entry of a server.
    pub(super) fn entry(self, name: &str, connection: &Connection) -> Result<Value> {
        Ok(match connection {
            Connection::Stdio(command) => {
                let (program, arguments) = (command.first(), command.get(1..));
                match self {
                    Self::ClaudeCode | Self::Vscode => {
                        json!({ "type": "stdio", "command": program, "args": arguments })
                    }
                    Self::Opencode => json!({ "type": "local", "command": command }),
                    Self::Goose => json!({
                        "name": name, "type": "stdio", "enabled": true, "timeout": 300, "cmd": program,
                        "args": arguments,
                    }),
                    _ => json!({ "command": program, "args": arguments }),
                }
            }
            Connection::Http(url) => match self {
                Self::ClaudeDesktop => {
                    return Err(advice(
                        "Claude Desktop starts its servers itself",
                        "leave out --url, and name the sources instead",
                    ));
                }
                Self::ClaudeCode | Self::Vscode => json!({ "type": "http", "url": url }),
                Self::Opencode => json!({ "type": "remote", "url": url }),
                Self::Gemini => json!({ "httpUrl": url }),
                Self::Goose => json!({
                    "name": name, "type": "streamable_http", "enabled": true, "timeout": 300, "uri": url,
                }),
                Self::Cursor | Self::Zed | Self::Codex => json!({ "url": url }),
            },
        })
    }
}
