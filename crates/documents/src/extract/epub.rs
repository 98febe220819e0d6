//! EPUB books, chapter by chapter.
//!
//! No EPUB library is used: the reading order (the spine) is a short list in the package document.

use super::markdown::count;
use super::package::{ZipPackage, folder, resolve};
use super::xml;
use super::{ExtractFailure, ExtractResult, html, text};
use crate::{DocumentSection, ExtractedText, ExtractionLimits, Format};

pub(super) fn extract(data: &[u8], limits: &ExtractionLimits) -> ExtractResult<ExtractedText> {
    let mut package = ZipPackage::open(data, limits.expanded)?;
    const CONTAINER: &str = "META-INF/container.xml";
    // Some EPUB files have everything inside an extra top-level folder; `root` is its path with a slash.
    let root = package
        .archive()
        .file_names()
        .flatten()
        .find_map(|name| name.strip_suffix(CONTAINER).map(str::to_owned));
    let root = root.unwrap_or_default();
    let container = xml::parse(&package.require(&format!("{root}{CONTAINER}"))?)?;
    let main = container.descendants("rootfile").first().and_then(|file| file.attribute("full-path"));
    let main =
        main.ok_or_else(|| ExtractFailure::damaged("`META-INF/container.xml` names no package document"))?;
    let main = format!("{root}{main}");
    let content = xml::parse(&package.require(&main)?)?;
    let items = content.descendants("item");
    let encrypted = encrypted_parts(&mut package, &root)?;
    let mut sections = Vec::new();
    let (mut images, mut encrypted_chapters) = (0, 0);
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
            encrypted_chapters += 1;
            continue;
        }
        let Some(data) = package.read(&part)? else { continue };
        let page = expand_self_closing_tags(&text::decode(&data, None));
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
    if sections.is_empty() && encrypted_chapters > 0 {
        return Err(ExtractFailure::Encrypted);
    }
    if sections.is_empty() && images == 0 {
        return Err(ExtractFailure::damaged("it has no chapters"));
    }
    let title = content.descendants("title").first().map(|title| title.text().trim().to_owned());
    let title = title.filter(|title| !title.is_empty());
    let mut left_out: Vec<_> = count(images, "image").into_iter().collect();
    left_out.extend(count(encrypted_chapters, "encrypted chapter"));
    Ok(ExtractedText { format: Format::Epub, title, sections, left_out })
}

/// The paths in `encryption.xml`, below `root`. These may be only obfuscated fonts.
fn encrypted_parts(package: &mut ZipPackage<'_>, root: &str) -> ExtractResult<Vec<String>> {
    let Some(data) = package.read(&format!("{root}META-INF/encryption.xml"))? else {
        return Ok(Vec::new());
    };
    let encryption = xml::parse(&data)?;
    let references = encryption.descendants("CipherReference");
    let paths = references.into_iter().filter_map(|part| part.attribute("URI"));
    Ok(paths.map(|path| format!("{root}{}", percent_decoded(path))).collect())
}

fn percent_decoded(text: &str) -> String {
    let decoded = libris_core::Uri::decode_segment(text).and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.unwrap_or_else(|| text.to_owned())
}

/// Expands self-closing tags, such as `<a/>` to `<a></a>`, except void elements: an HTML parser ignores the slash, so
/// `<title/>` would swallow the rest of the page.
fn expand_self_closing_tags(page: &str) -> String {
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
    use super::expand_self_closing_tags;

    #[test]
    fn self_closing_tags_are_expanded_except_void_elements() {
        assert_eq!(
            expand_self_closing_tags("<title/><a id='x'/>a <br/> 1/>2 <img src=\"a\"/>"),
            "<title></title><a id='x'></a>a <br/> 1/>2 <img src=\"a\"/>"
        );
    }
}
