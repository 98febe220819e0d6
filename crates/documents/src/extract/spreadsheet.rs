//! Spreadsheets, sheet by sheet, with the `calamine` crate.

use std::borrow::Cow;
use std::io::{Cursor, Write as _};

use calamine::{Data, ExcelDateTime, Range, Reader, SheetType, Sheets};
use memchr::memmem;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::markdown::{cell, count, push_row};
use super::package::ZipPackage;
use super::{ExtractFailure, ExtractResult};
use crate::{DocumentSection, ExtractedText, ExtractionLimits, Format};

/// The maximum number of cells of a sheet, including empty ones before used ones: a single cell in the last row and
/// column of a sheet would give billions.
const MAX_CELLS: usize = 16 << 20;

pub(super) fn extract(
    data: &[u8],
    format: Format,
    limits: &ExtractionLimits,
) -> ExtractResult<ExtractedText> {
    let omitted = match format.is_zip() {
        true => Some(scan_parts(data, limits)?),
        false => None,
    };
    match read(data, format, omitted) {
        // Some programs write numbers with spaces around them. Excel accepts them, and `calamine` does not.
        Err(ExtractFailure::Damaged(cause)) if format == Format::Xlsx => {
            let trimmed = with_trimmed_values(data, limits)?;
            read(&trimmed, format, omitted).map_err(|_| ExtractFailure::Damaged(cause))
        }
        read => read,
    }
}

/// What a workbook contains besides values of cells.
#[derive(Clone, Copy, Default)]
struct OmittedParts {
    images: usize,
    charts: usize,
    formulas: usize,
    /// SmartArt.
    diagrams: usize,
    text_boxes: usize,
    objects: usize,
    comments: usize,
    /// Links of cells, whose texts are kept.
    links: usize,
}

/// Converts the sheets of a workbook. `omitted` is `None` if the format has no parts that could be counted.
fn read(data: &[u8], format: Format, omitted: Option<OmittedParts>) -> ExtractResult<ExtractedText> {
    let cursor = Cursor::new(data);
    let mut book = match format {
        Format::Xls => calamine::Xls::new(cursor).map(Sheets::Xls).map_err(|cause| failure(&cause))?,
        Format::Xlsb => calamine::Xlsb::new(cursor).map(Sheets::Xlsb).map_err(|cause| failure(&cause))?,
        Format::Ods => calamine::Ods::new(cursor).map(Sheets::Ods).map_err(|cause| failure(&cause))?,
        _ => calamine::Xlsx::new(cursor).map(Sheets::Xlsx).map_err(|cause| failure(&cause))?,
    };
    let sheets = book.sheets_metadata().to_vec();
    let mut sections = Vec::with_capacity(sheets.len());
    let mut without_cells = 0;
    let mut formulas = 0;
    for sheet in &sheets {
        if sheet.typ != SheetType::WorkSheet {
            without_cells += 1;
            continue;
        }
        // In the other formats, the formulas are counted in the XML, because `calamine` would parse the sheet again.
        if matches!(format, Format::Xls | Format::Xlsb)
            && let Ok(range) = book.worksheet_formula(&sheet.name)
        {
            formulas += range.used_cells().filter(|(_, _, formula)| !formula.is_empty()).count();
        }
        let range = book.worksheet_range(&sheet.name).map_err(|cause| failure(&cause))?;
        let mut section = rows(&range)?;
        section.name = Some(sheet.name.clone());
        sections.push(section);
    }
    let mut left_out: Vec<String> = match omitted {
        Some(omitted) => {
            formulas += omitted.formulas;
            let counts = [
                count(omitted.images, "image"),
                count(omitted.charts, "chart"),
                count(omitted.diagrams, "diagram"),
                count(omitted.text_boxes, "text box"),
                count(omitted.objects, "embedded object"),
                count(omitted.comments, "comment"),
                count(omitted.links, "link target"),
            ];
            counts.into_iter().flatten().collect()
        }
        None => vec!["images, charts, comments and link targets, if there are any".to_owned()],
    };
    if format == Format::Xlsb {
        left_out.push("comments and link targets, if there are any".to_owned());
    }
    left_out.extend(count(formulas, "formula").map(|formulas| format!("{formulas} (the results are kept)")));
    left_out.extend(count(without_cells, "sheet").map(|sheets| format!("{sheets} without cells")));
    Ok(ExtractedText { format, title: None, sections, left_out })
}

/// Decompresses the XML and binary parts once to check their total size, since `calamine` has no limit of its own, and
/// counts what the text of the sheets lacks.
fn scan_parts(data: &[u8], limits: &ExtractionLimits) -> ExtractResult<OmittedParts> {
    let mut package = ZipPackage::open(data, limits.expanded)?;
    let mut omitted = OmittedParts::default();
    for index in 0..package.archive().len() {
        let name = package.archive().name_for_index(index).and_then(Result::ok).map(Cow::into_owned);
        let Some(name) = name else { continue };
        // Excel and OpenDocument, in this order.
        if (name.starts_with("xl/media/") || name.starts_with("Pictures/")) && !name.ends_with('/') {
            omitted.images += 1;
        }
        if name.starts_with("xl/embeddings/") && !name.ends_with('/') {
            omitted.objects += 1;
        }
        if ![".xml", ".bin", ".rels"].iter().any(|extension| name.ends_with(extension)) {
            continue;
        }
        let part = package.read_index(index)?;
        if name.starts_with("xl/charts/chart") {
            omitted.charts += 1;
        } else if name.starts_with("xl/worksheets/") && name.ends_with(".xml") {
            omitted.formulas += elements(&part, "f");
            omitted.links += elements(&part, "hyperlink");
        } else if name.starts_with("xl/comments") && name.ends_with(".xml") {
            omitted.comments += elements(&part, "comment");
        } else if name.starts_with("xl/diagrams/data") {
            omitted.diagrams += 1;
        } else if name.starts_with("xl/drawings/drawing") {
            omitted.text_boxes += elements(&part, "txBody");
        } else if name == "content.xml" {
            omitted.formulas += memmem::find_iter(&part, "table:formula=").count();
            omitted.comments += elements(&part, "annotation");
            omitted.links += elements(&part, "a");
        } else if name.ends_with("/content.xml") {
            let is_chart = memmem::find(&part, b"<office:chart").is_some();
            omitted.charts += usize::from(is_chart);
            omitted.objects += usize::from(!is_chart);
        }
    }
    Ok(omitted)
}

/// How many elements of this name a part has, with any prefix: some programs write `<x:f>` for `<f>`.
fn elements(part: &[u8], wanted: &str) -> usize {
    /// The longest name, with its prefix.
    const MAX_NAME: usize = 32;
    let is_wanted = |at: usize| {
        let tag = &part[at + 1..];
        let end = tag
            .iter()
            .take(MAX_NAME)
            .position(|byte| matches!(byte, b'>' | b'/') || byte.is_ascii_whitespace());
        let name = &tag[..end.unwrap_or(0)];
        let local = name.strip_suffix(wanted.as_bytes());
        local.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with(b":"))
    };
    memchr::memchr_iter(b'<', part).filter(|at| is_wanted(*at)).count()
}

/// A copy of a workbook in which no value of a cell begins or ends with white space.
fn with_trimmed_values(data: &[u8], limits: &ExtractionLimits) -> ExtractResult<Vec<u8>> {
    let mut package = ZipPackage::open(data, limits.expanded)?;
    let mut copy = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for index in 0..package.archive().len() {
        let name = package.archive().name_for_index(index).and_then(Result::ok).map(Cow::into_owned);
        let Some(name) = name.filter(|name| !name.ends_with('/')) else { continue };
        let mut part = package.read_index(index)?;
        if name.starts_with("xl/worksheets/") {
            part = trim_values(&String::from_utf8_lossy(&part)).into_bytes();
        }
        copy.start_file(name, options).map_err(ExtractFailure::damaged)?;
        copy.write_all(&part).map_err(ExtractFailure::damaged)?;
    }
    Ok(copy.finish().map_err(ExtractFailure::damaged)?.into_inner())
}

/// Trims the contents of all elements `<v>`.
fn trim_values(sheet: &str) -> String {
    let mut parts = sheet.split("<v>");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("<v>");
        match part.split_once("</v>") {
            Some((value, rest)) => out.extend([value.trim(), "</v>", rest]),
            None => out.push_str(part),
        }
    }
    out
}

fn failure(cause: &dyn std::error::Error) -> ExtractFailure {
    let text = cause.to_string();
    if text.contains("password") { ExtractFailure::Encrypted } else { ExtractFailure::damaged(text) }
}

/// Converts a sheet to a table. It begins at row 1 and column A even if these are empty, so that rows and columns keep
/// their numbers.
fn rows(range: &Range<Data>) -> ExtractResult<DocumentSection> {
    let (Some((top, left)), Some((bottom, right))) = (range.start(), range.end()) else {
        return Ok(DocumentSection { table_head: Some(2), ..DocumentSection::default() });
    };
    let (width, height) = (right as usize + 1, bottom as usize + 1);
    if width.saturating_mul(height) > MAX_CELLS {
        return Err(ExtractFailure::damaged(format!("a sheet has more than {MAX_CELLS} cells")));
    }
    let mut text = String::new();
    let mut lines = 0;
    let empty_row = |text: &mut String| push_row(text, std::iter::empty::<&str>(), width);
    let head = |text: &mut String, lines: &mut usize| {
        *lines += 1;
        if *lines == 1 {
            text.push_str(&"|---".repeat(width));
            text.push_str("|\n");
        }
    };
    for _ in 0..top {
        empty_row(&mut text);
        head(&mut text, &mut lines);
    }
    for row in range.rows() {
        let before = std::iter::repeat_n(String::new(), left as usize);
        push_row(&mut text, before.chain(row.iter().map(value)), width);
        head(&mut text, &mut lines);
    }
    Ok(DocumentSection { text, table_head: Some(2), ..DocumentSection::default() })
}

fn value(data: &Data) -> String {
    match data {
        Data::Empty => String::new(),
        Data::String(text) => cell(text),
        Data::Int(number) => number.to_string(),
        Data::Float(number) => number.to_string(),
        Data::Bool(true) => "TRUE".to_owned(),
        Data::Bool(false) => "FALSE".to_owned(),
        Data::DateTime(time) => date_time(time),
        Data::DateTimeIso(text) | Data::DurationIso(text) => cell(text),
        Data::Error(error) => error.to_string(),
    }
}

fn date_time(time: &ExcelDateTime) -> String {
    if time.is_duration() {
        let seconds = (time.as_f64() * 86_400.0).round();
        let (hours, minutes) = ((seconds / 3_600.0).trunc(), (seconds / 60.0).trunc() % 60.0);
        return format!("{hours}:{:02}:{:02}", minutes.abs(), (seconds % 60.0).abs());
    }
    let (year, month, day, hour, minute, second, _) = time.to_ymd_hms_milli();
    let date = format!("{year:04}-{month:02}-{day:02}");
    let clock = format!("{hour:02}:{minute:02}:{second:02}");
    match time.as_f64() {
        days if days < 1.0 => clock,
        days if days.fract() == 0.0 => date,
        _ => format!("{date} {clock}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{elements, trim_values};

    #[test]
    fn elements_are_counted_with_any_prefix() {
        let sheet = "<c><f>A1</f><v>1</v></c><c><f t=\"shared\" si=\"0\"/></c><x:f>B1</x:f><font/><fx><xf>";
        assert_eq!(elements(sheet.as_bytes(), "f"), 3);
    }

    #[test]
    fn values_are_trimmed() {
        let sheet = "<c t=\"n\"><v> 41\n</v></c><c><v>x y</v></c><f> 1 </f><v> open";
        assert_eq!(trim_values(sheet), "<c t=\"n\"><v>41</v></c><c><v>x y</v></c><f> 1 </f><v> open");
    }
}
