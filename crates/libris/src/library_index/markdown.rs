//! Renders the index as Markdown of at most [`MAX_BYTES`]. Sections that do not fit are shortened.

use std::fmt::Write as _;

use libris_core::{Resource, Template, Uri};

use super::URI;
use crate::document_text::with_parameter;
use crate::outline::{Outline, OutlineGroup};
use crate::path_note::PathNote;
use crate::tools::title;
use crate::tools::untrusted::one_line;

/// The largest index, in bytes.
pub(super) const MAX_BYTES: usize = 8 << 10;

/// The maximum sizes of the section of templates and of the section of notes, in bytes.
const MAX_TEMPLATE_BYTES: usize = 1_200;
const MAX_NOTE_BYTES: usize = 1_200;

/// The longest title and description of an entry, in characters.
const MAX_TITLE: usize = 80;
const MAX_DESCRIPTION: usize = 120;

/// How many titles the line of a folder quotes.
const MAX_TITLES: usize = 4;

/// The bytes reserved for the lines about omitted folders and unavailable sources.
const RESERVE: usize = 160;

/// The content of an index.
pub(super) struct IndexPage<'a> {
    pub(super) below: Option<&'a str>,
    pub(super) outline: Outline,
    pub(super) templates: Vec<Template>,
    pub(super) notes: &'a [PathNote],
}

/// The lines of a group in two forms: `all` has a line for each resource. If that is too long, `folders` is used, which
/// has a line for each folder.
struct GroupLines {
    head: String,
    all: Vec<String>,
    folders: Vec<String>,
}

impl IndexPage<'_> {
    pub(super) fn markdown(&self) -> String {
        let mut text = self.heading();
        let notes = notes(self.notes, &self.outline);
        let notes = section("Notes", &notes, MAX_NOTE_BYTES);
        let templates = section("URIs to fill in", &self.template_lines(), MAX_TEMPLATE_BYTES);
        let budget = MAX_BYTES.saturating_sub(text.len() + notes.len() + templates.len() + RESERVE);
        text.push_str(&self.groups(budget));
        if self.outline.next.is_some() {
            text.push_str("\nThere are more folders: list the resources.\n");
        }
        if !self.outline.unavailable.is_empty() {
            text.push_str("\nSome sources are unavailable, so resources are missing or outdated.\n");
        }
        text.push_str(&notes);
        text.push_str(&templates);
        text
    }

    fn heading(&self) -> String {
        let count: usize = self.outline.groups.iter().map(|group| group.count).sum();
        let is_partial =
            self.outline.next.is_some() || self.outline.groups.iter().any(|group| group.is_partial);
        let more = if is_partial { "more than " } else { "" };
        match self.below {
            None => format!("# Index\n\nThis server has {more}{count} resources.\n"),
            Some(below) => format!("# Index of {below}\n\nThe folder has {more}{count} resources.\n"),
        }
    }

    /// The groups: small ones with all resources, the others by folder, each within its share of the budget.
    fn groups(&self, budget: usize) -> String {
        let groups: Vec<_> = self.outline.groups.iter().map(|group| self.group_lines(group)).collect();
        let heads: usize = groups.iter().map(|group| group.head.len()).sum();
        let mut left = budget.saturating_sub(heads.min(budget));
        let mut order: Vec<_> = (0..groups.len()).collect();
        order.sort_by_key(|&at| size(&groups[at].all));
        let mut bodies = vec![String::new(); groups.len()];
        for (done, &at) in order.iter().enumerate() {
            let share = left / (order.len() - done);
            let group = &groups[at];
            bodies[at] = match size(&group.all) <= share {
                true => group.all.concat(),
                false => bounded(&group.folders, share),
            };
            left -= bodies[at].len().min(left);
        }
        let mut text = String::new();
        for (at, (group, body)) in groups.iter().zip(bodies).enumerate() {
            if text.len() + group.head.len() + body.len() > budget {
                _ = write!(text, "\n{} more folders.\n", groups.len() - at);
                break;
            }
            text.push_str(&group.head);
            text.push_str(&body);
        }
        text
    }

    fn group_lines(&self, group: &OutlineGroup) -> GroupLines {
        if let Some(resource) = group.as_resource() {
            return GroupLines { head: entry(resource), all: Vec::new(), folders: Vec::new() };
        }
        let mut head = format!("\n## {}", group.prefix);
        if let Some(folder) = &group.folder {
            let title = one_line(title(folder), MAX_TITLE);
            if !title.is_empty() && !group.prefix.trim_end_matches('/').ends_with(&title) {
                _ = write!(head, " — {title}");
            }
        }
        _ = writeln!(head, " ({} resources)", group.counted());
        if let Some(description) = group.folder.as_ref().and_then(|folder| folder.description.as_deref()) {
            _ = writeln!(head, "{}", one_line(description, MAX_DESCRIPTION));
        }
        let mut sorted: Vec<_> = group.resources.iter().collect();
        // The sort is stable: equally important resources stay in URI order.
        sorted.sort_by(|one, other| priority(other).total_cmp(&priority(one)));
        let mut all: Vec<_> = sorted.iter().map(|resource| entry(resource)).collect();
        let folders = self.folder_lines(group);
        if group.is_partial {
            // Only the first resources are known: an incomplete list of them is less useful than the folders.
            all.clone_from(&folders);
        }
        GroupLines { head, all, folders }
    }

    /// A line for each folder directly in the group, and for each resource that is in no folder.
    fn folder_lines(&self, group: &OutlineGroup) -> Vec<String> {
        let mut folders: Vec<(&str, Vec<&Resource>)> = Vec::new();
        for resource in &group.resources {
            let uri = resource.uri.as_str();
            let rest = uri.strip_prefix(&*group.prefix).unwrap_or_default();
            let name = rest.split(['?', '#']).next().unwrap_or_default();
            let name = name.find('/').map_or("", |slash| &name[..=slash]);
            match folders.iter_mut().find(|(known, _)| *known == name) {
                Some((_, resources)) => resources.push(resource),
                None => folders.push((name, vec![resource])),
            }
        }
        let mut lines = Vec::new();
        for (name, resources) in folders {
            if name.is_empty() {
                lines.extend(resources.into_iter().map(entry));
                continue;
            }
            let folder = format!("{}{name}", group.prefix);
            let more = if group.is_partial { "+" } else { "" };
            let titles: Vec<_> =
                resources.iter().take(MAX_TITLES).map(|resource| one_line(title(resource), 40)).collect();
            let dots = if resources.len() > MAX_TITLES { ", …" } else { "" };
            let mut line =
                format!("- {folder} ({}{more} resources): {}{dots}", resources.len(), titles.join(", "));
            if let Some(index) = Uri::parse(URI).ok().and_then(|uri| with_parameter(&uri, "below", &folder)) {
                _ = write!(line, " → {index}");
            }
            line.push('\n');
            lines.push(line);
        }
        lines
    }

    fn template_lines(&self) -> Vec<String> {
        let shown = self.templates.iter().filter(|template| {
            let uri = template.uri.as_str();
            self.below.is_none_or(|below| uri.starts_with(below)) && !uri.starts_with("libris:")
        });
        let line = |template: &Template| {
            let about =
                template.description.as_deref().or(template.title.as_deref()).unwrap_or(&template.name);
            format!("- `{}`: {}\n", template.uri, one_line(about, MAX_DESCRIPTION))
        };
        shown.map(line).collect()
    }
}

/// The notes that are about a listed resource, as lines.
pub(super) fn notes(notes: &[PathNote], outline: &Outline) -> Vec<String> {
    let is_shown = |note: &&PathNote| {
        outline.groups.iter().flat_map(|group| &group.resources).any(|resource| note.covers(&resource.uri))
    };
    let line = |note: &PathNote| {
        format!("- {}: {}\n", one_line(&note.path, MAX_TITLE), one_line(&note.note, MAX_DESCRIPTION))
    };
    notes.iter().filter(is_shown).map(line).collect()
}

/// The importance of a resource; one without an annotation counts as 0.5.
pub(super) fn priority(resource: &Resource) -> f64 {
    resource.annotations.priority.unwrap_or(0.5)
}

/// A line for a resource.
fn entry(resource: &Resource) -> String {
    let title = one_line(title(resource), MAX_TITLE).replace(['[', ']'], "");
    let mut line = format!("- [{title}]({})", resource.uri);
    if let Some(description) = &resource.description {
        _ = write!(line, ": {}", one_line(description, MAX_DESCRIPTION));
    }
    line.push('\n');
    line
}

/// A heading and these lines; empty if there are no lines.
fn section(heading: &str, lines: &[String], budget: usize) -> String {
    match lines.is_empty() {
        true => String::new(),
        false => format!("\n## {heading}\n{}", bounded(lines, budget)),
    }
}

/// As many lines as fit into the budget, and a line with the number of omitted lines.
fn bounded(lines: &[String], budget: usize) -> String {
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        // 24 bytes are reserved for the line with the number of omitted lines.
        if text.len() + line.len() + 24 > budget && at + 1 < lines.len() || text.len() + line.len() > budget {
            _ = writeln!(text, "- and {} more", lines.len() - at);
            break;
        }
        text.push_str(line);
    }
    text
}

fn size(lines: &[String]) -> usize {
    lines.iter().map(String::len).sum()
}

#[cfg(test)]
mod tests {
    use super::{IndexPage, MAX_BYTES};
    use crate::outline::{Outline, OutlineGroup};
    use crate::path_note::PathNote;
    use libris_core::{Annotations, Resource, Template, Uri, UriTemplate};

    fn group(prefix: &str, names: impl IntoIterator<Item = String>, is_partial: bool) -> OutlineGroup {
        let resources: Vec<_> = names
            .into_iter()
            .map(|name| Resource::new(Uri::parse(&format!("{prefix}{name}")).unwrap(), name))
            .collect();
        OutlineGroup {
            prefix: prefix.to_owned(),
            folder: None,
            count: resources.len(),
            resources,
            is_partial,
        }
    }

    fn page<'a>(groups: Vec<OutlineGroup>, notes: &'a [PathNote]) -> IndexPage<'a> {
        let outline = Outline { groups, ..Outline::default() };
        let template = UriTemplate::parse("shop://orders/{id}").unwrap();
        IndexPage { below: None, outline, templates: vec![Template::new(template, "an order")], notes }
    }

    #[test]
    fn a_small_library_is_shown_whole_the_important_first() {
        let mut handbook = group("file:///h/", ["a.md".to_owned(), "adr/1.md".to_owned()], false);
        handbook.resources[1].annotations = Annotations { priority: Some(1.0), ..Annotations::default() };
        let notes = [("adr/", "why"), ("nowhere/", "never")]
            .map(|(path, note)| PathNote { path: path.to_owned(), note: note.to_owned() });
        assert_eq!(
            page(vec![handbook], &notes).markdown(),
            "# Index\n\nThis server has 2 resources.\n\n## file:///h/ (2 resources)\n- [adr/1.md](file:///h/adr/1.md)\n\
             - [a.md](file:///h/a.md)\n\n## Notes\n- adr/: why\n\n## URIs to fill in\n- `shop://orders/{id}`: an order\n"
        );
    }

    #[test]
    fn a_large_library_is_shown_by_folder_within_the_size() {
        let many = (0..400).map(|number| format!("f{:02}/{number}.md", number % 20));
        let huge = format!("{}.md", "x".repeat(4_000));
        let groups = vec![
            group("file:///large/", many, true),
            group("file:///small/", ["a.md".to_owned()], false),
            group("file:///huge/", (0..50).map(|number| format!("{number}{huge}")), false),
        ];
        let text = page(groups, &[]).markdown();
        assert!(text.len() <= MAX_BYTES, "{}", text.len());
        assert!(text.contains("(file:///small/a.md)"), "{text}");
        assert!(text.contains("- file:///large/f00/ (20+ resources)"), "{text}");
        assert!(text.contains("libris://index?below=file:%2F%2F%2Flarge%2Ff00%2F"), "{text}");
        let roots = (0..60)
            .map(|number| group(&format!("s{number}://{}/", "h".repeat(300)), ["x".to_owned()], false));
        assert!(page(roots.collect(), &[]).markdown().len() <= MAX_BYTES);
    }
}
