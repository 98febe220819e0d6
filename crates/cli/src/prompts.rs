//! `libris prompts`: lists the prompts of a target, and prints the messages of one.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use libris::{Context, Prompt, PromptContent, PromptMessage, PromptRole};
use serde_json::{Value, json};

use crate::pager::{self, PagedOutput};
use crate::sources::SourceArguments;
use crate::target::{
    EXIT_CODES, OpenedTarget, assignment, base64, clipped, content_json, json_line, one_line, resource_json,
    width,
};
use crate::terminal::{DETAIL, HEADING, advice, bytes, columns, note, print, shown, styled};

/// The maximum number of prompts that a hint names.
const MAX_NAMED_PROMPTS: usize = 10;

/// List the prompts of a target, or print the messages of one
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  libris prompts https://mcp.example/mcp                names, arguments and descriptions
  libris prompts --get review --with file=src/main.rs -- npx -y some-server

{EXIT_CODES}"))]
pub(crate) struct PromptsOptions {
    #[command(flatten)]
    sources: SourceArguments,
    /// Print the messages of this prompt
    #[arg(long, value_name = "NAME")]
    get: Option<String>,
    /// The value of an argument of the prompt; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment, requires = "get")]
    with: Vec<(String, String)>,
    /// Print JSON: one object per prompt or message, with the field names of the protocol
    #[arg(long)]
    json: bool,
}

/// Lists the prompts, or prints the messages of one.
pub(crate) async fn run(options: PromptsOptions) -> Result<ExitCode> {
    let target = OpenedTarget::open(&options.sources)?;
    let outcome = match &options.get {
        None => list(&target, options.json).await,
        Some(name) => get(&target, name, options.with.into_iter().collect(), options.json).await,
    };
    target.close().await;
    outcome
}

async fn list(target: &OpenedTarget, as_json: bool) -> Result<ExitCode> {
    let prompts = target.view.snapshot().prompts(&Context::default()).await;
    let prompts = prompts.context("could not list the prompts")?.prompts;
    let lines = prompts.iter().map(|prompt| match as_json {
        true => json_line(&prompt_json(prompt)),
        false => line(prompt, width()),
    });
    let text: String = lines.collect();
    if as_json { print(&text) } else { pager::show(&text) }.context("could not print")?;
    if prompts.is_empty() {
        note("the target has no prompts");
    }
    Ok(if prompts.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn get(
    target: &OpenedTarget,
    name: &str,
    arguments: BTreeMap<String, String>,
    as_json: bool,
) -> Result<ExitCode> {
    let view = target.view.snapshot();
    let prompts = view.prompts(&Context::default()).await.context("could not list the prompts")?.prompts;
    let Some(prompt) = prompts.iter().find(|prompt| prompt.name == name) else {
        let names: Vec<_> =
            prompts.iter().take(MAX_NAMED_PROMPTS).map(|prompt| one_line(&prompt.name)).collect();
        let hint = match (names.is_empty(), prompts.len() - names.len()) {
            (true, _) => "the target has no prompts".to_owned(),
            (false, 0) => format!("its prompts are {}", names.join(", ")),
            (false, more) => format!("its prompts are {}, … and {more} more", names.join(", ")),
        };
        return Err(advice(format!("the target has no prompt `{name}`"), hint));
    };
    check_arguments(prompt, &arguments)?;
    let messages = view.prompt(prompt, &arguments, &Context::default()).await;
    let messages = messages.with_context(|| format!("could not get the prompt `{name}`"))?;
    let mut output = PagedOutput::new();
    for message in messages {
        for message in resolved(target, message).await? {
            match as_json {
                true => print(&json_line(&message_json(&message))),
                false => output.write(&message_text(&message)),
            }
            .context("could not print")?;
        }
    }
    output.finish().context("could not print")?;
    Ok(ExitCode::SUCCESS)
}

fn check_arguments(prompt: &Prompt, given: &BTreeMap<String, String>) -> Result<()> {
    let names = || {
        let names = prompt.arguments.iter().map(|argument| match argument.required {
            true => format!("--with {}=…", one_line(&argument.name)),
            false => format!("[--with {}=…]", one_line(&argument.name)),
        });
        format!("its arguments are {}", names.collect::<Vec<_>>().join(" "))
    };
    let mut required = prompt.arguments.iter().filter(|argument| argument.required);
    if let Some(missing) = required.find(|argument| !given.contains_key(&argument.name)) {
        return Err(advice(format!("the argument `{}` is missing", one_line(&missing.name)), names()));
    }
    let is_known = |name: &String| prompt.arguments.iter().any(|argument| argument.name == *name);
    match given.keys().find(|name| !is_known(name)) {
        Some(unknown) if prompt.arguments.is_empty() => {
            Err(advice(format!("the prompt has no argument `{unknown}`"), "it has no arguments"))
        }
        Some(unknown) => Err(advice(format!("the prompt has no argument `{unknown}`"), names())),
        None => Ok(()),
    }
}

/// A message with the contents of the resource that it refers to. A resource with several parts becomes several messages.
async fn resolved(target: &OpenedTarget, message: PromptMessage) -> Result<Vec<PromptMessage>> {
    let PromptMessage { role, content } = message;
    let PromptContent::Resource(uri) = content else { return Ok(vec![PromptMessage { role, content }]) };
    let contents = target.view.snapshot().read(&uri, &Context::default()).await;
    let parts = contents.with_context(|| format!("could not read `{uri}`"))?.parts.into_iter();
    Ok(parts.map(|part| PromptMessage { role, content: PromptContent::Embedded(part) }).collect())
}

fn line(prompt: &Prompt, width: Option<usize>) -> String {
    let arguments = prompt.arguments.iter().map(|argument| match argument.required {
        true => format!(" {}", one_line(&argument.name)),
        false => format!(" [{}]", one_line(&argument.name)),
    });
    let call = format!("{}{}", one_line(&prompt.name), arguments.collect::<String>());
    let left = width.map(|width| width.saturating_sub(columns(&call) + 2));
    let text = prompt.description.as_deref().or(prompt.title.as_deref()).unwrap_or_default();
    match clipped(text, left) {
        text if text.is_empty() => format!("{call}\n"),
        text => format!("{call}  {}\n", styled(DETAIL, text)),
    }
}

fn role(role: PromptRole) -> &'static str {
    match role {
        PromptRole::User => "user",
        PromptRole::Assistant => "assistant",
    }
}

fn message_text(message: &PromptMessage) -> String {
    let text = match &message.content {
        PromptContent::Text(text) => shown(text),
        PromptContent::Media { data, mime } => format!("({}, {})", shown(mime), bytes(data.len() as u64)),
        PromptContent::Link(resource) => format!("(resource {})", shown(resource.uri.as_str())),
        PromptContent::Resource(uri) => format!("(resource {})", shown(uri.as_str())),
        PromptContent::Embedded(part) => {
            let header = format!("(resource {})", shown(part.uri.as_str()));
            match &part.body {
                libris::ContentBody::Text(text) => format!("{header}\n{}", shown(text)),
                body => format!("{header}\n({})", bytes(body.len() as u64)),
            }
        }
    };
    format!("{}\n{}\n", styled(HEADING, format_args!("{}:", role(message.role))), text.trim_end_matches('\n'))
}

fn message_json(message: &PromptMessage) -> Value {
    let content = match &message.content {
        PromptContent::Text(text) => json!({ "type": "text", "text": text }),
        PromptContent::Media { data, mime } => {
            let kind = if mime.starts_with("audio/") { "audio" } else { "image" };
            json!({ "type": kind, "data": base64(data), "mimeType": mime })
        }
        PromptContent::Embedded(part) => json!({ "type": "resource", "resource": content_json(part) }),
        PromptContent::Link(resource) => {
            let mut link = resource_json(resource);
            link["type"] = "resource_link".into();
            link
        }
        PromptContent::Resource(uri) => json!({ "type": "resource_link", "uri": uri.as_str() }),
    };
    json!({ "role": role(message.role), "content": content })
}

fn prompt_json(prompt: &Prompt) -> Value {
    let arguments = prompt.arguments.iter().map(|argument| {
        let mut object = json!({ "name": argument.name, "required": argument.required });
        for (key, text) in [("title", &argument.title), ("description", &argument.description)] {
            if let Some(text) = text {
                object[key] = text.as_str().into();
            }
        }
        object
    });
    let mut object = json!({ "name": prompt.name, "arguments": arguments.collect::<Vec<_>>() });
    for (key, text) in [("title", &prompt.title), ("description", &prompt.description)] {
        if let Some(text) = text {
            object[key] = text.as_str().into();
        }
    }
    object
}
