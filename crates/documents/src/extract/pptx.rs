//! PowerPoint presentations, slide by slide.

use std::collections::HashMap;

use super::docx::core_title;
use super::docx_styles::relationships;
use super::equation;
use super::markdown::{count, heading, link, push_block, push_item, table};
use super::package::ZipPackage;
use super::xml::{self, Element};
use super::{ExtractFailure, ExtractResult};
use crate::{DocumentSection, ExtractedText, ExtractionLimits, Format};

pub(super) fn extract(data: &[u8], limits: &ExtractionLimits) -> ExtractResult<ExtractedText> {
    const MAIN: &str = "ppt/presentation.xml";
    let mut package = ZipPackage::open(data, limits.expanded)?;
    let presentation = xml::parse(&package.require(MAIN)?)?;
    let targets = relationships(&mut package, MAIN)?;
    let list = presentation.child("sldIdLst");
    let slides: Vec<_> = list
        .into_iter()
        .flat_map(Element::elements)
        // A slide has the attributes `id` and `r:id`. The XML parser drops namespace prefixes, so both are named `id`;
        // the one that is a key of `targets` is the relationship.
        .filter_map(|slide| slide.attributes_named("id").find_map(|id| targets.get(id)))
        .cloned()
        .collect();
    let mut sections = Vec::new();
    let mut omitted = OmittedShapes::default();
    for part in slides {
        let Some(data) = package.read(&part)? else { continue };
        let slide = xml::parse(&data)?;
        let links = relationships(&mut package, &part)?;
        let mut walk = SlideWalk { links: &links, omitted };
        let mut out = String::new();
        walk.shapes(slide.child("cSld").unwrap_or(&slide), &mut out);
        omitted = walk.omitted;
        let notes = links.values().find(|target| target.contains("notesSlides/"));
        if let Some(data) = notes.map(|notes| package.read(notes)).transpose()?.flatten() {
            let text = notes_text(&xml::parse(&data)?);
            if !text.is_empty() {
                push_block(&mut out, &format!("Notes: {text}"));
            }
        }
        sections.push(DocumentSection::new(out));
    }
    if sections.is_empty() && list.is_some_and(|list| list.elements().next().is_some()) {
        return Err(ExtractFailure::damaged("its slides are missing"));
    }
    let title = core_title(&mut package)?;
    let left_out = [
        count(omitted.images, "image"),
        count(omitted.charts, "chart"),
        count(omitted.diagrams, "diagram"),
        count(omitted.media, "media file"),
        count(omitted.objects, "embedded object"),
        count(comments(&mut package)?, "comment"),
    ];
    let left_out = left_out.into_iter().flatten().collect();
    Ok(ExtractedText { format: Format::Pptx, title, sections, left_out })
}

/// The number of comments on all slides.
fn comments(package: &mut ZipPackage<'_>) -> ExtractResult<usize> {
    let is_part = |name: &str| name.starts_with("ppt/comments/") && name.ends_with(".xml");
    let names = package.archive().file_names().flatten().filter(|name| is_part(name));
    let mut comments = 0;
    for name in names.map(|name| name.to_string()).collect::<Vec<_>>() {
        // A damaged part does not matter, because it is left out anyway.
        let part = package.read(&name)?.and_then(|part| xml::parse(&part).ok());
        comments += part.map_or(0, |part| part.descendants("cm").len());
    }
    Ok(comments)
}

/// The kind of placeholder that a shape fills, such as `title`.
fn placeholder(shape: &Element) -> Option<&str> {
    let properties = shape.elements().find(|child| child.name.starts_with("nv"))?.child("nvPr")?;
    Some(properties.child("ph")?.attribute("type").unwrap_or("body"))
}

fn notes_text(notes: &Element) -> String {
    let shapes = notes.descendants("sp");
    let bodies = shapes.into_iter().filter(|shape| placeholder(shape) == Some("body"));
    let paragraphs = bodies.flat_map(|shape| shape.descendants("p"));
    let text: Vec<_> = paragraphs
        .map(|paragraph| paragraph.descendants("t").into_iter().map(Element::text).collect::<String>())
        .filter(|text| !text.trim().is_empty())
        .collect();
    text.join("\n")
}

/// Whether a picture stands for a video or a sound.
fn is_media(picture: &Element) -> bool {
    let files = ["audioCd", "audioFile", "quickTimeFile", "videoFile", "wavAudioFile"];
    let properties = picture.child("nvPicPr").and_then(|properties| properties.child("nvPr"));
    properties.is_some_and(|properties| files.iter().any(|file| properties.child(file).is_some()))
}

/// How many shapes without text were left out.
#[derive(Clone, Copy, Default)]
struct OmittedShapes {
    images: usize,
    charts: usize,
    /// SmartArt.
    diagrams: usize,
    media: usize,
    objects: usize,
}

struct SlideWalk<'a> {
    links: &'a HashMap<String, String>,
    omitted: OmittedShapes,
}

impl SlideWalk<'_> {
    fn shapes(&mut self, parent: &Element, out: &mut String) {
        for element in parent.elements() {
            match &*element.name {
                "sp" => self.shape(element, out),
                "tbl" => {
                    let rows: Vec<Vec<String>> = element
                        .elements()
                        .filter(|row| &*row.name == "tr")
                        .map(|row| {
                            let cells = row.elements().filter(|cell| &*cell.name == "tc");
                            cells.map(|cell| self.plain(cell)).collect()
                        })
                        .collect();
                    push_block(out, &table(&rows));
                }
                // A video or a sound is a picture with a reference to its file.
                "pic" if is_media(element) => self.omitted.media += 1,
                "pic" => self.omitted.images += 1,
                "chart" => self.omitted.charts += 1,
                "relIds" => self.omitted.diagrams += 1,
                // The picture in an embedded object is only a preview of it, so it is not counted.
                "oleObj" => self.omitted.objects += 1,
                // Repeats the content of its sibling `Choice` for older programs.
                "Fallback" => {}
                _ => self.shapes(element, out),
            }
        }
    }

    fn shape(&mut self, shape: &Element, out: &mut String) {
        let Some(body) = shape.child("txBody") else { return };
        let kind = placeholder(shape);
        if matches!(kind, Some("title" | "ctrTitle")) {
            let text = self.plain(body);
            if !text.trim().is_empty() {
                push_block(out, &heading(2, &text));
            }
            return;
        }
        let paragraphs: Vec<_> = body.elements().filter(|child| &*child.name == "p").collect();
        let is_list = matches!(kind, Some("body" | "obj")) && paragraphs.len() > 1;
        for paragraph in paragraphs {
            let text = self.paragraph(paragraph);
            let level =
                paragraph.child("pPr").and_then(|properties| properties.attribute("lvl")?.parse().ok());
            match is_list {
                true => push_item(out, level.unwrap_or(0), "-", &text),
                false => push_block(out, &text),
            }
        }
    }

    /// The Markdown of all paragraphs in an element, one per line.
    fn plain(&self, parent: &Element) -> String {
        let paragraphs = parent.descendants("p");
        paragraphs.into_iter().map(|paragraph| self.paragraph(paragraph)).collect::<Vec<_>>().join("\n")
    }

    fn paragraph(&self, paragraph: &Element) -> String {
        let mut out = String::new();
        for element in paragraph.elements() {
            match &*element.name {
                "r" | "fld" => {
                    let text = element.child("t").map(Element::text).unwrap_or_default();
                    let click = element.child("rPr").and_then(|properties| properties.child("hlinkClick"));
                    let target = click.and_then(|click| self.links.get(click.attribute("id")?));
                    match target.filter(|target| target.contains("://")) {
                        Some(target) => out.push_str(&link(&text, target)),
                        None => out.push_str(&text),
                    }
                }
                "br" => out.push('\n'),
                "AlternateContent" | "m" => {
                    // The child `Fallback` repeats `Choice` for older programs, as a picture.
                    let math = element.child("Choice").unwrap_or(element).descendants("oMath");
                    math.into_iter().for_each(|math| out.push_str(&equation::inline(math)));
                }
                _ => {}
            }
        }
        out
    }
}
