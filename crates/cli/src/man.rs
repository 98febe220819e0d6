//! `libris man`: writes the man pages.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, Command, CommandFactory as _, ValueHint};
use clap_mangen::Man;

use crate::terminal::print;

/// Write the man pages to a folder
///
/// There is a page for each command, such as `libris-serve.1`. The packages for Debian, Homebrew and Nix install them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  libris man ~/.local/share/man/man1   then `man libris-serve` works
  libris man | man -l -                read the page of `libris` itself")]
pub(crate) struct ManOptions {
    /// The folder, which is created if it does not exist; without it, the page of `libris` is printed
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: Option<PathBuf>,
}

/// Writes the pages, or prints the first one.
pub(crate) fn run(options: &ManOptions) -> Result<()> {
    let mut command = crate::Arguments::command().disable_help_subcommand(true);
    command.build();
    let Some(folder) = &options.folder else {
        return print(&page(&command)?).context("could not print");
    };
    std::fs::create_dir_all(folder)
        .with_context(|| format!("could not create the folder `{}`", folder.display()))?;
    for command in pages(&command) {
        let name = Man::new(command.clone()).get_filename();
        let path = folder.join(name);
        std::fs::write(&path, page(command)?)
            .with_context(|| format!("could not write `{}`", path.display()))?;
    }
    Ok(())
}

/// The command and all its subcommands.
fn pages(command: &Command) -> Vec<&Command> {
    let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    std::iter::once(command).chain(subcommands.flat_map(pages)).collect()
}

/// The man page of a command.
fn page(command: &Command) -> Result<String> {
    let mut text = Vec::new();
    // Only the root command has the version.
    let source = concat!("libris ", env!("CARGO_PKG_VERSION"));
    Man::new(command.clone())
        .source(source)
        .manual("Libris manual")
        .render(&mut text)
        .context("could not write a man page")?;
    String::from_utf8(text).context("a man page is not text")
}
