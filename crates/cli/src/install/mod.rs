//! `libris install`: adds the server to the configuration of an MCP host.

mod edit;
mod host;
mod json;
#[cfg(test)]
mod tests;
mod yaml;

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum as _};
use serde_json::{Value, json};

use self::edit::EntryPath;
use self::host::{Connection, Host};
use crate::hosts::Machine;
use crate::sources::SourceArguments;
use crate::terminal::{ADDED, HEADING, REMOVED, advice, note, print, shown, styled};

/// How many unchanged lines are shown around a change.
const CONTEXT_LINES: usize = 3;

/// Add Libris to the configuration of an MCP host
///
/// Shows what changes in the host's configuration file, and writes it if you agree. Everything else in the file stays as
/// it is, comments too, and the file before the change is kept beside it. Without a HOST, lists the hosts on this machine.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  libris install                                list the hosts on this machine
  libris install claude-desktop ./docs          let Claude Desktop serve a folder
  libris install cursor --config libris.toml    the sources of a configuration file
  libris install vscode --url http://127.0.0.1:4747/mcp   a server that is running
  libris install zed ./docs --print             show the change and write nothing
  libris install zed --remove                   remove the entry")]
pub(crate) struct InstallOptions {
    /// The host
    #[arg(value_enum)]
    host: Option<Host>,
    #[command(flatten)]
    sources: SourceArguments,
    /// The name of the server in the host
    #[arg(long, value_name = "NAME", default_value = "libris", value_parser = server_name)]
    name: String,
    /// Add the server at this URL instead of a command that the host starts
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Show the change and write nothing
    #[arg(long)]
    print: bool,
    /// Remove the entry
    #[arg(long, conflicts_with = "url")]
    remove: bool,
    /// Write without asking
    #[arg(long, short)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A change of a configuration file.
struct ConfigChange {
    host: Host,
    file: PathBuf,
    before: String,
    after: String,
    entry: Option<Value>,
}

/// Runs the command.
pub(crate) fn run(options: &InstallOptions) -> Result<()> {
    let machine = Machine::this();
    let Some(host) = options.host else { return Ok(print(&listed(options, &machine))?) };
    let change = change(host, options, &machine)?;
    if options.json {
        print(&format!("{:#}\n", change.described()))?;
    } else if change.before != change.after {
        print(&format!("{}\n{}", styled(HEADING, machine.shown(&change.file)), change.difference()))?;
    }
    if change.before == change.after {
        note(format_args!("{} is up to date: nothing was changed", machine.shown(&change.file)));
        return Ok(());
    }
    if options.print {
        return Ok(());
    }
    if !options.yes && !confirmed()? {
        note("nothing was changed");
        return Ok(());
    }
    let backup = write(&change)?;
    if let Some(backup) = backup {
        note(format_args!("the file as it was is {}", machine.shown(&backup)));
    }
    note(format_args!("restart {} to use the change", host.title()));
    Ok(())
}

/// The change of the configuration of a host.
fn change(host: Host, options: &InstallOptions, machine: &Machine) -> Result<ConfigChange> {
    let file = host.file(machine);
    // Resolves a symlink, as dotfile managers create them: its target is replaced, and the link stays.
    let file = std::fs::canonicalize(&file).unwrap_or(file);
    let before = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            if !host.is_found(machine) && !options.print {
                return Err(advice(
                    format!("{} was not found on this machine", host.title()),
                    format!(
                        "start it once, so that it creates its folder; or use --print to see what to add to {}",
                        machine.shown(&file)
                    ),
                ));
            }
            String::new()
        }
        Err(cause) => {
            return Err(anyhow::Error::new(cause).context(format!("could not read {}", file.display())));
        }
    };
    let entry = match options.remove {
        true => None,
        false => Some(host.entry(&options.name, &options.connection()?)?),
    };
    let path = EntryPath { key: host.key(), name: &options.name };
    let after = host.format().edit(&before, path, entry.as_ref()).map_err(|cause| {
        let hint = match &entry {
            Some(entry) => {
                format!("correct the file, or add `{}` below `{}` yourself: {entry}", path.name, path.key)
            }
            None => format!("correct the file, or remove `{}` below `{}` yourself", path.name, path.key),
        };
        advice(format!("could not edit {}: {cause:#}", file.display()), hint)
    })?;
    Ok(ConfigChange { host, file, before, after, entry })
}

impl InstallOptions {
    /// How the host reaches the server.
    fn connection(&self) -> Result<Connection> {
        if let Some(url) = &self.url {
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return Err(advice(
                    format!("`{}` is not the URL of a server", shown(url)),
                    "write it as `libris serve` prints it, such as http://127.0.0.1:4747/mcp",
                ));
            }
            return Ok(Connection::Http(url.clone()));
        }
        if self.sources.absolute().is_empty() && self.sources.command().is_empty() {
            return Err(advice(
                "there is nothing to serve",
                "name the sources, such as ./docs, or a configuration file with --config",
            ));
        }
        // Reports invalid sources now: a host would fail to start the server without a visible reason.
        self.sources.definitions()?;
        let program = std::env::current_exe().context("could not determine the path of this program")?;
        Ok(Connection::Stdio(self.sources.stdio_command(&program)))
    }
}

impl ConfigChange {
    /// The change as JSON, for `--json`.
    fn described(&self) -> Value {
        json!({
            "host": self.host.argument(),
            "file": self.file,
            "changed": self.before != self.after,
            "entry": self.entry,
            "text": self.after,
        })
    }

    /// The lines that differ, with some around them.
    fn difference(&self) -> String {
        let (before, after): (Vec<_>, Vec<_>) = (self.before.lines().collect(), self.after.lines().collect());
        let same = before.iter().zip(&after).take_while(|(one, other)| one == other).count();
        let most = before.len().min(after.len()) - same;
        let pairs = before.iter().rev().zip(after.iter().rev());
        let same_at_end = pairs.take(most).take_while(|(one, other)| one == other).count();
        let mut text = String::new();
        for line in &before[same.saturating_sub(CONTEXT_LINES)..same] {
            text.push_str(&format!("  {}\n", shown(line)));
        }
        for line in &before[same..before.len() - same_at_end] {
            text.push_str(&format!("{}\n", styled(REMOVED, format_args!("- {}", shown(line)))));
        }
        for line in &after[same..after.len() - same_at_end] {
            text.push_str(&format!("{}\n", styled(ADDED, format_args!("+ {}", shown(line)))));
        }
        for line in after[after.len() - same_at_end..].iter().take(CONTEXT_LINES) {
            text.push_str(&format!("  {}\n", shown(line)));
        }
        text
    }
}

/// Asks whether to write the change.
fn confirmed() -> Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(advice(
            "there is no terminal on which to confirm the change",
            "add --yes to write it without asking, or --print to see it only",
        ));
    }
    write!(io::stderr(), "Write this change? [y/N] ")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Writes the change, and returns the path of a backup of the old file, if there was one.
fn write(change: &ConfigChange) -> Result<Option<PathBuf>> {
    let file = &change.file;
    let failed = || format!("could not write {}", file.display());
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).with_context(failed)?;
    let exists = file.exists();
    let backup = exists.then(|| {
        back_up(file, folder).with_context(|| format!("could not write a copy of {}", file.display()))
    });
    let backup = backup.transpose()?;
    // Renamed into place, so that the host never reads half of it.
    let mut new = tempfile::Builder::new().prefix(".libris-").tempfile_in(folder).with_context(failed)?;
    new.write_all(change.after.as_bytes()).with_context(failed)?;
    new.as_file().sync_all().with_context(failed)?;
    if exists {
        let permissions = std::fs::metadata(file).with_context(failed)?.permissions();
        new.as_file().set_permissions(permissions).with_context(failed)?;
        // The host may have changed the file since it was read.
        if std::fs::read_to_string(file).with_context(failed)? != change.before {
            return Err(advice(
                format!("{} was changed by another program meanwhile", file.display()),
                "run the command again",
            ));
        }
    }
    new.persist(file).with_context(failed)?;
    Ok(backup)
}

/// Copies the file beside itself, with its permissions, under a name that no file has yet.
fn back_up(file: &Path, folder: &Path) -> io::Result<PathBuf> {
    let mut copy = tempfile::Builder::new().prefix(".libris-").tempfile_in(folder)?;
    let mut original = std::fs::File::open(file)?;
    io::copy(&mut original, &mut copy)?;
    copy.as_file().set_permissions(original.metadata()?.permissions())?;
    copy.as_file().sync_all()?;
    loop {
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S%.3fZ");
        let path = PathBuf::from(format!("{}.{now}.bak", file.display()));
        match copy.persist_noclobber(&path) {
            Ok(_) => return Ok(path),
            // Another change in the same millisecond.
            Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => copy = failed.file,
            Err(failed) => return Err(failed.error),
        }
    }
}

/// The hosts that are found on this machine (with `--json`, all known hosts), and whether their configuration has the
/// entry `options.name`.
fn listed(options: &InstallOptions, machine: &Machine) -> String {
    let hosts = Host::value_variants().iter().map(|host| {
        let file = host.file(machine);
        let path = EntryPath { key: host.key(), name: &options.name };
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let entry = host.format().entry(&text, path);
        (host, file, host.is_found(machine), entry)
    });
    if options.json {
        let described = hosts.map(|(host, file, is_found, entry)| {
            json!({
                "host": host.argument(), "title": host.title(), "file": file, "found": is_found,
                "entry": entry.ok().flatten(),
            })
        });
        return described.map(|host| format!("{host}\n")).collect();
    }
    let mut text = String::new();
    for (host, file, _, entry) in hosts.filter(|(_, _, is_found, _)| *is_found) {
        let state = match entry {
            Ok(Some(_)) => format!("has `{}`", options.name),
            Ok(None) => format!("libris install {} SOURCE", host.argument()),
            Err(cause) => format!("cannot be read: {}", shown(&cause.to_string())),
        };
        let title = styled(HEADING, format_args!("{:15}", host.title()));
        text.push_str(&format!("{title} {}\n{:15} {state}\n", machine.shown(&file), ""));
    }
    if text.is_empty() {
        return "No host was found on this machine. docs/hosts.md describes how to add Libris to ten hosts.\n".into();
    }
    text
}

/// Accepts 1 to 64 ASCII letters, digits, `-` and `_` as the name of a server, because hosts build tool names and
/// @-mentions from it.
fn server_name(text: &str) -> Result<String, String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
    match !text.is_empty() && text.len() <= 64 && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("expected up to 64 letters, digits, `-` and `_`".to_owned()),
    }
}
