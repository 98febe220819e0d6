//! The instructions for models: which resources the server has, when to search, and which resources are most important.

use std::fmt::Write as _;

use libris_core::Template;

use super::URI;
use super::markdown::{notes, priority};
use crate::outline::Outline;
use crate::path_note::PathNote;
use crate::tools::title;
use crate::tools::untrusted::one_line;

/// The longest instructions, in bytes. Hosts truncate them at about 2 KB.
const MAX_BYTES: usize = 1_800;

/// The lowest priority of a resource that is named as important.
const IMPORTANT: f64 = 0.7;

/// How many important resources are named.
const MAX_IMPORTANT: usize = 6;

/// How many templates are named.
const MAX_TEMPLATES: usize = 8;

/// The longest title or description in a line, in characters.
const MAX_TEXT: usize = 120;

/// The instructions for a caller who sees this outline and these templates.
pub(crate) fn instructions(
    outline: &Outline,
    templates: &[Template],
    path_notes: &[PathNote],
    has_tools: bool,
) -> String {
    let groups: Vec<_> = outline.groups.iter().filter(|group| !group.prefix.starts_with("libris:")).collect();
    let mut text = String::from("This server holds documents and data as resources.");
    text.push_str(match has_tools {
        true => {
            " Before you answer a question that may concern them, call `search_resources`, then `read_resource` with the \
             `uri` and `lines` of the best result. `list_resources` shows what is in a folder.\n"
        }
        false => {
            " Before you answer a question about them, read the ones that bear on it: list the resources, or fill in a \
             template, then read the URI.\n"
        }
    });
    let index = format!("`{URI}` lists the most important resources.\n");
    let mut lines = InstructionLines { text, left: MAX_BYTES - index.len() };
    lines.left = lines.left.saturating_sub(lines.text.len());
    lines.section(
        "Here are:",
        groups.iter().map(|group| {
            let folder = group.folder.as_ref();
            let about = folder.and_then(|folder| folder.description.as_deref().or(folder.title.as_deref()));
            let about = about.map(|about| format!(": {}", one_line(about, MAX_TEXT))).unwrap_or_default();
            match group.as_resource() {
                Some(resource) => format!("- {}: {}", group.prefix, one_line(title(resource), MAX_TEXT)),
                None => format!("- {} ({} resources){about}", group.prefix, group.counted()),
            }
        }),
    );
    lines.section("Notes:", notes(path_notes, outline).into_iter().map(|line| line.trim_end().to_owned()));
    let mut important: Vec<_> = groups
        .iter()
        .flat_map(|group| &group.resources)
        .filter(|resource| priority(resource) >= IMPORTANT)
        .collect();
    important.sort_by(|one, other| priority(other).total_cmp(&priority(one)));
    important.truncate(MAX_IMPORTANT);
    lines.section(
        "Most important:",
        important
            .into_iter()
            .map(|resource| format!("- {}: {}", resource.uri, one_line(title(resource), MAX_TEXT))),
    );
    let templates = templates.iter().filter(|template| !template.uri.as_str().starts_with("libris:"));
    lines.section(
        "URIs to fill in:",
        templates.take(MAX_TEMPLATES).map(|template| {
            let about =
                template.description.as_deref().or(template.title.as_deref()).unwrap_or(&template.name);
            format!("- {}: {}", template.uri, one_line(about, MAX_TEXT))
        }),
    );
    let mut text = lines.text;
    if !groups.is_empty() {
        text.push_str(&index);
    }
    text
}

/// The text of the instructions. Only whole lines are added, and only while they fit into the `left` bytes.
struct InstructionLines {
    text: String,
    left: usize,
}

impl InstructionLines {
    fn section(&mut self, heading: &str, lines: impl Iterator<Item = String>) {
        let mut is_empty = true;
        for line in lines {
            let cost = line.len() + 1 + if is_empty { heading.len() + 1 } else { 0 };
            if cost > self.left {
                break;
            }
            self.left -= cost;
            if is_empty {
                _ = writeln!(self.text, "{heading}");
                is_empty = false;
            }
            _ = writeln!(self.text, "{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, instructions};
    use crate::outline::{Outline, OutlineGroup};
    use crate::path_note::PathNote;
    use libris_core::{Annotations, Resource, Template, Uri, UriTemplate};

    fn outline(count: usize) -> Outline {
        let group = |number: usize| {
            let uri = Uri::parse(&format!("file:///m{number}/adr/1.md")).unwrap();
            let annotations = Annotations { priority: Some(0.9), ..Annotations::default() };
            let title = Some(format!("Decision \u{e0041}{}", "x".repeat(500)));
            let resource = Resource { annotations, title, ..Resource::new(uri, "1.md") };
            let prefix = format!("file:///m{number}/");
            OutlineGroup { prefix, folder: None, resources: vec![resource], count: 1, is_partial: false }
        };
        Outline { groups: (0..count).map(group).collect(), ..Outline::default() }
    }

    #[test]
    fn instructions_name_what_is_here_and_stay_short() {
        let notes = [PathNote { path: "adr/".to_owned(), note: "why things are as they are".to_owned() }];
        let template = Template::new(UriTemplate::parse("shop://orders/{id}").unwrap(), "an order");
        let text = instructions(&outline(1), &[template], &notes, true);
        for part in [
            "search_resources",
            "file:///m0/ (1 resources)",
            "why things",
            "file:///m0/adr/1.md: Decision x",
            "{id}",
            "libris://index",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for count in [0, 1, 20, 200] {
            assert!(instructions(&outline(count), &[], &notes, true).len() <= MAX_BYTES);
        }
        let without = instructions(&outline(1), &[], &[], false);
        assert!(!without.contains("search_resources") && without.contains("list the resources"));
    }
}
