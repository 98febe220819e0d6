//! HTML, with the `htmd` crate.

use htmd::HtmlToMarkdown;
use htmd::options::Options;

use super::markdown::count;
use super::{ExtractOptions, ExtractResult, HtmlContent, main_content, text};
use crate::{DocumentSection, ExtractedText, Format};

/// Elements whose content is left out of the text.
const SKIPPED: [&str; 9] =
    ["script", "style", "noscript", "template", "head", "iframe", "svg", "object", "canvas"];

pub(super) fn extract(data: &[u8], options: ExtractOptions) -> ExtractResult<ExtractedText> {
    let declared = if options.decoded { None } else { charset(data) };
    let html = text::decode(data, declared.as_deref());
    let converter = converter();
    let tree = converter.html_to_tree(&html).map_err(super::ExtractFailure::damaged)?;
    let title = main_content::title(&tree);
    let has_furniture = options.content == HtmlContent::Main && main_content::keep_main(&tree);
    let elements = main_content::count_elements(&tree);
    let number = |names: &[&str]| names.iter().filter_map(|name| elements.get(*name)).sum::<usize>();
    let mut left_out: Vec<String> = Vec::new();
    left_out.extend(count(number(&["img", "svg", "canvas"]), "image"));
    left_out.extend(count(number(&["iframe", "object", "video", "audio"]), "embedded object"));
    left_out.extend(count(number(&["script"]), "script"));
    if has_furniture {
        left_out
            .push("navigation and other parts around the main content (`content=all` keeps them)".to_owned());
    }
    let text = tidy(&converter.tree_to_markdown(&tree));
    Ok(ExtractedText { format: Format::Html, title, sections: vec![DocumentSection::new(text)], left_out })
}

/// Converts a page or a fragment of HTML to Markdown.
pub(super) fn markdown(html: &str) -> String {
    tidy(&converter().convert(html).unwrap_or_default())
}

fn converter() -> HtmlToMarkdown {
    let images = |_: &dyn htmd::element_handler::Handlers, element: htmd::Element<'_>| {
        let alternative = element.attrs.iter().find(|attribute| &*attribute.name.local == "alt");
        Some(alternative.map(|attribute| attribute.value.trim().to_owned()).unwrap_or_default().into())
    };
    HtmlToMarkdown::builder()
        .options(Options { translation_mode: htmd::options::TranslationMode::Pure, ..Options::default() })
        .skip_tags(SKIPPED.to_vec())
        .add_handler(vec!["img"], images)
        .build()
}

/// Removes trailing spaces, and reduces each run of empty lines to one.
fn tidy(markdown: &str) -> String {
    let mut out = String::with_capacity(markdown.len());
    let mut empty = 0;
    for line in markdown.lines().map(str::trim_end) {
        empty = if line.is_empty() { empty + 1 } else { 0 };
        if empty < 2 {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// The charset that the first 2 KiB of a page declare.
fn charset(data: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(&data[..data.len().min(2048)]).to_ascii_lowercase();
    let (_, after) = head.split_once("charset=").or_else(|| head.split_once("encoding="))?;
    let value = after.trim_start_matches(['"', '\'']);
    let end = value.find(|letter: char| !(letter.is_ascii_alphanumeric() || "-_:.".contains(letter)))?;
    Some(value[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::charset;

    #[test]
    fn the_charset_is_declared_in_several_forms() {
        let declared = |text: &str| charset(text.as_bytes());
        assert_eq!(declared("<meta charset=\"ISO-8859-1\">").as_deref(), Some("iso-8859-1"));
        assert_eq!(declared("<?xml version='1.0' encoding='koi8-r'?>").as_deref(), Some("koi8-r"));
        assert_eq!(declared("<p>none"), None);
    }
}
