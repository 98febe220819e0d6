//! Draws the output of a terminal as SVG.

use std::fmt::Write as _;

/// The size of a character cell, and the border around the text.
const CELL: (f64, f64) = (8.4, 18.0);
const BORDER: f64 = 16.0;

/// The style of a character, as the numbers of SGR escape sequences select it.
#[derive(Clone, Copy, Default, PartialEq)]
struct Style {
    bold: bool,
    dim: bool,
    underlined: bool,
    /// A colour from 30 to 37; 0 for the default.
    colour: u8,
}

impl Style {
    /// The style after an SGR escape sequence.
    fn with(self, number: u8) -> Self {
        match number {
            0 => Self::default(),
            1 => Self { bold: true, ..self },
            2 => Self { dim: true, ..self },
            4 => Self { underlined: true, ..self },
            22 => Self { bold: false, dim: false, ..self },
            30..=37 => Self { colour: number, ..self },
            39 => Self { colour: 0, ..self },
            _ => self,
        }
    }

    fn attributes(self) -> String {
        let fill = match self.colour {
            31 => "#ff7b72",
            32 => "#7ee787",
            33 => "#e3b341",
            34 => "#79c0ff",
            35 => "#d2a8ff",
            36 => "#76e3ea",
            _ if self.dim => "#8b949e",
            _ => "#e6edf3",
        };
        let bold = if self.bold { " font-weight=\"bold\"" } else { "" };
        let underlined = if self.underlined { " text-decoration=\"underline\"" } else { "" };
        format!(" fill=\"{fill}\"{bold}{underlined}")
    }
}

/// The rows of characters that the terminal shows.
fn rows(output: &str, columns: usize) -> Vec<Vec<(char, Style)>> {
    let mut rows = vec![Vec::new()];
    let mut style = Style::default();
    let mut rest = output.chars().peekable();
    while let Some(letter) = rest.next() {
        let row = rows.last_mut().unwrap();
        match letter {
            '\n' => rows.push(Vec::new()),
            '\r' => {
                // The program overwrites a line only to show progress, and erases it first.
                if rest.peek() == Some(&'\u{1b}') {
                    row.clear();
                }
            }
            '\u{1b}' => {
                assert_eq!(rest.next(), Some('['));
                let mut parameters = String::new();
                let command = loop {
                    match rest.next().unwrap() {
                        part @ ('0'..='9' | ';' | '?') => parameters.push(part),
                        command => break command,
                    }
                };
                if command == 'm' {
                    let numbers = parameters.split(';').map(|number| number.parse().unwrap_or(0));
                    style = numbers.fold(style, Style::with);
                }
            }
            letter => {
                if row.len() == columns {
                    rows.push(Vec::new());
                }
                rows.last_mut().unwrap().push((letter, style));
            }
        }
    }
    while rows.last().is_some_and(Vec::is_empty) {
        rows.pop();
    }
    rows
}

/// The picture of a terminal with this output.
pub(crate) fn svg(output: &str, columns: usize) -> String {
    let rows = rows(output, columns);
    let width = columns as f64 * CELL.0 + 2.0 * BORDER;
    let height = rows.len() as f64 * CELL.1 + 2.0 * BORDER;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    for (number, row) in rows.iter().enumerate() {
        let y = BORDER + (number as f64 + 0.75) * CELL.1;
        let mut column = 0;
        for run in row.chunk_by(|(_, one), (_, other)| one == other) {
            let x = BORDER + column as f64 * CELL.0;
            column += run.len();
            let text: String = run.iter().map(|(letter, _)| letter).collect();
            if text.trim().is_empty() {
                continue;
            }
            let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let length = run.len() as f64 * CELL.0;
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\" xml:space=\"preserve\"{}>{text}</text>",
                run[0].1.attributes()
            );
        }
    }
    svg + "</svg>\n"
}

#[test]
fn escape_sequences_become_styles() {
    let drawn = svg("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m a <b>\r\nhidden\r\u{1b}[Kshown", 8);
    let texts: Vec<_> = drawn.lines().filter(|line| line.starts_with("<text")).collect();
    assert_eq!(texts.len(), 4, "{drawn}");
    assert!(texts[0].ends_with(" fill=\"#ff7b72\" font-weight=\"bold\">error:</text>"), "{drawn}");
    assert!(texts[1].ends_with("> a</text>") && texts[2].ends_with("> &lt;b&gt;</text>"), "{drawn}");
    assert!(texts[3].ends_with(">shown</text>"), "{drawn}");
}
