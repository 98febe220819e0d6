//! Selects the sections and rows of an extracted text that a URI requests.

use libris_core::{Error, Meta, Result, Uri};
use serde_json::json;

use super::query::{DocumentQuery, NumberRanges};
use crate::{DocumentSection, ExtractedText, SectionUnit};

/// The selected text with its metadata.
pub(super) struct SelectedText {
    pub(super) text: String,
    pub(super) meta: Meta,
}

/// Selects what `query` requests. `uri` is for error messages.
pub(super) fn select(uri: &Uri, extracted: &ExtractedText, query: &DocumentQuery) -> Result<SelectedText> {
    let unit = SectionUnit::of(extracted.format);
    check_parameters(uri, extracted, query, unit)?;
    let numbers = selected_numbers(uri, extracted, query, unit)?;
    let mut text = String::new();
    let mark = extracted.sections.len() > 1 || unit == SectionUnit::Sheet;
    for &number in &numbers {
        let section = &extracted.sections[number - 1];
        if mark {
            push_mark(&mut text, unit, number, section);
        }
        match &query.rows {
            Some(rows) => push_rows(&mut text, uri, section, rows)?,
            None => text.push_str(&section.text),
        }
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    if !extracted.left_out.is_empty() {
        text.push_str(&format!("\n> Left out: {}.\n", extracted.left_out.join("; ")));
    }
    Ok(SelectedText { meta: meta(extracted, unit, &numbers), text })
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
        key => unit.parameter() == Some(key),
    };
    let Some(wrong) = query.selections().find(|key| !applies(key)) else { return Ok(()) };
    let known: Vec<String> = ["pages", "sheet", "chapter", "cells", "mails", "rows", "content"]
        .into_iter()
        .filter(|key| applies(key))
        .map(|key| format!("`{key}`"))
        .collect();
    let hint = match &known[..] {
        [] => "read the whole text".to_owned(),
        known => format!("use {}", known.join(" or ")),
    };
    Err(Error::invalid(format!(
        "`{}` is of the format {}, which has no `{wrong}`; hint: {hint}",
        uri.without_query(),
        extracted.format.name(),
    )))
}

/// The numbers of the selected sections, counted from 1.
fn selected_numbers(
    uri: &Uri,
    extracted: &ExtractedText,
    query: &DocumentQuery,
    unit: SectionUnit,
) -> Result<Vec<usize>> {
    let all = 1..=extracted.sections.len();
    let ranges = query.pages.as_ref().or(query.cells.as_ref()).or(query.mails.as_ref());
    if let Some(ranges) = ranges {
        let numbers: Vec<usize> = all.filter(|number| ranges.contains(*number)).collect();
        if numbers.is_empty() {
            let (count, first) = (extracted.sections.len(), ranges.first());
            return Err(Error::invalid(format!(
                "`{}` has {count} {}, and {first} is after the last; hint: choose from 1 to {count}",
                uri.without_query(),
                unit.plural(),
            )));
        }
        return Ok(numbers);
    }
    let Some(name) = query.sheet.as_ref().or(query.chapter.as_ref()) else { return Ok(all.collect()) };
    let named = extracted
        .sections
        .iter()
        .position(|section| section.name.as_ref().is_some_and(|known| known.eq_ignore_ascii_case(name)));
    let numbered = name.parse::<usize>().ok().filter(|number| all.contains(number));
    match named.map(|at| at + 1).or(numbered) {
        Some(number) => Ok(vec![number]),
        None => {
            let names: Vec<String> = extracted
                .sections
                .iter()
                .filter_map(|section| section.name.as_ref())
                .take(20)
                .map(|name| format!("`{name}`"))
                .collect();
            Err(Error::invalid(format!(
                "`{}` has no {} `{name}`; hint: choose a number from 1 to {}, or one of {}",
                uri.without_query(),
                unit.parameter().unwrap_or_default(),
                extracted.sections.len(),
                names.join(", "),
            )))
        }
    }
}

/// Appends the line that marks the beginning of a section.
fn push_mark(text: &mut String, unit: SectionUnit, number: usize, section: &DocumentSection) {
    if !text.is_empty() {
        text.push('\n');
    }
    let name = match unit {
        SectionUnit::Sheet => {
            text.push_str(&format!("## {}\n\n", section.name.as_deref().unwrap_or_default()));
            return;
        }
        SectionUnit::Page => "page",
        SectionUnit::Slide => "slide",
        SectionUnit::Chapter => "chapter",
        SectionUnit::Cell => "cell",
        SectionUnit::Mail => "mail",
        SectionUnit::Whole => "section",
    };
    text.push_str(&format!("<!-- {name} {number} -->\n\n"));
}

/// Appends the head of a table and its selected rows. Rows are counted from 1, without the head.
fn push_rows(text: &mut String, uri: &Uri, section: &DocumentSection, rows: &NumberRanges) -> Result<()> {
    let head = section.table_head.unwrap_or(0);
    let mut count = 0;
    let mut found = false;
    for (at, line) in section.text.lines().enumerate() {
        count = (at + 1).saturating_sub(head);
        if at < head || rows.contains(count) {
            found |= at >= head;
            text.push_str(line);
            text.push('\n');
        }
    }
    match found || count == 0 {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "the table of `{}` has {count} rows, and {} is after the last; hint: choose from 1 to {count}",
            uri.without_query(),
            rows.first(),
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::select;
    use crate::layer::query::DocumentQuery;
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
        select(&uri, &extracted, &DocumentQuery::parse(&uri)?).map(|selected| selected.text)
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
            "<!-- page 2 -->\n\ntwo\n\n<!-- page 3 -->\n\nthree\n\n> Left out: 2 images.\n"
        );
        let error = text(Format::Pdf, &pages, "&pages=9").unwrap_err().to_string();
        assert_eq!(error, "`file:///a` has 3 pages, and 9 is after the last; hint: choose from 1 to 3");
    }

    #[test]
    fn sheets_are_selected_by_name_or_number_and_rows_below_the_head() {
        let sheets = [("First", "| a |\n|---|\n| 1 |\n| 2 |\n| 3 |"), ("2024", "| b |\n|---|\n")];
        let first = "## First\n\n| a |\n|---|\n| 2 |\n\n> Left out: 2 images.\n";
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
        assert_eq!(error, "`file:///a` is of the format pdf, which has no `sheet`; hint: use `pages`");
        assert!(text(Format::Docx, &[("", "one")], "&pages=1").is_err());
        assert!(text(Format::Csv, &[("", "| a |\n|---|\n| 1 |")], "&rows=1").is_ok());
    }
}
