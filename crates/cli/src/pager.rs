//! Shows long texts in a pager, as git does.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Command, Stdio};

use crate::terminal::print;

/// Prints a text, or shows it in the pager if it has more lines than the terminal. The pager is the command in
/// `LIBRIS_PAGER` or `PAGER`, and otherwise `less`; `cat` and an empty value mean none.
pub(crate) fn show(text: &str) -> io::Result<()> {
    let height = terminal_size::terminal_size_of(io::stdout()).map(|(_, height)| usize::from(height.0));
    let fits = height.is_none_or(|height| text.lines().count() < height);
    match chosen().filter(|_| !fits && io::stdout().is_terminal()) {
        Some(pager) => page(&pager, text).or_else(|_| print(text)),
        None => print(text),
    }
}

fn chosen() -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok();
    let pager = variable("LIBRIS_PAGER").or_else(|| variable("PAGER")).unwrap_or_else(|| "less".to_owned());
    (!matches!(pager.trim(), "" | "cat")).then_some(pager)
}

/// Runs the pager. Fails if it could not be started.
fn page(pager: &str, text: &str) -> io::Result<()> {
    let mut command = match cfg!(windows) {
        true => Command::new(pager),
        false => {
            let mut shell = Command::new("sh");
            shell.args(["-c", pager]);
            shell
        }
    };
    if std::env::var_os("LESS").is_none() {
        // Ends at once if the text fits after all, shows colours, and leaves the text on the screen.
        command.env("LESS", "FRX");
    }
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    let has_colours = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
    let plain = || anstream::adapter::strip_str(text).to_string();
    let text = if has_colours { text.to_owned() } else { plain() };
    if let Some(mut input) = child.stdin.take() {
        // The user may quit the pager before it has read everything.
        let _ = input.write_all(text.as_bytes());
    }
    match child.wait()?.code() {
        // The shell did not find the command.
        Some(127) => Err(io::ErrorKind::NotFound.into()),
        _ => Ok(()),
    }
}
