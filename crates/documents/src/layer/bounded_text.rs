//! A text that grows up to the limit of a response, and of which only some lines may be wanted.

use libris_core::{Error, Result, Uri};

use super::query::NumberRanges;

/// A text that is appended piece by piece. Keeps the selected lines while their total size is within the limit, and
/// counts all lines: a response that is too large takes no more memory than one that is not.
pub(super) struct BoundedText<'a> {
    pub(super) text: String,
    /// The size of all selected lines in bytes, also of those over the limit.
    pub(super) size: usize,
    /// The number of lines, also of those that are not selected.
    pub(super) lines: usize,
    /// The number of the last selected line that fits, counted from 1; 0 if none fits.
    pub(super) last_fitting_line: usize,
    selected: Option<&'a NumberRanges>,
    limit: usize,
    is_in_line: bool,
}

impl<'a> BoundedText<'a> {
    /// An empty text of at most `limit` bytes; `selected` are the numbers of the wanted lines, all if it is `None`.
    pub(super) fn new(selected: Option<&'a NumberRanges>, limit: usize) -> Self {
        let text = String::new();
        Self { text, size: 0, lines: 0, last_fitting_line: 0, selected, limit, is_in_line: false }
    }

    /// Appends a piece, which may end within a line.
    pub(super) fn push(&mut self, piece: &str) {
        for line in piece.split_inclusive('\n') {
            self.lines += usize::from(!self.is_in_line);
            self.is_in_line = !line.ends_with('\n');
            if self.selected.is_none_or(|selected| selected.contains(self.lines)) {
                self.size += line.len();
                if self.is_within_limit() {
                    self.text.push_str(line);
                    self.last_fitting_line = self.lines;
                }
            }
        }
    }

    /// Ends the last line, if it has no end yet.
    pub(super) fn end_line(&mut self) {
        if self.is_in_line || self.lines == 0 {
            self.push("\n");
        }
    }

    /// Whether all selected lines fit.
    pub(super) fn is_within_limit(&self) -> bool {
        self.size <= self.limit
    }

    /// Fails if lines are selected, but the text ends before the first of them. An empty text counts as one line.
    pub(super) fn check_lines(&self, uri: &Uri) -> Result<()> {
        let Some(selected) = self.selected.filter(|selected| selected.first() > self.lines.max(1)) else {
            return Ok(());
        };
        let (count, first) = (self.lines, selected.first());
        Err(Error::invalid(format!(
            "the text of `{}` has {count} lines, and {first} is after the last; hint: choose from 1 to {count}",
            uri.without_query(),
        )))
    }
}
