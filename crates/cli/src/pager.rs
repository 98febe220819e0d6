//! Shows long texts in a pager, as git does.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::{Child, Command, Stdio};

use crate::terminal::print;

/// A pager that has read this many bytes has started. A pipe holds fewer.
const STARTED_AFTER: usize = 1 << 20;

/// Prints a text, or shows it in the pager if it has more lines than the terminal.
pub(crate) fn show(text: &str) -> io::Result<()> {
    let mut output = PagedOutput::new();
    output.write(text)?;
    output.finish()
}

/// Text for standard output that becomes known in parts. As soon as it has more lines than the terminal, it is shown in the
/// pager: the command in `LIBRIS_PAGER` or `PAGER`, and otherwise `less`; `cat` and an empty value mean none.
pub(crate) struct PagedOutput {
    /// The height of the terminal; `None` if there is no terminal or no pager.
    height: Option<usize>,
    /// The text that was written so far, in case the pager cannot be started; without a terminal, and once the pager has
    /// started, nothing.
    written: String,
    /// The number of lines that were written.
    lines: usize,
    pager: PagerState,
}

enum PagerState {
    NotNeeded,
    Running(Child),
    /// The user has quit the pager.
    Ended,
}

impl PagedOutput {
    pub(crate) fn new() -> Self {
        let terminal = terminal_size::terminal_size_of(io::stdout()).filter(|_| io::stdout().is_terminal());
        let height = terminal.map(|(_, height)| usize::from(height.0)).filter(|_| chosen().is_some());
        Self { height, written: String::new(), lines: 0, pager: PagerState::NotNeeded }
    }

    /// Whether the pager was started. From then on, nothing else may write to the terminal.
    pub(crate) fn is_paged(&self) -> bool {
        !matches!(self.pager, PagerState::NotNeeded)
    }

    pub(crate) fn write(&mut self, text: &str) -> io::Result<()> {
        let Some(height) = self.height else { return print(text) };
        self.written.push_str(text);
        self.lines += text.lines().count();
        match &mut self.pager {
            PagerState::NotNeeded if self.lines >= height => {
                let Some(Ok(pager)) = chosen().map(|pager| start(&pager)) else { return self.give_up() };
                self.pager = PagerState::Running(pager);
                let written = self.written.clone();
                self.send(&written)
            }
            PagerState::NotNeeded | PagerState::Ended => Ok(()),
            PagerState::Running(_) => self.send(text),
        }
    }

    /// Writes text to the pager. The user may quit it before it has read everything.
    fn send(&mut self, text: &str) -> io::Result<()> {
        let PagerState::Running(pager) = &mut self.pager else { return Ok(()) };
        let has_colours = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
        let sent = match (&mut pager.stdin, has_colours) {
            (Some(input), true) => input.write_all(text.as_bytes()),
            (Some(input), false) => {
                input.write_all(anstream::adapter::strip_str(text).to_string().as_bytes())
            }
            (None, _) => Ok(()),
        };
        if sent.is_err() {
            return self.wait();
        }
        if self.written.len() > STARTED_AFTER {
            self.written = String::new();
        }
        Ok(())
    }

    /// Waits until the pager ends. If the shell did not find it, prints the text instead.
    fn wait(&mut self) -> io::Result<()> {
        let PagerState::Running(mut pager) = std::mem::replace(&mut self.pager, PagerState::Ended) else {
            return Ok(());
        };
        drop(pager.stdin.take());
        match pager.wait()?.code() {
            Some(127) => self.give_up(),
            _ => Ok(()),
        }
    }

    /// Prints the text so far. Later text is printed without a pager.
    fn give_up(&mut self) -> io::Result<()> {
        (self.height, self.pager) = (None, PagerState::NotNeeded);
        print(&std::mem::take(&mut self.written))
    }

    /// Prints the text if it fits on the terminal; otherwise waits until the user quits the pager.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        match &self.pager {
            PagerState::NotNeeded => print(&self.written),
            PagerState::Running(_) => self.wait(),
            PagerState::Ended => Ok(()),
        }
    }
}

fn chosen() -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok();
    let pager = variable("LIBRIS_PAGER").or_else(|| variable("PAGER")).unwrap_or_else(|| "less".to_owned());
    (!matches!(pager.trim(), "" | "cat")).then_some(pager)
}

fn start(pager: &str) -> io::Result<Child> {
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
    command.stdin(Stdio::piped()).spawn()
}
