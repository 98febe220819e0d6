//! Selects the sections, rows and lines of an extracted text that a URI requests.

use libris_core::{Error, Meta, Result, Uri};
use serde_json::json;

use super::bounded_text::BoundedText;
use super::query::{DocumentQuery, NumberRanges, with_value};
use crate::{DocumentSection, ExtractedText, SectionUnit};

/// The largest text in one response, in bytes. Clients read a larger text in parts.
pub(super) const MAX_TEXT: usize = 8 << 20;

/// The `_meta` key for the URI of the part that follows.
const NEXT: &str = "dev.libris/next";

/// The `_meta` key for the number of lines of a text of which some are selected.
const TOTAL_LINES: &str = "dev.libris/totalLines";

/// The selected text with its metadata.
pub(super) struct SelectedText {
    pub(super) text: String,
    pub(super) meta: Meta,
    /// `None` if the text fits in a response. Otherwise `text` is incomplete.
    pub(super) oversize: Option<Oversize>,
}

/// A selected text that is larger than [`MAX_TEXT`].
pub(super) struct Oversize {
    /// A lower bound of its size in bytes.
    pub(super) size: usize,
    /// The parameters that select as much of its beginning as fits; `None` if a single line is too large.
    pub(super) part: Option<String>,
}

/// The selected sections of a text.
struct SelectedSections {
    /// Their numbers, counted from 1.
    numbers: Vec<usize>,
    /// The parameter that selects them and its ranges, if they are selected by number.
    ranges: Option<(&'static str, NumberRanges)>,
}

/// Selects what `query` requests. `uri` is for error messages, and for the URI of the next part.
pub(super) fn select(uri: &Uri, extracted: &ExtractedText, query: &DocumentQuery) -> Result<SelectedText> {
    let unit = SectionUnit::of(extracted.format);
    check_parameters(uri, extracted, query, unit)?;
    let mut selected = selected_sections(uri, extracted, query, unit)?;
    if let Some(rows) = &query.rows {
        keep_sections_with_rows(uri, extracted, &mut selected.numbers, rows)?;
    }
    let is_part =
        selected.numbers.len() < extracted.sections.len() || query.rows.is_some() || query.lines.is_some();
    let note = note(extracted, is_part);
    let mut out = BoundedText::new(query.lines.as_ref(), MAX_TEXT - note.len().min(MAX_TEXT));
    let is_marked = extracted.sections.len() > 1 || unit == SectionUnit::Sheet;
    // How many of the sections fit.
    let mut fitting = 0;
    for (at, &number) in selected.numbers.iter().enumerate() {
        let section = &extracted.sections[number - 1];
        if is_marked {
            out.push(&mark(unit, number, section, at == 0));
        }
        match &query.rows {
            Some(rows) => push_rows(&mut out, section, rows),
            None => out.push(&section.text),
        }
        out.end_line();
        fitting += usize::from(out.is_within_limit());
    }
    out.check_lines(uri)?;
    let mut meta = meta(extracted, unit, &selected.numbers);
    meta.extend(next_part(uri, extracted, query, &selected, &out));
    if query.lines.is_some() {
        meta.insert(TOTAL_LINES.to_owned(), json!(out.lines));
    }
    let oversize = (!out.is_within_limit()).then(|| Oversize {
        size: out.size + note.len(),
        part: fitting_part(extracted, query, &selected.numbers, fitting, is_marked, &out),
    });
    let mut text = out.text;
    text.push_str(&note);
    Ok(SelectedText { meta, text, oversize })
}

/// Selects lines of a text that is not an extracted one, and adds the metadata of the selection to `meta`.
pub(super) fn select_lines(uri: &Uri, text: &str, lines: &NumberRanges, meta: &mut Meta) -> Result<String> {
    let mut out = BoundedText::new(Some(lines), usize::MAX);
    out.push(text);
    out.check_lines(uri)?;
    let next = lines.next(out.lines).and_then(|next| with_value(uri, "lines", &next));
    meta.extend(next.map(|next| (NEXT.to_owned(), json!(next))));
    meta.insert(TOTAL_LINES.to_owned(), json!(out.lines));
    Ok(out.text)
}

/// The line that says what the text lacks; empty if it lacks nothing.
fn note(extracted: &ExtractedText, is_part: bool) -> String {
    let scope = if is_part { " of the whole document" } else { "" };
    match &extracted.left_out[..] {
        [] => String::new(),
        left_out => format!("\n> Left out{scope}: {}.\n", left_out.join("; ")),
    }
}

fn meta(extracted: &ExtractedText, unit: SectionUnit, numbers: &[usize]) -> Meta {
    let mut meta = Meta::new();
    meta.insert("dev.libris/format".to_owned(), json!(extracted.format.name()));
    if let Some(title) = &extracted.title {
        meta.insert("dev.libris/title".to_owned(), json!(title));
    }
    if unit != SectionUnit::Whole {
        meta.insert(format!("dev.libris/{}", unit.plural()), json!(extracted.sections.len()));
    }
    if numbers.len() < extracted.sections.len() {
        meta.insert("dev.libris/selected".to_owned(), json!(numbers));
    }
    if !extracted.left_out.is_empty() {
        meta.insert("dev.libris/leftOut".to_owned(), json!(extracted.left_out));
    }
    meta
}

/// The `_meta` entry with the URI of the next part of the same length: of lines if lines are selected, otherwise of rows,
/// otherwise of sections.
fn next_part(
    uri: &Uri,
    extracted: &ExtractedText,
    query: &DocumentQuery,
    selected: &SelectedSections,
    out: &BoundedText<'_>,
) -> Option<(String, serde_json::Value)> {
    let longest = || selected.numbers.iter().map(|number| row_count(&extracted.sections[number - 1])).max();
    let (key, value) = match (&query.lines, &query.rows, &selected.ranges) {
        (Some(lines), ..) => ("lines", lines.next(out.lines)?),
        (None, Some(rows), _) => ("rows", rows.next(longest()?)?),
        (None, None, Some((key, ranges))) => (*key, ranges.next(extracted.sections.len())?),
        (None, None, None) => return None,
    };
    Some((NEXT.to_owned(), json!(with_value(uri, key, &value)?)))
}

/// The parameters that select as much of the beginning of `out` as fits in a response. `fitting` is the number of
/// selected sections that fit.
fn fitting_part(
    extracted: &ExtractedText,
    query: &DocumentQuery,
    numbers: &[usize],
    fitting: usize,
    is_marked: bool,
    out: &BoundedText<'_>,
) -> Option<String> {
    let line = out.last_fitting_line;
    if let Some(lines) = &query.lines {
        let first = lines.first();
        return (line >= first).then(|| format!("lines={first}-{line}"));
    }
    let (key, first) = (SectionUnit::of(extracted.format).parameter(), *numbers.first()?);
    if let Some(key) = key.filter(|_| fitting > 0) {
        let is_consecutive = |(at, number): &(usize, &usize)| **number == first + at;
        let last = numbers[..fitting].iter().enumerate().take_while(is_consecutive).last()?.1;
        return Some(match key {
            "sheet" => format!("sheet={first}"),
            key if first == *last => format!("{key}={first}"),
            key => format!("{key}={first}-{last}"),
        });
    }
    let section = match key.filter(|_| numbers.len() > 1) {
        Some(key) => format!("{key}={first}&"),
        None => String::new(),
    };
    // A mark is followed by an empty line.
    let marks = if is_marked { 2 } else { 0 };
    match extracted.sections[first - 1].table_head {
        Some(head) => {
            let row = query.rows.as_ref().map_or(1, NumberRanges::first);
            let rows = line.checked_sub(marks + head).filter(|rows| *rows > 0)?;
            Some(format!("{section}rows={row}-{}", row + rows - 1))
        }
        None => (line > marks).then(|| format!("{section}lines=1-{line}")),
    }
}

/// Refuses a parameter that has no effect on this format, such as `sheet` of a PDF, instead of ignoring it.
fn check_parameters(
    uri: &Uri,
    extracted: &ExtractedText,
    query: &DocumentQuery,
    unit: SectionUnit,
) -> Result<()> {
    let has_rows = extracted.sections.iter().any(|section| section.table_head.is_some());
    let applies = |key: &str| match key {
        "rows" => has_rows,
        "content" => extracted.format == crate::Format::Html,
        "lines" => true,
        key => unit.parameter() == Some(key),
    };
    let Some(wrong) = query.selections().find(|key| !applies(key)) else { return Ok(()) };
    let known: Vec<String> = ["pages", "sheet", "chapter", "cells", "mails", "rows", "lines", "content"]
        .into_iter()
        .filter(|key| applies(key))
        .map(|key| format!("`{key}`"))
        .collect();
    Err(Error::invalid(format!(
        "`{}` is of the format {}, which has no `{wrong}`; hint: use {}",
        uri.without_query(),
        extracted.format.name(),
        known.join(" or "),
    )))
}

/// The sections that the parameters of pages, sheets, chapters, cells or mails select; all without one of them.
fn selected_sections(
    uri: &Uri,
    extracted: &ExtractedText,
    query: &DocumentQuery,
    unit: SectionUnit,
) -> Result<SelectedSections> {
    let count = extracted.sections.len();
    let in_ranges = |ranges: &NumberRanges| (1..=count).filter(|number| ranges.contains(*number)).collect();
    if let Some(ranges) = query.pages.as_ref().or(query.cells.as_ref()).or(query.mails.as_ref()) {
        let numbers: Vec<usize> = in_ranges(ranges);
        if numbers.is_empty() {
            let (units, first) = (unit.plural(), ranges.first());
            return Err(Error::invalid(format!(
                "`{}` has {count} {units}, and {first} is after the last; hint: choose from 1 to {count}",
                uri.without_query(),
            )));
        }
        let ranges = unit.parameter().map(|key| (key, ranges.clone()));
        return Ok(SelectedSections { numbers, ranges });
    }
    let Some(name) = query.sheet.as_ref().or(query.chapter.as_ref()) else {
        return Ok(SelectedSections { numbers: (1..=count).collect(), ranges: None });
    };
    if let Some(number) = section_number(extracted, name) {
        // A title may be a number too.
        let is_number = unit == SectionUnit::Chapter && name.parse() == Ok(number);
        let ranges = NumberRanges::parse("chapter", name).ok().filter(|_| is_number);
        let ranges = ranges.map(|ranges| ("chapter", ranges));
        return Ok(SelectedSections { numbers: vec![number], ranges });
    }
    if unit == SectionUnit::Chapter
        && let Ok(ranges) = NumberRanges::parse("chapter", name)
    {
        let numbers: Vec<usize> = in_ranges(&ranges);
        if !numbers.is_empty() {
            return Ok(SelectedSections { numbers, ranges: Some(("chapter", ranges)) });
        }
    }
    Err(no_section(uri, extracted, unit, name))
}

/// The number of the section with this name (ignoring ASCII case), or with this number.
pub(super) fn section_number(extracted: &ExtractedText, name: &str) -> Option<usize> {
    let is_named = |section: &DocumentSection| {
        section.name.as_ref().is_some_and(|known| known.eq_ignore_ascii_case(name))
    };
    let named = extracted.sections.iter().position(is_named).map(|at| at + 1);
    let is_number = |number: &usize| (1..=extracted.sections.len()).contains(number);
    named.or_else(|| name.parse().ok().filter(is_number))
}

/// The error for a sheet or chapter that does not exist.
fn no_section(uri: &Uri, extracted: &ExtractedText, unit: SectionUnit, name: &str) -> Error {
    let names = extracted.sections.iter().filter_map(|section| section.name.as_ref());
    let names: Vec<String> = names.take(20).map(|name| format!("`{name}`")).collect();
    let names = match &names[..] {
        [] => String::new(),
        names => format!(", or one of {}", names.join(", ")),
    };
    Error::invalid(format!(
        "`{}` has no {} `{name}`; hint: choose a number from 1 to {}{names}",
        uri.without_query(),
        unit.parameter().unwrap_or_default(),
        extracted.sections.len(),
    ))
}

/// Removes the sheets that have none of the selected rows. It is an error if no sheet is left, unless all are empty.
fn keep_sections_with_rows(
    uri: &Uri,
    extracted: &ExtractedText,
    numbers: &mut Vec<usize>,
    rows: &NumberRanges,
) -> Result<()> {
    let section = |number: &usize| &extracted.sections[*number - 1];
    let Some(longest) = numbers.iter().max_by_key(|number| row_count(section(number))).copied() else {
        return Ok(());
    };
    let (count, first) = (row_count(section(&longest)), rows.first());
    if count > 0 && count < first {
        let table = match (&section(&longest).name, &numbers[..]) {
            (Some(name), [_]) => format!("the sheet `{name}`"),
            (Some(name), _) => format!("the longest sheet `{name}`"),
            (None, _) => "the table".to_owned(),
        };
        return Err(Error::invalid(format!(
            "{table} of `{}` has {count} rows, and {first} is after the last; hint: choose from 1 to {count}",
            uri.without_query(),
        )));
    }
    numbers.retain(|number| count == 0 || row_count(section(number)) >= first);
    Ok(())
}

/// The number of rows of a table, without its head.
pub(super) fn row_count(section: &DocumentSection) -> usize {
    let head = section.table_head.unwrap_or(usize::MAX);
    section.text.lines().count().saturating_sub(head)
}

/// The lines that mark the beginning of a section.
fn mark(unit: SectionUnit, number: usize, section: &DocumentSection, is_first: bool) -> String {
    let line = match unit {
        SectionUnit::Sheet => format!("## {}", section.name.as_deref().unwrap_or_default()),
        SectionUnit::Page => format!("<!-- page {number} -->"),
        SectionUnit::Slide => format!("<!-- slide {number} -->"),
        SectionUnit::Chapter => format!("<!-- chapter {number} -->"),
        SectionUnit::Cell => format!("<!-- cell {number} -->"),
        SectionUnit::Mail => format!("<!-- mail {number} -->"),
        SectionUnit::Whole => format!("<!-- section {number} -->"),
    };
    let before = if is_first { "" } else { "\n" };
    format!("{before}{line}\n\n")
}

/// Appends the head of a table and its selected rows. Rows are counted from 1, without the head.
fn push_rows(out: &mut BoundedText<'_>, section: &DocumentSection, rows: &NumberRanges) {
    let head = section.table_head.unwrap_or(0);
    for (at, line) in section.text.split_inclusive('\n').enumerate() {
        if at < head || rows.contains(at + 1 - head) {
            out.push(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::select;
    use crate::layer::query::{DocumentQuery, ReadForm};
    use crate::{DocumentSection, ExtractedText, Format};
    use libris_core::{Result, Uri};

    fn text(format: Format, sections: &[(&str, &str)], query: &str) -> Result<String> {
        let sections = sections.iter().map(|(name, text)| DocumentSection {
            name: (!name.is_empty()).then(|| (*name).to_owned()),
            text: (*text).to_owned(),
            table_head: matches!(format, Format::Xlsx | Format::Csv).then_some(2),
        });
        let extracted = ExtractedText {
            format,
            title: None,
            sections: sections.collect(),
            left_out: vec!["2 images".to_owned()],
        };
        let uri = Uri::parse(&format!("file:///a?as=text{query}")).unwrap();
        select(&uri, &extracted, &DocumentQuery::parse(&uri, ReadForm::Text)?).map(|selected| selected.text)
    }

    #[test]
    fn pages_are_marked_and_selected() {
        let pages = [("", "one"), ("", "two"), ("", "three")];
        let all = text(Format::Pdf, &pages, "").unwrap();
        assert_eq!(
            all,
            "<!-- page 1 -->\n\none\n\n<!-- page 2 -->\n\ntwo\n\n<!-- page 3 -->\n\nthree\n\n> Left out: 2 images.\n"
        );
        assert_eq!(
            text(Format::Pdf, &pages, "&pages=2-").unwrap(),
            "<!-- page 2 -->\n\ntwo\n\n<!-- page 3 -->\n\nthree\n\n> Left out of the whole document: 2 images.\n"
        );
        let error = text(Format::Pdf, &pages, "&pages=9").unwrap_err().to_string();
        assert_eq!(error, "`file:///a` has 3 pages, and 9 is after the last; hint: choose from 1 to 3");
    }

    #[test]
    fn sheets_are_selected_by_name_or_number_and_rows_below_the_head() {
        let sheets = [("First", "| a |\n|---|\n| 1 |\n| 2 |\n| 3 |"), ("2024", "| b |\n|---|\n")];
        let first = "## First\n\n| a |\n|---|\n| 2 |\n\n> Left out of the whole document: 2 images.\n";
        assert_eq!(text(Format::Xlsx, &sheets, "&sheet=first&rows=2").unwrap(), first);
        assert_eq!(text(Format::Xlsx, &sheets, "&sheet=1&rows=2").unwrap(), first);
        assert!(text(Format::Xlsx, &sheets, "&sheet=2024").unwrap().starts_with("## 2024\n"));
        assert!(text(Format::Xlsx, &sheets, "&sheet=x").unwrap_err().to_string().contains("`First`, `2024`"));
        assert!(
            text(Format::Xlsx, &sheets, "&sheet=1&rows=9").unwrap_err().to_string().contains("has 3 rows")
        );
    }

    #[test]
    fn a_parameter_without_effect_is_refused() {
        let error = text(Format::Pdf, &[("", "one")], "&sheet=x").unwrap_err().to_string();
        assert_eq!(
            error,
            "`file:///a` is of the format pdf, which has no `sheet`; hint: use `pages` or `lines`"
        );
        assert!(text(Format::Docx, &[("", "one")], "&pages=1").is_err());
        assert!(text(Format::Csv, &[("", "| a |\n|---|\n| 1 |")], "&rows=1").is_ok());
    }
}
