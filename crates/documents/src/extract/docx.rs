//! Word documents.
//!
//! No library is used: like pandoc and LibreOffice, this emits paragraphs, lists, tables and notes in document order,
//! which takes one walk over an XML tree.

use std::collections::HashMap;

use super::docx_styles::{Numbering, heading_levels, relationships};
use super::equation;
use super::markdown::{count, heading, link, push_block, push_item, table};
use super::package::ZipPackage;
use super::xml::{self, Element};
use super::{ExtractFailure, ExtractResult};
use crate::{DocumentSection, ExtractedText, ExtractionLimits, Format};

pub(super) fn extract(data: &[u8], limits: &ExtractionLimits) -> ExtractResult<ExtractedText> {
    let mut package = ZipPackage::open(data, limits.expanded)?;
    if package.has("EncryptedPackage") {
        return Err(ExtractFailure::Encrypted);
    }
    let main = main_part(&mut package)?;
    let document = xml::parse(&package.require(&main)?)?;
    let body = document.child("body").ok_or_else(|| ExtractFailure::damaged("it has no body"))?;
    let mut walk = DocxWalk {
        headings: heading_levels(&mut package)?,
        numbering: Numbering::read(&mut package)?,
        links: relationships(&mut package, &main)?,
        fields: Vec::new(),
        notes: Vec::new(),
        images: 0,
        charts: 0,
        diagrams: 0,
        objects: 0,
    };
    let mut out = String::new();
    walk.blocks(body, &mut out);
    let notes = std::mem::take(&mut walk.notes);
    for (part, container) in [("footnotes", "footnote"), ("endnotes", "endnote")] {
        let Some(data) = package.read(&format!("word/{part}.xml"))? else { continue };
        let root = xml::parse(&data)?;
        for note in root.elements().filter(|note| &*note.name == container) {
            let Some(id) = note.attribute("id") else { continue };
            let Some(number) = notes.iter().position(|(kind, known)| *kind == container && known == id)
            else {
                continue;
            };
            let mut text = String::new();
            walk.blocks(note, &mut text);
            push_block(&mut out, &format!("[^{}]: {}", number + 1, text.trim().replace("\n\n", " ")));
        }
    }
    let mut left_out: Vec<_> = count(walk.images, "image").into_iter().collect();
    left_out.extend(count(walk.charts, "chart"));
    left_out.extend(count(walk.diagrams, "diagram"));
    left_out.extend(count(walk.objects, "embedded object"));
    if has_text(&mut package, &["word/comments"])? {
        left_out.push("comments".to_owned());
    }
    if has_text(&mut package, &["word/header", "word/footer"])? {
        left_out.push("page headers and footers".to_owned());
    }
    Ok(ExtractedText {
        format: Format::Docx,
        title: core_title(&mut package)?,
        sections: vec![DocumentSection::new(out)],
        left_out,
    })
}

/// Whether one of the XML parts whose names begin like this contains text.
fn has_text(package: &mut ZipPackage<'_>, prefixes: &[&str]) -> ExtractResult<bool> {
    let is_wanted =
        |name: &str| name.ends_with(".xml") && prefixes.iter().any(|prefix| name.starts_with(prefix));
    let names = package.archive().file_names().flatten().filter(|name| is_wanted(name));
    for name in names.map(|name| name.to_string()).collect::<Vec<_>>() {
        // A damaged part does not matter, because it is left out anyway.
        let part = package.read(&name)?.and_then(|part| xml::parse(&part).ok());
        let texts = part.iter().flat_map(|part| part.descendants("t"));
        if texts.into_iter().any(|text| !text.text().trim().is_empty()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The name of the part with the text, which is nearly always `word/document.xml`.
fn main_part(package: &mut ZipPackage<'_>) -> ExtractResult<String> {
    let usual = "word/document.xml";
    if package.has(usual) {
        return Ok(usual.to_owned());
    }
    let targets = relationships(package, "")?;
    Ok(targets.into_values().find(|target| target.contains("document")).unwrap_or_else(|| usual.to_owned()))
}

/// The title in the metadata of an Office Open XML document.
pub(super) fn core_title(package: &mut ZipPackage<'_>) -> ExtractResult<Option<String>> {
    let Some(data) = package.read("docProps/core.xml")? else { return Ok(None) };
    let title = xml::parse(&data)?.child("title").map(|title| title.text().trim().to_owned());
    Ok(title.filter(|title| !title.is_empty()))
}

struct DocxWalk {
    headings: HashMap<String, usize>,
    numbering: Numbering,
    links: HashMap<String, String>,
    /// The fields that are open at this point of the text, the outermost first.
    fields: Vec<OpenField>,
    /// The notes that the text refers to, in order: `footnote` or `endnote`, and the id.
    notes: Vec<(&'static str, String)>,
    images: usize,
    charts: usize,
    diagrams: usize,
    objects: usize,
}

/// A field whose end was not reached yet, such as a link or a page number. Its instruction, which Word does not show,
/// comes before its result, which is the visible text.
#[derive(Default)]
struct OpenField {
    instruction: String,
    /// Where the result begins in the text of the paragraph; `None` before the result, and in a later paragraph.
    result: Option<usize>,
}

impl OpenField {
    /// Replaces the result, which ends at the end of `out`, by a link if this field is one.
    fn close(self, out: &mut String) {
        let Some(target) = link_target(&self.instruction) else { return };
        if let Some(result) = self.result.filter(|start| out.is_char_boundary(*start)) {
            let text = out.split_off(result);
            push_link(out, &text, target);
        }
    }
}

/// The target in the instruction of a field such as `HYPERLINK "http://a.example/" \o "tip"`; `None` for other fields, and
/// for links to a bookmark in the document, which have an option in place of the target.
fn link_target(instruction: &str) -> Option<&str> {
    let (name, rest) = instruction.trim_start().split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let target = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split_whitespace().next().filter(|target| !target.starts_with('\\')),
    };
    target.filter(|target| name.eq_ignore_ascii_case("HYPERLINK") && !target.is_empty())
}

/// Appends a link. White space around its text stays outside.
fn push_link(out: &mut String, text: &str, target: &str) {
    let (before, after) = (text.len() - text.trim_start().len(), text.trim_end().len());
    out.push_str(&text[..before]);
    out.push_str(&link(text, target));
    out.push_str(&text[after.max(before)..]);
}

impl DocxWalk {
    /// Appends the paragraphs and tables in an element.
    fn blocks(&mut self, parent: &Element, out: &mut String) {
        for element in parent.elements() {
            match &*element.name {
                "p" => self.paragraph(element, out),
                "tbl" => {
                    let rows = self.rows(element);
                    push_block(out, &table(&rows));
                }
                "sectPr" | "del" | "moveFrom" | "Fallback" => {}
                // Containers, such as content controls and insertions.
                _ => self.blocks(element, out),
            }
        }
    }

    fn paragraph(&mut self, paragraph: &Element, out: &mut String) {
        let mut text = String::new();
        let mut boxes = Vec::new();
        self.runs(paragraph, &mut text, &mut boxes);
        // A result that continues in the next paragraph is in another `text` there.
        self.fields.iter_mut().for_each(|field| field.result = None);
        let properties = paragraph.child("pPr");
        let value = |element: Option<&Element>| Some(element?.attribute("val")?.to_owned());
        let style = value(properties.and_then(|properties| properties.child("pStyle")));
        let outline = value(properties.and_then(|properties| properties.child("outlineLvl")));
        let outline = outline.and_then(|level| level.parse::<usize>().ok()).filter(|level| *level < 9);
        let level =
            style.and_then(|style| self.headings.get(&style).copied()).or(outline.map(|level| level + 1));
        let list = properties.and_then(|properties| properties.child("numPr"));
        let item = list.and_then(|list| {
            let level = value(list.child("ilvl")).and_then(|level| level.parse().ok()).unwrap_or(0);
            Some((level, self.numbering.marker(&value(list.child("numId"))?, level)?))
        });
        match (level, item) {
            (Some(level), _) if !text.trim().is_empty() => push_block(out, &heading(level, &text)),
            (None, Some((depth, marker))) => push_item(out, depth, &marker, &text),
            _ => push_block(out, text.trim()),
        }
        for text_box in boxes {
            self.blocks(text_box, out);
        }
    }

    /// Appends the text in an element, and collects the text boxes that are anchored in it.
    fn runs<'a>(&mut self, parent: &'a Element, out: &mut String, boxes: &mut Vec<&'a Element>) {
        for element in parent.elements() {
            match &*element.name {
                "t" => out.push_str(&element.text()),
                "tab" | "ptab" => out.push('\t'),
                "br" | "cr" => out.push('\n'),
                "noBreakHyphen" => out.push('\u{2011}'),
                "sym" => {
                    let code = element.attribute("char").and_then(|code| u32::from_str_radix(code, 16).ok());
                    // Symbol fonts use the private use area, where a code has no meaning without the font.
                    out.extend(
                        code.and_then(char::from_u32)
                            .filter(|letter| !('\u{e000}'..='\u{f8ff}').contains(letter)),
                    );
                }
                "hyperlink" => {
                    let text = self.inner_runs(element, boxes);
                    let target = element.attribute("id").and_then(|id| self.links.get(id));
                    push_link(out, &text, target.map_or("", String::as_str));
                }
                "fldSimple" => {
                    let text = self.inner_runs(element, boxes);
                    push_link(out, &text, element.attribute("instr").and_then(link_target).unwrap_or(""));
                }
                "fldChar" => self.field_mark(element.attribute("fldCharType").unwrap_or_default(), out),
                "instrText" => {
                    if let Some(field) = self.fields.last_mut() {
                        field.instruction.push_str(&element.text());
                    }
                }
                "oMathPara" => out.push_str(&equation::display(element)),
                "oMath" => out.push_str(&equation::inline(element)),
                "footnoteReference" => self.note("footnote", element, out),
                "endnoteReference" => self.note("endnote", element, out),
                "txbxContent" => boxes.push(element),
                "blip" | "imagedata" => self.images += 1,
                "chart" => self.charts += 1,
                // SmartArt.
                "relIds" => self.diagrams += 1,
                "OLEObject" => self.objects += 1,
                "pPr" | "rPr" | "del" | "delText" | "moveFrom" | "Fallback" | "tblPr" => {}
                _ => self.runs(element, out, boxes),
            }
        }
    }

    /// The text in an element that has its own text, such as a link.
    fn inner_runs<'a>(&mut self, element: &'a Element, boxes: &mut Vec<&'a Element>) -> String {
        let outer = std::mem::take(&mut self.fields);
        let mut text = String::new();
        self.runs(element, &mut text, boxes);
        self.fields = outer;
        text
    }

    /// Handles the mark of a field's beginning, of its result, or of its end.
    fn field_mark(&mut self, kind: &str, out: &mut String) {
        match kind {
            "begin" => self.fields.push(OpenField::default()),
            "separate" => {
                if let Some(field) = self.fields.last_mut() {
                    field.result = Some(out.len());
                }
            }
            "end" => {
                if let Some(field) = self.fields.pop() {
                    field.close(out);
                }
            }
            _ => {}
        }
    }

    /// Appends the reference to a note, which gets the next number.
    fn note(&mut self, kind: &'static str, reference: &Element, out: &mut String) {
        let Some(id) = reference.attribute("id") else { return };
        self.notes.push((kind, id.to_owned()));
        out.push_str(&format!("[^{}]", self.notes.len()));
    }

    fn rows(&mut self, element: &Element) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        self.collect_rows(element, &mut rows);
        rows
    }

    fn collect_rows(&mut self, parent: &Element, rows: &mut Vec<Vec<String>>) {
        for element in parent.elements() {
            match &*element.name {
                "tr" => {
                    let mut cells = Vec::new();
                    self.collect_cells(element, &mut cells);
                    rows.push(cells);
                }
                "del" => {}
                _ => self.collect_rows(element, rows),
            }
        }
    }

    fn collect_cells(&mut self, parent: &Element, cells: &mut Vec<String>) {
        for element in parent.elements() {
            match &*element.name {
                "tc" => {
                    let mut text = String::new();
                    self.blocks(element, &mut text);
                    cells.push(text);
                    let span = element.child("tcPr").and_then(|properties| properties.child("gridSpan"));
                    let span =
                        span.and_then(|span| span.attribute("val")?.parse::<usize>().ok()).unwrap_or(1);
                    cells.extend((1..span.min(100)).map(|_| String::new()));
                }
                "del" | "trPr" => {}
                _ => self.collect_cells(element, cells),
            }
        }
    }
}
