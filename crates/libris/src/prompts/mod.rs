//! Answers `prompts/list` and `prompts/get`, and completes the arguments of prompts.

mod built_in;
mod complete;
mod messages;

use std::collections::BTreeMap;

use bytes::Bytes;
use libris_core::{Completion, Prompt, PromptCompletion, Prompts, Uri};
use libris_wire::{Answer, Call, CompletionParams, Facts, Failure, Reply};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::audit::{self, Audited};
use crate::caller_view::{CallerView, unavailable_meta, unknown_cursor};
use crate::cursor::{self, ListKind};
use crate::encode::{self, PageWriter};
use crate::params;
use crate::rights::Operation;
use crate::server::to_failure;
use crate::view::ViewSnapshot;
use messages::Unembeddable;

/// The names of the methods.
pub(crate) const LIST: &str = "prompts/list";
pub(crate) const GET: &str = "prompts/get";

/// The capability object, as declared to clients.
pub(crate) fn capability() -> Value {
    json!({ "listChanged": true })
}

#[derive(Deserialize)]
struct PromptListParams {
    #[serde(default)]
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct PromptGetParams {
    name: String,
    #[serde(default)]
    arguments: Option<BTreeMap<String, String>>,
}

impl CallerView {
    pub(crate) async fn list_prompts(&self, call: &Call, params: &str) -> Answer {
        let params: PromptListParams = params::parse(params)?;
        let answer = self.prompt_page(call, params.cursor.as_deref()).await;
        self.audit(call, "prompts", None, None, &answer);
        answer
    }

    async fn prompt_page(&self, call: &Call, cursor: Option<&str>) -> Answer {
        let (facts, view) = (call.revision.facts(), self.view().snapshot());
        let after = match cursor {
            None => None,
            Some(cursor) => Some(cursor::decode(ListKind::Prompts, cursor).ok_or_else(unknown_cursor)?),
        };
        let Prompts { prompts, freshness, unavailable } = self.all_prompts(&view, call).await?;
        let start = after.map_or(0, |after| prompts.partition_point(|prompt| prompt.name <= after));
        let rest = &prompts[start..];
        let page = &rest[..rest.len().min(self.page_size())];
        let mut members = PageWriter::new("prompts", page, |json, prompt| write_prompt(json, facts, prompt));
        if let Some(last) = page.last().filter(|_| page.len() < rest.len()) {
            members = members.text("nextCursor", &cursor::encode(ListKind::Prompts, &last.name));
        }
        let meta = unavailable_meta(&view, &unavailable);
        Ok(self.scoped(Reply { members: members.finish(), freshness: Some(freshness.or_uncached()), meta }))
    }

    /// The prompts that the caller may see, including the built-in prompt, sorted by name.
    async fn all_prompts(&self, view: &ViewSnapshot<'_>, call: &Call) -> Result<Prompts, Failure> {
        let mut prompts = view.prompts(&self.context(call)).await.map_err(to_failure)?;
        if self.has_built_in_prompt() {
            let built_in = built_in::prompt();
            let at = prompts.prompts.partition_point(|prompt| prompt.name < built_in.name);
            // A source's prompt of the same name replaces the built-in one.
            if prompts.prompts.get(at).is_none_or(|prompt| prompt.name != built_in.name) {
                prompts.prompts.insert(at, built_in);
            }
        }
        Ok(prompts)
    }

    pub(crate) async fn read_prompt(&self, call: &Call, params: &str) -> Answer {
        let params: PromptGetParams = params::parse(params)?;
        let answer = self.prompt_messages(call, &params.name, params.arguments.unwrap_or_default()).await;
        self.audit_prompt(call, &params.name, &answer).await;
        answer
    }

    /// Records the decision about a prompt. A prompt is hidden if a resource that it embeds is hidden; then the record
    /// names the rule about this resource.
    async fn audit_prompt(&self, call: &Call, name: &str, answer: &Answer) {
        if self.inner.audit.is_none() {
            return;
        }
        let hiding = match answer {
            Ok(_) => None,
            Err(_) => self.view().snapshot().resource_hiding_prompt(name, &self.context(call)).await,
        };
        let uri = format!("libris://prompts/{}", Uri::encode_segment(name.as_bytes()));
        let audited = Audited {
            view: self.view(),
            client: call.client,
            operation: "prompt",
            right: hiding.as_ref().map(|_| Operation::Read),
            uri: Some(&uri),
            decisive: hiding.as_ref(),
            took: call.elapsed(),
        };
        self.inner.audit(&audited, audit::outcome(answer));
    }

    async fn prompt_messages(&self, call: &Call, name: &str, arguments: BTreeMap<String, String>) -> Answer {
        let view = self.view().snapshot();
        let prompt = self.named_prompt(&view, call, name).await?;
        check_arguments(&prompt, &arguments)?;
        let context = self.context(call);
        let (messages, unembeddable) = match built_in::is(&prompt) {
            true => (built_in::messages(&view, &arguments, &context).await, Unembeddable::Skip),
            false => {
                let context = context.with_input(call.input().cloned());
                (view.prompt(&prompt, &arguments, &context).await, Unembeddable::Refuse)
            }
        };
        let messages = messages.map_err(to_failure)?;
        let messages = self.embed(call, &view, messages, unembeddable).await?;
        let members = messages::encode(call.revision.facts(), prompt.description.as_deref(), messages);
        Ok(Reply { members, freshness: None, meta: Bytes::new() })
    }

    async fn named_prompt(
        &self,
        view: &ViewSnapshot<'_>,
        call: &Call,
        name: &str,
    ) -> Result<Prompt, Failure> {
        let Prompts { prompts, .. } = self.all_prompts(view, call).await?;
        prompts.into_iter().find(|prompt| prompt.name == name).ok_or_else(|| {
            let shown: String = name.chars().take(params::LONGEST_QUOTE).collect();
            Failure::invalid(format!("unknown prompt `{shown}`; `prompts/list` has the names"))
        })
    }

    /// Completes an argument of a prompt.
    pub(crate) async fn complete_prompt_argument(
        &self,
        call: &Call,
        name: &str,
        completing: &CompletionParams,
    ) -> Answer {
        let view = self.view().snapshot();
        let prompt = self.named_prompt(&view, call, name).await?;
        let CompletionParams { argument, typed, known, .. } = completing;
        if !prompt.arguments.iter().any(|known| known.name == *argument) {
            return Err(unknown_argument(&prompt, argument));
        }
        let partial = PromptCompletion { prompt: name, argument, typed, known, limit: Completion::LIMIT };
        let context = self.context(call);
        let own = view.complete_prompt(&prompt, partial, &context).await.map_err(to_failure)?;
        let completion = match own {
            Some(completion) => completion,
            None => complete::by_resources(&view, &prompt, partial, &context).await.map_err(to_failure)?,
        };
        Ok(Reply { members: encode::completion(&completion), freshness: None, meta: Bytes::new() })
    }
}

/// Checks that all required arguments have a value, and that the prompt has all given arguments.
fn check_arguments(prompt: &Prompt, given: &BTreeMap<String, String>) -> Result<(), Failure> {
    let mut required = prompt.arguments.iter().filter(|argument| argument.required);
    if let Some(missing) = required.find(|argument| !given.contains_key(&argument.name)) {
        return Err(Failure::invalid(format!(
            "the prompt `{}` needs the argument `{}`",
            prompt.name, missing.name
        )));
    }
    let is_unknown = |name: &&String| !prompt.arguments.iter().any(|argument| argument.name == **name);
    match given.keys().find(is_unknown) {
        Some(unknown) => Err(unknown_argument(prompt, unknown)),
        None => Ok(()),
    }
}

fn unknown_argument(prompt: &Prompt, unknown: &str) -> Failure {
    let shown: String = unknown.chars().take(params::LONGEST_QUOTE).collect();
    let names: Vec<_> = prompt.arguments.iter().map(|argument| format!("`{}`", argument.name)).collect();
    Failure::invalid(match names.is_empty() {
        true => format!("the prompt `{}` has no arguments: leave out `{shown}`", prompt.name),
        false => {
            format!("the prompt `{}` has no argument `{shown}`; it has {}", prompt.name, names.join(", "))
        }
    })
}

/// Encodes a prompt with the fields that a protocol revision has.
fn write_prompt(json: &mut Vec<u8>, facts: &Facts, prompt: &Prompt) {
    let mut object = json!({ "name": prompt.name });
    if let Some(title) = prompt.title.as_ref().filter(|_| facts.titles) {
        object["title"] = title.clone().into();
    }
    if let Some(description) = &prompt.description {
        object["description"] = description.clone().into();
    }
    if !prompt.arguments.is_empty() {
        let arguments = prompt.arguments.iter().map(|argument| {
            let mut object = json!({ "name": argument.name, "required": argument.required });
            if let Some(title) = argument.title.as_ref().filter(|_| facts.titles) {
                object["title"] = title.clone().into();
            }
            if let Some(description) = &argument.description {
                object["description"] = description.clone().into();
            }
            object
        });
        object["arguments"] = arguments.collect();
    }
    if !prompt.icons.is_empty() && facts.icons {
        object["icons"] = json!(prompt.icons);
    }
    if let Some(meta) = prompt.meta.as_ref().filter(|_| facts.titles) {
        object["_meta"] = meta.clone().into();
    }
    encode::write(json, &object);
}
