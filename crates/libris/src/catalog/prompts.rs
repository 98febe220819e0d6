//! The prompts of all sources.

use std::collections::BTreeMap;

use libris_core::{Completion, Context, Error, PromptCompletion, PromptMessage, Prompts, Result};

use super::Catalog;
use super::merge::merged_freshness;
use crate::query::{self, gathered};

/// The maximum number of prompts of all sources together.
const MAX_PROMPTS: usize = 10_000;

impl Catalog {
    /// The prompts of all sources, sorted by name.
    pub(super) async fn merged_prompts(&self, context: &Context) -> Result<Prompts> {
        let (sources, proof) = self.sources_for_list();
        let queries = sources.iter().map(|gated| gated.prompts(context, self.config));
        let answers = query::all(queries.collect()).await?;
        let (mut fresh, mut unavailable, mut by_name) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (gated, given) in gathered(&sources, answers)? {
            fresh.extend(gated.contributed(given.freshness));
            unavailable.extend(given.unavailable);
            for prompt in given.prompts {
                // If two sources have a prompt of the same name, the source that was added first takes precedence.
                by_name.entry(prompt.name.clone()).or_insert(prompt);
            }
        }
        let prompts = by_name.into_values().take(MAX_PROMPTS).collect();
        Ok(Prompts { prompts, freshness: merged_freshness(fresh, proof), unavailable })
    }

    /// The messages of the prompt with this name, from the first source that has it; `None` if no source has it. If no
    /// source returned messages and a source failed, returns the first failure.
    pub(super) async fn find_prompt(
        &self,
        name: &str,
        arguments: &BTreeMap<String, String>,
        context: &Context,
    ) -> Result<Option<Vec<PromptMessage>>> {
        let (sources, mut failure) = (self.sources(), None);
        for gated in sources.iter() {
            let messages = async {
                let context = gated.permit(context).await?;
                gated.source().prompt(name, arguments, &context).await
            };
            let answer = gated.answer(self.config, &sources, messages).await;
            if let Some(messages) = unless_failed(answer, &mut failure) {
                return Ok(Some(messages));
            }
        }
        failure.map_or(Ok(None), Err)
    }

    /// The completion of an argument of a prompt, from the first source that returns one; `None` if no source does. If
    /// no source returned one and a source failed, returns the first failure.
    pub(super) async fn find_prompt_completion(
        &self,
        partial: PromptCompletion<'_>,
        context: &Context,
    ) -> Result<Option<Completion>> {
        let (sources, mut failure) = (self.sources(), None);
        for gated in sources.iter() {
            let completion = async {
                let context = gated.permit(context).await?;
                gated.source().complete_prompt(partial, &context).await
            };
            let answer = gated.answer(self.config, &sources, completion).await;
            if let Some(completion) = unless_failed(answer, &mut failure) {
                return Ok(Some(completion));
            }
        }
        failure.map_or(Ok(None), Err)
    }
}

/// The answer of one source about a prompt; `None` if the source does not have the prompt, or failed. The first failure
/// is recorded in `failure` instead of returned, because another source may have the prompt.
fn unless_failed<T>(answer: Result<Option<T>>, failure: &mut Option<Error>) -> Option<T> {
    answer.unwrap_or_else(|error| {
        failure.get_or_insert(error);
        None
    })
}
