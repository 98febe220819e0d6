//! OpenDocument texts and presentations.

use super::markdown::{count, heading, link, push_block, push_item, table};
use super::package::ZipPackage;
use super::xml::{self, Element, XmlNode};
use super::{ExtractFailure, ExtractResult};
use crate::{DocumentSection, ExtractedText, ExtractionLimits, Format};

/// The maximum number of repetitions of a row, cell or space that are written out. Programs fill the rest of a table by
/// repeating an empty row or cell many times.
const MAX_REPETITIONS: usize = 64;

pub(super) fn extract(
    data: &[u8],
    format: Format,
    limits: &ExtractionLimits,
) -> ExtractResult<ExtractedText> {
    let mut package = ZipPackage::open(data, limits.expanded)?;
    if let Some(manifest) = package.read("META-INF/manifest.xml")?
        && !xml::parse(&manifest)?.descendants("encryption-data").is_empty()
    {
        return Err(ExtractFailure::Encrypted);
    }
    let content = xml::parse(&package.require("content.xml")?)?;
    let body = content.child("body").ok_or_else(|| ExtractFailure::damaged("it has no body"))?;
    let mut walk = OdfWalk { notes: Vec::new(), images: 0, objects: 0 };
    let mut sections = Vec::new();
    for part in body.elements() {
        match format {
            Format::Odp => {
                for page in part.elements().filter(|page| &*page.name == "page") {
                    let mut out = String::new();
                    walk.slide(page, &mut out);
                    sections.push(walk.finish(out));
                }
            }
            _ => {
                let mut out = String::new();
                walk.blocks(part, &mut out);
                sections.push(walk.finish(out));
            }
        }
    }
    let title = match package.read("meta.xml")? {
        Some(data) => xml::parse(&data)?.descendants("title").first().map(|title| title.text()),
        None => None,
    };
    let mut left_out: Vec<_> = count(walk.images, "image").into_iter().collect();
    left_out.extend(count(walk.objects, "embedded object"));
    Ok(ExtractedText { format, title: title.filter(|title| !title.is_empty()), sections, left_out })
}

struct OdfWalk {
    /// The texts of the notes in the current section.
    notes: Vec<String>,
    images: usize,
    objects: usize,
}

impl OdfWalk {
    /// Creates a section from the text `out`, followed by the notes collected in it.
    fn finish(&mut self, mut out: String) -> DocumentSection {
        for (number, note) in std::mem::take(&mut self.notes).into_iter().enumerate() {
            push_block(&mut out, &format!("[^{}]: {}", number + 1, note.trim().replace("\n\n", " ")));
        }
        DocumentSection::new(out)
    }

    fn blocks(&mut self, parent: &Element, out: &mut String) {
        for element in parent.elements() {
            match &*element.name {
                "h" => {
                    let level = element.attribute("outline-level").and_then(|level| level.parse().ok());
                    let (text, frames) = self.paragraph(element);
                    if !text.trim().is_empty() {
                        push_block(out, &heading(level.unwrap_or(1), &text));
                    }
                    push_block(out, &frames);
                }
                "p" => {
                    let (text, frames) = self.paragraph(element);
                    push_block(out, text.trim());
                    push_block(out, &frames);
                }
                "list" => self.list(element, 0, out),
                "table" => {
                    let mut rows = Vec::new();
                    self.rows(element, &mut rows);
                    push_block(out, &table(&rows));
                }
                // The image beside an object is a copy for programs that cannot show the object.
                "image" if has_object(parent) => {}
                "image" => self.images += 1,
                "object" | "object-ole" => self.objects += 1,
                "tracked-changes" | "annotation" | "sequence-decls" | "forms" | "variable-decls"
                | "user-field-decls" | "notes" => {}
                // Containers, such as sections, indexes, frames and text boxes.
                _ => self.blocks(element, out),
            }
        }
    }

    /// Appends a slide. Its title is the text of the frame with the class `title`.
    fn slide(&mut self, page: &Element, out: &mut String) {
        for element in page.elements() {
            match (&*element.name, element.attribute("class")) {
                ("frame", Some("title")) => {
                    let mut title = String::new();
                    self.blocks(element, &mut title);
                    if !title.trim().is_empty() {
                        push_block(out, &heading(2, &title));
                    }
                }
                ("notes", _) => {
                    let mut notes = String::new();
                    for frame in element.elements().filter(|frame| frame.attribute("class") == Some("notes"))
                    {
                        self.blocks(frame, &mut notes);
                    }
                    if !notes.trim().is_empty() {
                        push_block(out, &format!("Notes: {}", notes.trim()));
                    }
                }
                ("frame" | "custom-shape" | "g" | "rect" | "ellipse" | "line" | "connector", _) => {
                    self.blocks(element, out);
                }
                _ => {}
            }
        }
    }

    fn list(&mut self, list: &Element, depth: usize, out: &mut String) {
        for item in list.elements() {
            for element in item.elements() {
                match &*element.name {
                    "list" => self.list(element, depth + 1, out),
                    "h" => self.blocks_of(element, out),
                    "p" => {
                        let (text, frames) = self.paragraph(element);
                        push_item(out, depth, "-", &text);
                        push_block(out, &frames);
                    }
                    _ => self.blocks_of(element, out),
                }
            }
        }
    }

    /// Appends a heading as one block. For any other element, appends the blocks inside it.
    fn blocks_of(&mut self, element: &Element, out: &mut String) {
        match &*element.name {
            "h" => {
                let level = element.attribute("outline-level").and_then(|level| level.parse().ok());
                let (text, _) = self.paragraph(element);
                push_block(out, &heading(level.unwrap_or(1), &text));
            }
            _ => self.blocks(element, out),
        }
    }

    /// The text of a paragraph, and the blocks of the frames that are anchored in it.
    fn paragraph(&mut self, paragraph: &Element) -> (String, String) {
        let (mut text, mut frames) = (String::new(), String::new());
        self.inline(paragraph, &mut text, &mut frames);
        (text, frames)
    }

    fn inline(&mut self, parent: &Element, out: &mut String, frames: &mut String) {
        for node in &parent.children {
            let element = match node {
                XmlNode::Text(text) => {
                    // A run of white space in the XML counts as one space.
                    for word in text.split_inclusive(char::is_whitespace) {
                        let end = word.trim_end();
                        out.push_str(end);
                        if end.len() < word.len() && !out.ends_with([' ', '\n']) {
                            out.push(' ');
                        }
                    }
                    continue;
                }
                XmlNode::Element(element) => element,
            };
            match &*element.name {
                "s" => {
                    let spaces = element.attribute("c").and_then(|spaces| spaces.parse().ok()).unwrap_or(1);
                    out.push_str(&" ".repeat(usize::min(spaces, MAX_REPETITIONS)));
                }
                "tab" => out.push('\t'),
                "line-break" => out.push('\n'),
                "a" => {
                    let mut text = String::new();
                    self.inline(element, &mut text, frames);
                    let target = element.attribute("href").unwrap_or_default();
                    out.push_str(&link(&text, if target.starts_with('#') { "" } else { target }));
                }
                "note" => {
                    let mut text = String::new();
                    if let Some(body) = element.child("note-body") {
                        self.blocks(body, &mut text);
                    }
                    self.notes.push(text);
                    out.push_str(&format!("[^{}]", self.notes.len()));
                }
                "frame" | "custom-shape" | "g" | "rect" => self.blocks(element, frames),
                "annotation" | "annotation-end" | "soft-page-break" | "bookmark" | "bookmark-start" => {}
                _ => self.inline(element, out, frames),
            }
        }
    }

    fn rows(&mut self, parent: &Element, rows: &mut Vec<Vec<String>>) {
        for element in parent.elements() {
            match &*element.name {
                "table-row" => {
                    let mut cells: Vec<String> = Vec::new();
                    for cell in element.elements() {
                        if !matches!(&*cell.name, "table-cell" | "covered-table-cell") {
                            continue;
                        }
                        let mut text = String::new();
                        self.blocks(cell, &mut text);
                        cells.extend(std::iter::repeat_n(text, repetitions(cell, "number-columns-repeated")));
                    }
                    rows.extend(std::iter::repeat_n(cells, repetitions(element, "number-rows-repeated")));
                }
                _ => self.rows(element, rows),
            }
        }
    }
}

/// Whether a frame contains an embedded object, such as a chart.
fn has_object(frame: &Element) -> bool {
    frame.child("object").or_else(|| frame.child("object-ole")).is_some()
}

/// The value of an attribute that says how often an element is repeated, up to [`MAX_REPETITIONS`].
fn repetitions(element: &Element, name: &str) -> usize {
    element.attribute(name).and_then(|count| count.parse().ok()).unwrap_or(1).min(MAX_REPETITIONS)
}
