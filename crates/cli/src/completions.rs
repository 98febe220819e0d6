//! `libris completions`: prints the completion script of a shell.

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::terminal::print;

/// Print the completion script of a shell
///
/// The script completes commands, options and their values, and file names. The packages for Debian, Homebrew and Nix
/// install the scripts for bash, fish and zsh.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  source <(libris completions bash)                                        for this shell
  libris completions bash > ~/.local/share/bash-completion/completions/libris
  libris completions fish > ~/.config/fish/completions/libris.fish
  libris completions zsh > \"${fpath[1]}/_libris\"
  libris completions powershell >> $PROFILE")]
pub(crate) struct CompletionsOptions {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(options: &CompletionsOptions) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut crate::Arguments::command(), "libris", &mut script);
    print(&String::from_utf8(script).context("the script is not text")?).context("could not print")
}
