//! The prompts that a caller may see: those whose embedded resources it may read.

use std::collections::BTreeMap;

use libris_core::{
    Completion, CompletionRequest, Context, Error, Prompt, PromptCompletion, PromptMessage, Prompts, Result,
    Uri, UriTemplate,
};

use super::{MAX_UNFILTERED_VALUES, ViewSnapshot};
use crate::rights::{Decision, Operation};

impl ViewSnapshot<'_> {
    /// The prompts, sorted by name, without those that embed a hidden resource.
    pub async fn prompts(&self, context: &Context) -> Result<Prompts> {
        let mut prompts = self.source.prompts(context).await.map_err(|error| self.redacted(error))?;
        prompts.prompts.retain(|prompt| self.offers_prompt(prompt));
        prompts.prompts.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(prompts)
    }

    fn offers_prompt(&self, prompt: &Prompt) -> bool {
        self.rights.are_everything() || prompt.resources.iter().all(|template| self.shows_embedded(template))
    }

    /// Whether the caller may see the resource that a prompt embeds or, if its URI has variables, perhaps a resource
    /// that matches.
    fn shows_embedded(&self, template: &UriTemplate) -> bool {
        match template.variables().next() {
            Some(_) => self.rights.offer(template),
            None => Uri::parse(template.as_str())
                .is_ok_and(|uri| self.decide(Operation::Read, &uri) != Decision::Deny),
        }
    }

    /// The hidden resource because of which [`prompts`](Self::prompts) leaves out this prompt, for the audit log;
    /// `None` if the prompt does not exist or is not hidden. For a template with variables, returns the text before the
    /// first variable.
    pub(crate) async fn resource_hiding_prompt(&self, name: &str, context: &Context) -> Option<Uri> {
        if self.rights.are_everything() {
            return None;
        }
        let all = self.source.prompts(context).await.ok()?.prompts;
        let prompt = all.into_iter().find(|prompt| prompt.name == name)?;
        let hidden = prompt.resources.iter().find(|template| !self.shows_embedded(template))?;
        Uri::parse(hidden.as_str().split('{').next()?).ok()
    }

    /// The messages of a prompt that [`prompts`](Self::prompts) returned. The resources in the messages are not read
    /// yet.
    pub async fn prompt(
        &self,
        prompt: &Prompt,
        arguments: &BTreeMap<String, String>,
        context: &Context,
    ) -> Result<Vec<PromptMessage>> {
        let messages = self.source.prompt(&prompt.name, arguments, context).await;
        let gone =
            || Error::invalid(format!("unknown prompt `{}`; `prompts/list` has the names", prompt.name));
        messages.map_err(|error| self.redacted(error))?.ok_or_else(gone)
    }

    /// Completes an argument of a prompt with the values of its source, without values that lead to hidden resources;
    /// `None` if the source has no values for it.
    pub async fn complete_prompt(
        &self,
        prompt: &Prompt,
        partial: PromptCompletion<'_>,
        context: &Context,
    ) -> Result<Option<Completion>> {
        let all = PromptCompletion { limit: MAX_UNFILTERED_VALUES, ..partial };
        let completion = self.source.complete_prompt(all, context).await;
        let Some(Completion { mut values, total, more, .. }) =
            completion.map_err(|error| self.redacted(error))?
        else {
            return Ok(None);
        };
        if !self.rights.are_everything() {
            values.retain(|value| self.prompt_leads_to_visible(prompt, partial, value));
        }
        let total = total.filter(|_| !more).map(|_| values.len() as u64);
        let more = more || values.len() > partial.limit;
        values.truncate(partial.limit);
        Ok(Some(Completion { values, total, more, proof: None }))
    }

    /// Whether the caller may see every resource that the prompt embeds if the argument has this value.
    fn prompt_leads_to_visible(&self, prompt: &Prompt, partial: PromptCompletion<'_>, value: &str) -> bool {
        let mut using = prompt
            .resources
            .iter()
            .filter(|template| template.variables().any(|variable| variable == partial.argument));
        using.all(|template| {
            let request = CompletionRequest {
                template,
                variable: partial.argument,
                typed: partial.typed,
                known: partial.known,
                limit: partial.limit,
            };
            self.leads_to_visible(request, value)
        })
    }
}
