//! The built-in prompt `use-resources`: instructs a model to read the resources of the server before it answers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use libris_core::{
    Context, DIRECTORY, Prompt, PromptArgument, PromptContent, PromptMessage, Result, SearchQuery, Uri,
};

use crate::rights::Operation;
use crate::view::ViewSnapshot;

/// The name of the prompt.
const NAME: &str = "use-resources";

/// The argument with the question or task of the user.
const TOPIC: &str = "topic";

/// The overview of the resources, which is embedded if the catalog has it and the caller may read it.
const INDEX: &str = "libris://index";

/// How many resources and how many templates the message names.
const MAX_NAMED: usize = 40;

/// How many results of a search the message names, and how many of them it embeds.
const MAX_HITS: usize = 10;
const MAX_EMBEDDED: usize = 3;

/// How many lines of each result the message quotes.
const MAX_SNIPPET_LINES: usize = 3;

/// The largest number of characters of a title, a description or a quoted line.
const MAX_TEXT: usize = 120;

pub(super) fn prompt() -> Prompt {
    let topic = PromptArgument {
        title: Some("Topic".to_owned()),
        description: Some("What you want to know or do; the best resources for it are included".to_owned()),
        ..PromptArgument::optional(TOPIC)
    };
    let mut prompt = Prompt::new(NAME).with_argument(topic);
    prompt.title = Some("Use the resources of this server".to_owned());
    prompt.description =
        Some("Tells the model what this server has, and to read it before it answers".to_owned());
    prompt
}

/// Whether this is the built-in prompt, and not a prompt of a source with the same name.
pub(super) fn is(named: &Prompt) -> bool {
    *named == prompt()
}

/// The messages: an overview of the resources that the caller may read, and the results of a search for the topic, if
/// there is a topic.
pub(super) async fn messages(
    view: &ViewSnapshot<'_>,
    arguments: &BTreeMap<String, String>,
    context: &Context,
) -> Result<Vec<PromptMessage>> {
    let topic = arguments.get(TOPIC).map(|topic| topic.trim()).filter(|topic| !topic.is_empty());
    let mut text = String::from(
        "Answer from the resources of this MCP server. Before you answer, find the relevant resources, read them, and \
         name the URIs that you used. If they do not contain the answer, say so.\n",
    );
    let mut embedded = Vec::new();
    match topic {
        Some(topic) => {
            _ = write!(text, "\nTask: {topic}\n");
            embedded = found(view, topic, context, &mut text).await?;
        }
        None => text.push_str("\nFirst ask what the user wants to know, unless the conversation says it.\n"),
    }
    match Uri::parse(INDEX) {
        Ok(index) if view.covers(Operation::Read, &index).unwrap_or(false) => embedded.push(index),
        _ => overview(view, context, &mut text).await?,
    }
    let resources = embedded.into_iter().map(PromptContent::Resource);
    Ok([PromptContent::Text(text)].into_iter().chain(resources).map(PromptMessage::user).collect())
}

/// Searches for the topic, and appends the results to `text`. Returns the URIs of the results to embed.
async fn found(
    view: &ViewSnapshot<'_>,
    topic: &str,
    context: &Context,
    text: &mut String,
) -> Result<Vec<Uri>> {
    let answer = view.search(&SearchQuery::new(topic, MAX_HITS), context).await?;
    if answer.hits.is_empty() {
        return Ok(Vec::new());
    }
    text.push_str("\nA search for it found, the best first:\n");
    let mut embedded = Vec::new();
    for hit in &answer.hits {
        _ = writeln!(text, "- {}{}", hit.uri, shown(hit.title.as_deref()));
        for line in hit.snippet.iter().take(MAX_SNIPPET_LINES) {
            _ = writeln!(text, "  > {}", plain(&line.text));
        }
        if let Ok(uri) = Uri::parse(&hit.uri)
            && embedded.len() < MAX_EMBEDDED
        {
            embedded.push(uri);
        }
    }
    Ok(embedded)
}

/// Appends the first resources and the first templates to `text`.
async fn overview(view: &ViewSnapshot<'_>, context: &Context, text: &mut String) -> Result<()> {
    let page = view.list(None, MAX_NAMED, context).await?;
    let files = page.resources.iter().filter(|resource| resource.mime.as_deref() != Some(DIRECTORY));
    let lines: Vec<_> = files
        .map(|resource| {
            let what = resource.title.as_deref().or(resource.description.as_deref());
            format!("- {}{}\n", resource.uri, shown(what))
        })
        .collect();
    if !lines.is_empty() {
        let more = if page.more { ", the first of more" } else { "" };
        _ = write!(text, "\nResources{more}:\n{}", lines.concat());
    }
    let templates = view.templates(context).await?.templates;
    if !templates.is_empty() {
        text.push_str("\nURI templates:\n");
    }
    for template in templates.iter().take(MAX_NAMED) {
        let what = template.title.as_deref().or(template.description.as_deref());
        _ = writeln!(text, "- {}{}", template.uri.as_str(), shown(what));
    }
    Ok(())
}

/// A title or description in the form in which it follows a URI: `: title`.
fn shown(text: Option<&str>) -> String {
    let line = plain(text.and_then(|text| text.lines().next()).unwrap_or_default());
    if line.is_empty() { line } else { format!(": {line}") }
}

/// The first [`MAX_TEXT`] characters of a text, on one line, without control and tag characters.
fn plain(text: &str) -> String {
    let is_plain = |letter: &char| !letter.is_control() && !('\u{e0000}'..='\u{e007f}').contains(letter);
    text.chars().filter(is_plain).take(MAX_TEXT).collect::<String>().trim().to_owned()
}
