//! EPUB books, chapter by chapter. By hand: the spine of a book is a short list in one XML part.

use super::markdown::count;
use super::package::{ZipPackage, folder, resolve};
use super::xml;
use super::{ExtractFailure, ExtractResult, html, text};
use crate::{DocumentSection, ExtractedText, ExtractionLimits, Format};

pub(super) fn extract(data: &[u8], limits: &ExtractionLimits) -> ExtractResult<ExtractedText> {
    let mut package = ZipPackage::open(data, limits.expanded)?;
    const CONTAINER: &str = "META-INF/container.xml";
    // Some books are packed with the folder that contains their parts.
    let root = package
        .archive()
        .file_names()
        .flatten()
        .find_map(|name| name.strip_suffix(CONTAINER).map(str::to_owned));
    let root = root.unwrap_or_default();
    let container = xml::parse(&package.require(&format!("{root}{CONTAINER}"))?)?;
    let main = container.descendants("rootfile").first().and_then(|file| file.attribute("full-path"));
    let main = root + main.ok_or_else(|| ExtractFailure::damaged("it names no content"))?;
    let content = xml::parse(&package.require(&main)?)?;
    let items = content.descendants("item");
    let encrypted = encrypted_parts(&mut package)?;
    let mut sections = Vec::new();
    let mut images = 0;
    for reference in content.descendants("itemref") {
        let Some(item) = reference
            .attribute("idref")
            .and_then(|id| items.iter().find(|item| item.attribute("id") == Some(id)))
        else {
            continue;
        };
        let target = percent_decoded(item.attribute("href").unwrap_or_default());
        let part = resolve(folder(&main), &target);
        if encrypted.contains(&part) {
            return Err(ExtractFailure::Encrypted);
        }
        let Some(data) = package.read(&part)? else { continue };
        let page = without_empty_tags(&text::decode(&data, None));
        images += page.matches("<img").count() + page.matches("<image").count();
        let markdown = html::markdown(&page);
        if markdown.trim().is_empty() {
            continue;
        }
        let name = markdown.lines().find_map(|line| {
            let name = line.trim_start_matches('#');
            (name.len() < line.len()).then(|| name.trim().to_owned())
        });
        sections.push(DocumentSection { name, text: markdown, table_head: None });
    }
    if sections.is_empty() && images == 0 {
        return Err(ExtractFailure::damaged("it has no chapters"));
    }
    let title = content.descendants("title").first().map(|title| title.text().trim().to_owned());
    let title = title.filter(|title| !title.is_empty());
    Ok(ExtractedText {
        format: Format::Epub,
        title,
        sections,
        left_out: count(images, "image").into_iter().collect(),
    })
}

/// The parts that are encrypted. Obfuscated fonts are encrypted too, and are no text.
fn encrypted_parts(package: &mut ZipPackage<'_>) -> ExtractResult<Vec<String>> {
    let Some(data) = package.read("META-INF/encryption.xml")? else { return Ok(Vec::new()) };
    let root = xml::parse(&data)?;
    let references = root.descendants("CipherReference");
    Ok(references.into_iter().filter_map(|part| part.attribute("URI").map(percent_decoded)).collect())
}

fn percent_decoded(text: &str) -> String {
    let decoded = libris_core::Uri::decode_segment(text).and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.unwrap_or_else(|| text.to_owned())
}

/// Writes `<a/>` as `<a></a>`: in XHTML it is an empty element, in HTML it is open, and `<title/>` would hide the page.
fn without_empty_tags(page: &str) -> String {
    const VOID: [&str; 13] = [
        "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr",
    ];
    let mut out = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(end) = rest.find("/>") {
        let (before, after) = (&rest[..end], &rest[end + 2..]);
        let start = before.rfind('<');
        let name = start.map(|start| {
            let name = &before[start + 1..];
            &name[..name
                .find(|letter: char| !(letter.is_alphanumeric() || ":-".contains(letter)))
                .unwrap_or(name.len())]
        });
        out.push_str(before);
        match name {
            Some(name) if !name.is_empty() && !VOID.contains(&name) => {
                out.push_str("></");
                out.push_str(name);
                out.push('>');
            }
            _ => out.push_str("/>"),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::without_empty_tags;

    #[test]
    fn empty_elements_are_closed() {
        assert_eq!(
            without_empty_tags("<title/><a id='x'/>a <br/> 1/>2 <img src=\"a\"/>"),
            "<title></title><a id='x'></a>a <br/> 1/>2 <img src=\"a\"/>"
        );
    }
}
