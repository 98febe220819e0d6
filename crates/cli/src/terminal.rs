//! Output for people: errors with hints, escaped text, sizes.

use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::process::ExitCode;

/// An error with a hint on what to do next.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Advice {
    message: String,
    hint: String,
}

/// Creates an error with a hint on what to do next.
pub(crate) fn advice(message: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Advice { message: message.into(), hint: hint.into() }.into()
}

/// Prints why the command failed, and returns its exit code.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    note(describe(error));
    ExitCode::FAILURE
}

/// Prints a line to standard error. A closed standard error is ignored.
pub(crate) fn note(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints a result to standard output. A broken pipe, as with `| head`, is not an error.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(cause) if cause.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

/// The message of an error, its causes, and its hint.
pub(crate) fn describe(error: &anyhow::Error) -> String {
    let mut text = format!("error: {error}");
    for cause in error.chain().skip(1) {
        let _ = write!(text, "\n  because: {cause}");
    }
    let hint = error.chain().find_map(|cause| cause.downcast_ref::<Advice>());
    if let Some(Advice { hint, .. }) = hint {
        let _ = write!(text, "\nhint: {hint}");
    }
    shown(&text)
}

/// Escapes control characters in untrusted text, which a terminal could execute.
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
    use super::{bytes, shown};

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
