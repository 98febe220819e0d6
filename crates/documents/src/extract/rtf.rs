//! Rich Text Format.
//!
//! No RTF library is used: the text is what remains when groups with other destinations, such as font tables, are
//! skipped.

use encoding_rs::{Encoding, WINDOWS_1252};

use super::markdown::{count, heading, link, push_block, table};
use super::{ExtractFailure, ExtractResult};
use crate::{DocumentSection, ExtractedText, Format};

/// The deepest nesting of groups.
const MAX_DEPTH: usize = 4096;

/// Destinations of groups that contain no text of the document.
const SKIPPED: [&str; 24] = [
    "fonttbl",
    "colortbl",
    "stylesheet",
    "info",
    "pict",
    "object",
    "themedata",
    "datastore",
    "header",
    "headerl",
    "headerr",
    "headerf",
    "footer",
    "footerl",
    "footerr",
    "footerf",
    "listtable",
    "listoverridetable",
    "revtbl",
    "rsidtbl",
    "xmlnstbl",
    "latentstyles",
    "fldinst",
    "bkmkstart",
];

pub(super) fn extract(data: &[u8]) -> ExtractResult<ExtractedText> {
    if !data.starts_with(b"{\\rtf") {
        return Err(ExtractFailure::damaged("it does not begin with `{\\rtf`"));
    }
    let mut walk = RtfWalk::default();
    walk.run(data)?;
    walk.end_paragraph();
    walk.end_table();
    let left_out = count(walk.images, "image").into_iter().collect();
    let sections = vec![DocumentSection::new(walk.out)];
    Ok(ExtractedText { format: Format::Rtf, title: None, sections, left_out })
}

#[derive(Clone, Default)]
struct GroupState {
    skipped: bool,
    /// Whether this is the instruction of a field (`fldinst`), which may be a link.
    instruction: bool,
    /// How many characters after each `\u` are a substitute for programs without Unicode (`\uc`).
    fallback: usize,
}

#[derive(Default)]
struct RtfWalk {
    out: String,
    paragraph: String,
    /// Collected bytes in the code page of the document, not yet decoded.
    encoded: Vec<u8>,
    encoding: Option<&'static Encoding>,
    groups: Vec<GroupState>,
    state: GroupState,
    instruction: String,
    /// The open links: where the text begins in `paragraph`, the depth of groups, and the target.
    links: Vec<(usize, usize, String)>,
    /// The outline level of the current paragraph, from 0, if it is a heading.
    outline: Option<usize>,
    row: Vec<String>,
    rows: Vec<Vec<String>>,
    in_table: bool,
    images: usize,
    /// How many of the following characters to skip, because they substitute a `\u`.
    skip: usize,
    high_surrogate: Option<u16>,
}

impl RtfWalk {
    fn run(&mut self, data: &[u8]) -> ExtractResult<()> {
        self.state.fallback = 1;
        let mut at = 0;
        while let Some(&byte) = data.get(at) {
            at += 1;
            match byte {
                b'{' => {
                    self.flush();
                    if self.groups.len() > MAX_DEPTH {
                        return Err(ExtractFailure::damaged("its groups are nested too deeply"));
                    }
                    self.groups.push(self.state.clone());
                }
                b'}' => {
                    self.flush();
                    self.end_group();
                }
                b'\\' => at = self.control(data, at),
                b'\r' | b'\n' => {}
                byte => self.byte(byte),
            }
        }
        self.flush();
        Ok(())
    }

    fn end_group(&mut self) {
        let Some(outer) = self.groups.pop() else { return };
        if self.state.instruction && !outer.instruction {
            let instruction = std::mem::take(&mut self.instruction);
            let target = instruction.trim().strip_prefix("HYPERLINK").map(str::trim);
            if let Some(target) = target.map(|target| target.trim_matches('"')) {
                let target = target.split('"').next().unwrap_or_default().to_owned();
                self.links.push((self.paragraph.len(), self.groups.len(), target));
            }
        }
        self.state = outer;
        if let Some((start, depth, _)) = self.links.last().filter(|(_, depth, _)| self.groups.len() < *depth)
        {
            let (start, _) = (*start, *depth);
            let target = self.links.pop().map(|(_, _, target)| target).unwrap_or_default();
            if let Some(text) = self.paragraph.get(start..).map(str::to_owned) {
                self.paragraph.truncate(start);
                self.paragraph.push_str(&link(&text, &target));
            }
        }
    }

    /// Handles the control word or symbol at `at`, after the backslash. Returns the position after it.
    fn control(&mut self, data: &[u8], mut at: usize) -> usize {
        let Some(&first) = data.get(at) else { return at };
        if !first.is_ascii_alphabetic() {
            at += 1;
            match first {
                b'\'' => {
                    let digits = data.get(at..at + 2).and_then(|digits| std::str::from_utf8(digits).ok());
                    if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
                        self.byte(byte);
                    }
                    return (at + 2).min(data.len());
                }
                b'*' => self.state.skipped |= !data[at..].starts_with(b"\\fldinst"),
                b'~' => self.push('\u{a0}'),
                b'_' => self.push('-'),
                b'\\' | b'{' | b'}' => self.byte(first),
                b'\r' | b'\n' => self.word("par", None),
                _ => {}
            }
            return at;
        }
        let end = |from: usize, test: fn(&u8) -> bool| {
            data[from..].iter().position(|byte| !test(byte)).map_or(data.len(), |length| from + length)
        };
        let name_end = end(at, u8::is_ascii_alphabetic);
        let name = String::from_utf8_lossy(&data[at..name_end]).into_owned();
        let sign = usize::from(data.get(name_end) == Some(&b'-'));
        let number_end = end(name_end + sign, u8::is_ascii_digit);
        let number =
            std::str::from_utf8(&data[name_end..number_end]).ok().and_then(|text| text.parse::<i64>().ok());
        let mut next = if number.is_some() { number_end } else { name_end };
        if data.get(next) == Some(&b' ') {
            next += 1;
        }
        if name == "bin" {
            // Raw bytes follow, which are skipped.
            let length = number.and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
            return next.saturating_add(length).min(data.len());
        }
        self.flush();
        self.word(&name, number);
        next
    }

    /// Handles a control word with its numeric parameter.
    fn word(&mut self, name: &str, number: Option<i64>) {
        match name {
            "fldinst" => self.state.instruction = true,
            "pict" => {
                self.images += usize::from(!self.state.skipped);
                self.state.skipped = true;
            }
            name if SKIPPED.contains(&name) => self.state.skipped = true,
            _ if self.state.skipped => {}
            "ansicpg" => {
                let label = format!("windows-{}", number.unwrap_or(1252));
                self.encoding = Encoding::for_label(label.as_bytes());
            }
            "mac" => self.encoding = Some(encoding_rs::MACINTOSH),
            "uc" => {
                self.state.fallback =
                    number.and_then(|count| usize::try_from(count).ok()).unwrap_or(1).min(16)
            }
            "u" => {
                // Code units above 32767 are written as negative numbers.
                self.unit(number.unwrap_or(0).rem_euclid(1 << 16) as u16);
                self.skip = self.state.fallback;
            }
            "par" | "sect" | "page" => self.end_paragraph(),
            "line" => self.push('\n'),
            "tab" => self.push('\t'),
            "emdash" => self.push('—'),
            "endash" => self.push('–'),
            "lquote" => self.push('‘'),
            "rquote" => self.push('’'),
            "ldblquote" => self.push('“'),
            "rdblquote" => self.push('”'),
            "bullet" => self.push('•'),
            "pard" => {
                self.outline = None;
                self.in_table = false;
            }
            "intbl" => self.in_table = true,
            "outlinelevel" => {
                self.outline = number.and_then(|level| usize::try_from(level).ok()).filter(|l| *l < 9)
            }
            "cell" => self.row.push(std::mem::take(&mut self.paragraph)),
            "row" => {
                let row = std::mem::take(&mut self.row);
                self.rows.push(row);
            }
            _ => {}
        }
    }

    /// Handles a UTF-16 code unit; a high surrogate waits for its low surrogate.
    fn unit(&mut self, unit: u16) {
        let units = match self.high_surrogate.take() {
            Some(high) => vec![high, unit],
            None if (0xd800..0xdc00).contains(&unit) => {
                self.high_surrogate = Some(unit);
                return;
            }
            None => vec![unit],
        };
        for letter in char::decode_utf16(units) {
            self.push(letter.unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }

    /// Handles a byte of text in the code page of the document.
    fn byte(&mut self, byte: u8) {
        if self.skip > 0 {
            self.skip -= 1;
        } else if self.state.instruction {
            self.instruction.push(char::from(byte));
        } else if !self.state.skipped {
            self.encoded.push(byte);
        }
    }

    fn push(&mut self, letter: char) {
        self.flush();
        if !self.state.skipped && !self.state.instruction {
            self.paragraph.push(letter);
        }
    }

    /// Decodes the collected bytes and appends them to the paragraph.
    fn flush(&mut self) {
        if self.encoded.is_empty() {
            return;
        }
        let encoding = self.encoding.unwrap_or(WINDOWS_1252);
        let bytes = std::mem::take(&mut self.encoded);
        self.paragraph.push_str(&encoding.decode_without_bom_handling(&bytes).0);
    }

    fn end_paragraph(&mut self) {
        self.flush();
        if self.in_table || !self.row.is_empty() {
            self.paragraph.push('\n');
            return;
        }
        self.end_table();
        self.links.clear();
        let text = std::mem::take(&mut self.paragraph);
        match self.outline {
            Some(level) if !text.trim().is_empty() => push_block(&mut self.out, &heading(level + 1, &text)),
            _ => push_block(&mut self.out, text.trim()),
        }
    }

    fn end_table(&mut self) {
        if !self.row.is_empty() {
            let row = std::mem::take(&mut self.row);
            self.rows.push(row);
        }
        let rows = std::mem::take(&mut self.rows);
        push_block(&mut self.out, &table(&rows));
    }
}

#[cfg(test)]
mod tests {
    use super::extract;

    fn text(rtf: &str) -> String {
        extract(rtf.as_bytes()).unwrap().sections[0].text.clone()
    }

    #[test]
    fn text_headings_links_and_tables_are_kept() {
        let rtf = r#"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Times;}}{\info{\title T}}
\pard\outlinelevel0 Title\par\pard Caf\'e9 \u8364?5 {\field{\*\fldinst{HYPERLINK "http://a.example/"}}{\fldrslt{here}}}.\par
\pard\intbl a\cell b\cell\row\intbl c\cell d\cell\row\pard end\{\}\par{\*\unknown x}}"#;
        assert_eq!(
            text(rtf),
            "# Title\n\nCafé €5 [here](http://a.example/).\n\n| a | b |\n|---|---|\n| c | d |\n\nend{}\n"
        );
    }

    #[test]
    fn broken_files_do_no_harm() {
        for rtf in [r"{\rtf1 a\", r"{\rtf1 a\'", r"{\rtf1\bin999999999 a", r"{\rtf1\u-1", "{\\rtf}}}}"] {
            let _ = extract(rtf.as_bytes());
        }
        assert!(extract(format!("{{\\rtf1{}", "{".repeat(100_000)).as_bytes()).is_err());
        assert!(extract(b"text").is_err());
    }
}
