//! `libris ls`: lists the resources of a target.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use libris::{Audience, Context, DIRECTORY, Resource};

use crate::pager::PagedOutput;
use crate::sources::SourceArguments;
use crate::target::{EXIT_CODES, OpenedTarget, clipped, json_line, resource_json, width};
use crate::terminal::{DETAIL, ProgressLine, bytes, columns, counted, note, print, shown, styled};

/// The number of resources per page.
const PAGE_SIZE: usize = 1000;

/// The widest media type that `--long` prints in full.
const MAX_MIME: usize = 16;

/// List the resources of a folder, a database, another MCP server or any other source
///
/// Prints a line for each resource: its URI and its title. Text from servers is escaped before it reaches the terminal.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  libris ls ./docs                                      a folder
  libris ls https://mcp.example/mcp --long              a server, with sizes and types
  libris ls --mime 'image/*' -- npx -y some-server      the images of a server that is started
  libris ls ./docs --json                               JSON for scripts: one object per line

{EXIT_CODES}"))]
pub(crate) struct LsOptions {
    #[command(flatten)]
    pub(crate) sources: SourceArguments,
    /// Print size, time and media type, too
    #[arg(long, short, conflicts_with_all = ["json", "tree"])]
    long: bool,
    /// Print the paths as a tree
    #[arg(long, conflicts_with = "json")]
    tree: bool,
    /// Print JSON: one object per line
    #[arg(long)]
    json: bool,
    /// Only resources of this media type, such as `text/markdown` or `image/*`; may be given several times
    #[arg(long, value_name = "TYPE")]
    mime: Vec<String>,
    /// Only resources for this audience, and resources without an audience
    #[arg(long, value_name = "WHO")]
    audience: Option<AudienceFilter>,
    /// Only resources with at least this priority, from 0 to 1
    #[arg(long, value_name = "NUMBER")]
    min_priority: Option<f64>,
    /// Only resources that were modified at or after this time, such as `2026-01-31T00:00:00Z`
    #[arg(long, value_name = "TIME")]
    modified_since: Option<Timestamp>,
    /// Only resources whose URI begins with this text
    #[arg(long, value_name = "URI")]
    pub(crate) below: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AudienceFilter {
    /// The user
    User,
    /// The model
    Assistant,
}

/// Lists the resources.
pub(crate) async fn run(options: LsOptions) -> Result<ExitCode> {
    let target = OpenedTarget::open(&options.sources)?;
    let outcome = list(&options, &target).await;
    target.close().await;
    outcome
}

async fn list(options: &LsOptions, target: &OpenedTarget) -> Result<ExitCode> {
    let mut progress = ProgressLine::new();
    let (mut after, mut found, mut tree) = (None, 0, PathTree::default());
    let mut widths = DetailWidths::default();
    let mut output = PagedOutput::new();
    loop {
        let page = target.view.snapshot().list(after.as_ref(), PAGE_SIZE, &Context::default()).await;
        progress.clear();
        let page = page.context("could not list the resources")?;
        after = page.resources.last().map(|last| last.uri.clone());
        let mut text = String::new();
        let selected = || page.resources.iter().filter(|resource| options.selects(resource));
        if options.long {
            selected().for_each(|resource| widths.fit(&details(resource)));
        }
        for resource in selected() {
            found += 1;
            match (options.json, options.tree) {
                (true, _) => text.push_str(&json_line(&resource_json(resource))),
                (false, true) => tree.add(resource.uri.as_str()),
                (false, false) => text.push_str(&line(resource, options.long.then_some(&widths), width())),
            }
        }
        match options.json {
            true => print(&text),
            false => output.write(&text),
        }
        .context("could not print")?;
        if !page.more {
            break;
        }
        if !output.is_paged() {
            progress.update(format_args!("{} …", counted(found, "resource")));
        }
    }
    output.write(&tree.text()).and_then(|()| output.finish()).context("could not print")?;
    if found == 0 {
        note(if options.has_filters() { "no resource matches" } else { "the target has no resources" });
    }
    Ok(if found == 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl LsOptions {
    fn has_filters(&self) -> bool {
        !self.mime.is_empty()
            || self.audience.is_some()
            || self.min_priority.is_some()
            || self.modified_since.is_some()
            || self.below.is_some()
    }

    fn selects(&self, resource: &Resource) -> bool {
        let mime = resource.mime.as_deref().unwrap_or_default();
        let annotations = &resource.annotations;
        let audience = self.audience.map(|audience| match audience {
            AudienceFilter::User => Audience::User,
            AudienceFilter::Assistant => Audience::Assistant,
        });
        (self.mime.is_empty() || self.mime.iter().any(|wanted| is_of_type(mime, wanted)))
            && audience
                .is_none_or(|who| annotations.audience.is_empty() || annotations.audience.contains(&who))
            && self
                .min_priority
                .is_none_or(|least| annotations.priority.is_some_and(|priority| priority >= least))
            && self
                .modified_since
                .is_none_or(|time| annotations.last_modified.is_some_and(|modified| modified >= time))
            && self.below.as_ref().is_none_or(|prefix| resource.uri.as_str().starts_with(prefix))
    }
}

/// Whether a media type is the wanted one, or of the wanted kind, such as `image/*`.
fn is_of_type(mime: &str, wanted: &str) -> bool {
    let mime = mime.split(';').next().unwrap_or_default().trim();
    match wanted.strip_suffix('*') {
        Some(kind) => mime.to_ascii_lowercase().starts_with(&kind.to_ascii_lowercase()),
        None => mime.eq_ignore_ascii_case(wanted),
    }
}

/// The size, time and media type of a resource, as `--long` prints them.
fn details(resource: &Resource) -> [String; 3] {
    let is_directory = resource.mime.as_deref() == Some(DIRECTORY);
    let size = resource.size.filter(|_| !is_directory).map_or_else(|| "-".to_owned(), bytes);
    let time = resource
        .annotations
        .last_modified
        .map_or_else(|| "-".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M").to_string());
    [size, time, clipped(resource.mime.as_deref().unwrap_or("-"), Some(MAX_MIME))]
}

/// The widths of the columns of `--long`: as wide as the widest value of this and the earlier pages, so that the columns of
/// a target without sizes and times take no room from the URIs.
#[derive(Default)]
struct DetailWidths([usize; 3]);

impl DetailWidths {
    fn fit(&mut self, values: &[String; 3]) {
        for (width, value) in self.0.iter_mut().zip(values) {
            *width = columns(value).max(*width);
        }
    }
}

fn line(resource: &Resource, widths: Option<&DetailWidths>, width: Option<usize>) -> String {
    let mut start = String::new();
    if let Some(DetailWidths([size_width, time_width, mime_width])) = widths {
        let [size, time, mime] = details(resource);
        start = format!("{size:>size_width$}  {time:<time_width$}  {mime:<mime_width$}  ");
    }
    let uri = shown(resource.uri.as_str());
    let used = columns(&start) + columns(&uri) + 2;
    let title = resource.title.as_deref().unwrap_or(&resource.name);
    let repeats = uri.trim_end_matches('/').ends_with(title.trim_end_matches('/'));
    let title =
        if repeats { String::new() } else { clipped(title, width.map(|width| width.saturating_sub(used))) };
    match title.is_empty() {
        true => format!("{start}{uri}\n"),
        false => format!("{start}{uri}  {}\n", styled(DETAIL, title)),
    }
}

/// URIs by the segments of their paths.
#[derive(Default)]
struct PathTree(BTreeMap<String, PathTree>);

impl PathTree {
    fn add(&mut self, uri: &str) {
        let (head, query) = uri.split_at(uri.find(['?', '#']).unwrap_or(uri.len()));
        let root_end = head.find("://").map_or_else(
            || head.find(':').map_or(0, |at| at + 1),
            |at| {
                let authority = at + 3;
                head[authority..].find('/').map_or(head.len(), |slash| authority + slash)
            },
        );
        let mut node = self.0.entry(head[..root_end].to_owned()).or_default();
        let mut segments = head[root_end..].split('/').filter(|segment| !segment.is_empty()).peekable();
        while let Some(segment) = segments.next() {
            let name =
                if segments.peek().is_none() { format!("{segment}{query}") } else { segment.to_owned() };
            node = node.0.entry(name).or_default();
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (root, below) in &self.0 {
            text.push_str(&shown(root));
            text.push('\n');
            below.write(&mut text, "");
        }
        text
    }

    fn write(&self, text: &mut String, indent: &str) {
        for (at, (name, below)) in self.0.iter().enumerate() {
            let is_last = at + 1 == self.0.len();
            text.push_str(&format!("{indent}{}{}\n", if is_last { "└── " } else { "├── " }, shown(name)));
            below.write(text, &format!("{indent}{}", if is_last { "    " } else { "│   " }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PathTree, is_of_type};

    #[test]
    fn types_are_compared_by_kind() {
        assert!(
            is_of_type("text/markdown; charset=utf-8", "text/markdown") && is_of_type("image/png", "Image/*")
        );
        assert!(!is_of_type("text/plain", "text/markdown") && !is_of_type("", "text/*"));
    }

    #[test]
    fn a_tree_has_a_branch_for_each_segment() {
        let mut tree = PathTree::default();
        for uri in
            ["file:///docs/", "file:///docs/a/x.md", "file:///docs/a/y.md?v=1", "note://one", "urn:isbn:1"]
        {
            tree.add(uri);
        }
        let expected = "file://\n└── docs\n    └── a\n        ├── x.md\n        └── y.md?v=1\nnote://one\nurn:\n└── isbn:1\n";
        assert_eq!(tree.text(), expected);
    }
}
