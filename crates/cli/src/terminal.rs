//! Output for people: errors with hints, colours, progress, escaped text, numbers and sizes.
//!
//! Styled text is always written through `anstream`, which removes the styles if the output is not a terminal or
//! `NO_COLOR` is set.

use std::fmt::{Display, Write as _};
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The styles of clap, so that its messages and ours look alike.
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Green.on_default();
/// The style of headings.
pub(crate) const HEADING: Style = Style::new().bold();
/// The style of what succeeded.
pub(crate) const SUCCESS: Style = AnsiColor::Green.on_default().bold();
/// The style of details.
pub(crate) const DETAIL: Style = Style::new().dimmed();

/// The styles of lines in a difference.
pub(crate) const ADDED: Style = AnsiColor::Green.on_default();
pub(crate) const REMOVED: Style = AnsiColor::Red.on_default();

/// The text in a style.
pub(crate) fn styled(style: Style, text: impl Display) -> String {
    format!("{style}{text}{style:#}")
}

/// An error with a hint on what to do next.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Advice {
    message: String,
    hint: String,
    /// Whether a file could not be read because of an I/O error.
    is_unreadable: bool,
}

/// Creates an error with a hint on what to do next.
pub(crate) fn advice(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Advice { message: message.into(), hint: hint.into(), is_unreadable: false }.into()
}

/// Like [`advice`], for a file that could not be read because of an I/O error that `message` contains.
pub(crate) fn unreadable(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Advice { message: message.into(), hint: hint.into(), is_unreadable: true }.into()
}

/// Whether the cause of an error is an I/O error, so that trying again may succeed although no file has changed.
pub(crate) fn is_unreadable(error: &anyhow::Error) -> bool {
    let is_io = |cause: &(dyn std::error::Error + 'static)| {
        cause.is::<std::io::Error>()
            || cause.downcast_ref::<Advice>().is_some_and(|advice| advice.is_unreadable)
    };
    error.chain().any(is_io)
}

/// Prints why the command failed, and returns its exit code.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    report(error);
    ExitCode::FAILURE
}

/// Prints an error to standard error.
pub(crate) fn report(error: &anyhow::Error) {
    note(wrapped(&describe(error)));
}

/// Prints a line to standard error. A closed standard error is ignored.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Prints a warning to standard error.
pub(crate) fn warn(text: impl Display) {
    note(wrapped(&warning(text)));
}

/// The word in front of a hint.
pub(crate) fn hint_label() -> String {
    styled(HINT, "hint:")
}

/// The text in the style of errors.
pub(crate) fn failure(text: impl Display) -> String {
    styled(ERROR, text)
}

/// The text as a warning.
pub(crate) fn warning(text: impl Display) -> String {
    format!("{} {text}", styled(WARNING, "warning:"))
}

/// Prints a result to standard output. A broken pipe, as with `| head`, is not an error.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut output = anstream::stdout();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(cause) if cause.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// Writes bytes to standard output unchanged. A broken pipe, as with `| head`, is not an error.
pub(crate) fn write_bytes<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    let written = parts.into_iter().try_for_each(|part| output.write_all(part));
    match written.and_then(|()| output.flush()) {
        Err(cause) if cause.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// The message of an error, its causes, and its hint.
pub(crate) fn describe(error: &anyhow::Error) -> String {
    let Explanation { message, causes, hint } = Explanation::of(error);
    let mut text = format!("{} {message}", styled(ERROR, "error:"));
    for cause in causes {
        let _ = write!(text, "\n  because: {cause}");
    }
    if let Some(hint) = hint {
        let _ = write!(text, "\n{} {hint}", hint_label());
    }
    text
}

/// An error in its parts, without control characters.
pub(crate) struct Explanation {
    pub(crate) message: String,
    pub(crate) causes: Vec<String>,
    pub(crate) hint: Option<String>,
}

impl Explanation {
    /// Takes an error apart. The hint is that of an [`Advice`], otherwise the end of a message such as "…; hint: …",
    /// otherwise the [`system_hint`].
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        let mut hint = error.chain().find_map(|cause| Some(cause.downcast_ref::<Advice>()?.hint.clone()));
        let mut texts = error.chain().map(|cause| {
            let text = cause.to_string();
            match text.split_once("; hint: ") {
                Some((text, given)) => {
                    hint.get_or_insert_with(|| given.to_owned());
                    shown(text)
                }
                None => shown(&text),
            }
        });
        let message = texts.next().unwrap_or_default();
        let causes = texts.collect();
        let system = error.chain().find_map(|cause| system_hint(cause.downcast_ref()?));
        let hint = hint.or_else(|| system.map(str::to_owned));
        Self { message, causes, hint: hint.map(|hint| shown(&hint)) }
    }
}

/// What to do about an error of the operating system, for messages without a hint of their own.
fn system_hint(error: &std::io::Error) -> Option<&'static str> {
    use std::io::ErrorKind;
    Some(match error.kind() {
        ErrorKind::NotFound => "check that the path exists",
        ErrorKind::PermissionDenied => "give this user access to it, or run Libris as a user who has it",
        ErrorKind::IsADirectory => "name a file instead of a folder",
        ErrorKind::NotADirectory => "check the path: one of its folders is a file",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free space on the disk, or name another one",
        ErrorKind::ReadOnlyFilesystem => "name a folder in which files can be written",
        ErrorKind::ConnectionRefused => "check the address, and that the server is running",
        ErrorKind::AddrNotAvailable => "use an address of this machine, such as 127.0.0.1",
        _ => return None,
    })
}

/// Breaks long lines between words, if standard error is a terminal of at least 20 columns.
pub(crate) fn wrapped(text: &str) -> String {
    match terminal_size::terminal_size_of(std::io::stderr()) {
        Some((terminal_size::Width(width), _)) if width >= 20 => wrapped_at(text, usize::from(width)),
        _ => text.to_owned(),
    }
}

/// Breaks lines that are longer than `width` between words. The rest of a line is indented by two more spaces.
pub(crate) fn wrapped_at(text: &str, width: usize) -> String {
    wrapped_with(text, width, |_| 2)
}

/// Breaks lines of Markdown that are longer than `width` between words. The rest of an item of a list is indented by two
/// more spaces, below the text of the item; that of a paragraph is not.
pub(crate) fn wrapped_markdown(text: &str, width: usize) -> String {
    wrapped_with(text, width, |line| if line.starts_with("- ") || line.starts_with("* ") { 2 } else { 0 })
}

/// Breaks lines that are longer than `width` between words. The rest of a line is indented by as many more spaces as
/// `hanging` returns for the line.
fn wrapped_with(text: &str, width: usize, hanging: impl Fn(&str) -> usize) -> String {
    let visible = |word: &str| columns(&anstream::adapter::strip_str(word).to_string());
    let mut lines = Vec::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let mut start = String::from(&line[..indent]);
        let mut used = indent;
        let hanging = hanging(&line[indent..]);
        for (at, word) in line[indent..].split(' ').enumerate() {
            let length = visible(word);
            if at > 0 && used + 1 + length > width {
                lines.push(std::mem::replace(&mut start, " ".repeat(indent + hanging)));
                used = indent + hanging;
            } else if at > 0 {
                start.push(' ');
                used += 1;
            }
            start.push_str(word);
            used += length;
        }
        lines.push(start);
    }
    lines.join("\n")
}

/// A line on the terminal that is overwritten as work proceeds; nothing if standard error is not a terminal.
pub(crate) struct ProgressLine {
    is_shown: bool,
    next: Instant,
    has_text: bool,
}

impl ProgressLine {
    /// The time between two updates.
    const INTERVAL: Duration = Duration::from_millis(200);

    pub(crate) fn new() -> Self {
        let is_shown = std::io::stderr().is_terminal();
        Self { is_shown, next: Instant::now(), has_text: false }
    }

    /// Shows this text, unless the last update is too recent.
    pub(crate) fn update(&mut self, text: impl Display) {
        if self.is_shown && Instant::now() >= self.next {
            self.next = Instant::now() + Self::INTERVAL;
            self.has_text = true;
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
        }
    }

    /// Removes the text.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.has_text) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// The number of columns that a text takes on a terminal: most characters of East Asian scripts and emoji take two.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// The beginning of a text that fits into this many columns, with an ellipsis if there is more.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    if columns(text) <= limit {
        return text.to_owned();
    }
    let mut used = 1;
    let fitting = text.chars().take_while(|character| {
        used += character.width().unwrap_or_default();
        used <= limit
    });
    fitting.chain((limit > 0).then_some('…')).collect()
}

/// A number of things, such as `1 resource` or `12,000 resources`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(count))
}

/// A number with commas between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Escapes control characters in untrusted text, which a terminal could execute, and the Unicode embeddings, overrides
/// and isolates that change the direction of text. Line breaks and tabs stay.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let harmless = character == '\n' || character == '\t';
        let hidden = character.is_control()
            || ('\u{202a}'..='\u{202e}').contains(&character)
            || ('\u{2066}'..='\u{2069}').contains(&character);
        if hidden && !harmless {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// A number of bytes in binary units.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::{
        Explanation, advice, bytes, columns, counted, cut, describe, shown, wrapped_at, wrapped_markdown,
    };

    #[test]
    fn long_lines_are_broken_between_words() {
        let text = "\u{1b}[31merror:\u{1b}[0m one two\n  because: one two three\n  short\nunbreakable-word";
        let expected = "\u{1b}[31merror:\u{1b}[0m one\n  two\n  because:\n    one two\n    three\n  short\n\
                        unbreakable-word";
        assert_eq!(wrapped_at(text, 13), expected);
        let markdown = "  one two three\n  - one two three";
        assert_eq!(wrapped_markdown(markdown, 11), "  one two\n  three\n  - one two\n    three");
    }

    #[test]
    fn texts_are_cut_by_the_columns_that_they_take() {
        assert_eq!([columns("abc"), columns("日本語"), columns("e\u{301}"), columns("📚")], [3, 6, 1, 2]);
        let cut = ["abc", "abcd", "日本", "日本語", "ab日"].map(|text| cut(text, 4));
        assert_eq!(cut, ["abc", "abcd", "日本", "日…", "ab日"]);
        assert_eq!(
            (super::cut("abc", 2), super::cut("abc", 1), super::cut("abc", 0)),
            ("a…".into(), "…".into(), "".into())
        );
        assert_eq!(super::cut("日本語", 3), "日…");
    }

    #[test]
    fn hints_in_messages_are_lines_of_their_own() {
        let error = anyhow::anyhow!("it is a file; hint: name its folder").context("could not serve `a`");
        let text = anstream::adapter::strip_str(&describe(&error)).to_string();
        assert_eq!(text, "error: could not serve `a`\n  because: it is a file\nhint: name its folder");
        let text = describe(&advice("wrong", "right"));
        assert_eq!(text, "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m wrong\n\u{1b}[32mhint:\u{1b}[0m right");
    }

    #[test]
    fn errors_of_the_system_have_a_hint() {
        let denied = || std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let hint = |error: anyhow::Error| Explanation::of(&error).hint.unwrap_or_default();
        let written = anyhow::Error::new(denied()).context("could not write `a`");
        assert_eq!(hint(written), "give this user access to it, or run Libris as a user who has it");
        let own = anyhow::Error::new(denied()).context("could not write `a`; hint: use `--output`");
        assert_eq!(hint(own), "use `--output`");
        assert_eq!(hint(anyhow::Error::new(std::io::Error::other("odd"))), "");
    }

    #[test]
    fn counts_read_well() {
        let counts = [0, 1, 999, 1_000, 1_234_567].map(|count| counted(count, "file"));
        assert_eq!(counts, ["0 files", "1 file", "999 files", "1,000 files", "1,234,567 files"]);
    }

    #[test]
    fn escapes_do_not_reach_the_terminal() {
        assert_eq!(shown("a\u{1b}[31mb\u{202e}c\r\n"), "a\\u{1b}[31mb\\u{202e}c\\r\n");
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1536), bytes(1 << 30)],
            ["0 B", "1023 B", "1.5 KiB", "1.0 GiB"]
        );
    }
}
