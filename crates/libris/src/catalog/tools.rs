//! The tools of all sources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use libris_core::{Context, Error, Meta, Result, SourceTool, SourceToolResult, SourceTools};

use super::Catalog;
use super::merge::merged_freshness;
use crate::gate::GatedSource;
use crate::lock::lock;
use crate::query::{self, ListResponse as _, SourceResponse};

/// The maximum number of tools of all sources together.
const MAX_TOOLS: usize = 10_000;

/// The largest number of tool names whose collisions are logged.
const MAX_LOGGED: usize = 100;

impl Catalog {
    /// The tools of all sources, sorted by name, without those that two sources have: a client could not choose between
    /// tools of the same name.
    pub(super) async fn merged_tools(&self, context: &Context) -> Result<SourceTools> {
        let (_, proof) = self.sources_for_list();
        let (mut fresh, mut unavailable, mut by_name) = (Vec::new(), Vec::new(), BTreeMap::new());
        let listed = self.tools_by_source(context).await?;
        for (gated, given) in &listed {
            fresh.push(given.freshness.clone());
            unavailable.extend(given.unavailable.iter().cloned());
            for tool in given.tools.iter() {
                let owners: &mut (&SourceTool, Vec<_>) =
                    by_name.entry(tool.name.clone()).or_insert_with(|| (tool, Vec::new()));
                owners.1.push(gated.health().name());
            }
        }
        let mut tools = Vec::with_capacity(by_name.len().min(MAX_TOOLS));
        for (tool, owners) in by_name.into_values().take(MAX_TOOLS) {
            match &owners[..] {
                [one, other, ..] => self.tool_collisions.log(&tool.name, one, other),
                _ => tools.push(tool.clone()),
            }
        }
        Ok(SourceTools { tools: tools.into(), freshness: merged_freshness(fresh, proof), unavailable })
    }

    /// Calls the tool with this name; `None` if no source has it. It is an error if two sources have it, or if no
    /// source has it and the tools of an unavailable source are unknown.
    pub(super) async fn find_tool(
        &self,
        name: &str,
        arguments: Meta,
        context: &Context,
    ) -> Result<Option<SourceToolResult>> {
        let sources = self.sources();
        let listed = self.tools_by_source(context).await?;
        let has_tool = |given: &SourceTools| given.tools.iter().any(|tool| tool.name == name);
        let mut owners = listed.iter().filter(|(_, given)| has_tool(given)).map(|(gated, _)| gated);
        let (Some(owner), other) = (owners.next(), owners.next()) else {
            let unknown = listed.iter().filter(|(_, given)| given.unavailable.iter().any(|one| !one.stale));
            let names = query::quoted(unknown.map(|(gated, _)| gated.health().name()));
            return match names.is_empty() {
                true => Ok(None),
                false => Err(Error::Unavailable(format!(
                    "no available source has the tool `{name}`, and the tools of {names} are not known, because it is \
                     unavailable; try again later"
                ))),
            };
        };
        if let Some(other) = other {
            let [one, other] = [owner, other].map(|gated| gated.health().name());
            return Err(Error::Unavailable(format!(
                "the tool `{name}` is served neither from `{one}` nor from `{other}`, because both have it; hint: set `uris \
                 = \"prefixed\"` for one of them"
            )));
        }
        let call = async {
            let context = owner.permit(context).await?;
            owner.source().call_tool(name, arguments, &context).await
        };
        owner.answer(self.config, &sources, call).await
    }

    /// The tools of each source that may have some; for an unavailable source, its last known tools, or none.
    async fn tools_by_source(&self, context: &Context) -> Result<Vec<(GatedSource, SourceTools)>> {
        let sources = self.sources();
        let sources: Vec<_> = sources.iter().filter(|gated| gated.source().has_tools()).cloned().collect();
        let queries = sources.iter().map(|gated| gated.tools(context, self.config));
        let answers = query::all(queries.collect()).await?;
        let given = answers.into_iter().map(|answer| match answer {
            SourceResponse::Current(given) => given,
            SourceResponse::LastKnown(known, unavailable) => known.with_unavailable(unavailable),
            SourceResponse::Missing { unavailable, .. } => {
                SourceTools::default().with_unavailable(unavailable)
            }
        });
        let given: Vec<_> = given.collect();
        Ok(sources.into_iter().zip(given).collect())
    }
}

/// The tools whose collisions were logged.
#[derive(Default)]
pub(crate) struct ToolCollisionLog(Mutex<BTreeSet<String>>);

impl ToolCollisionLog {
    /// Logs, once per tool, that the tool is not served because both of these sources have it.
    pub(crate) fn log(&self, tool: &str, one: &str, other: &str) {
        let mut logged = lock(&self.0);
        if logged.len() < MAX_LOGGED && logged.insert(tool.to_owned()) {
            tracing::warn!(
                tool,
                one,
                other,
                "two sources have the same tool, so neither is served; hint: set `uris = \"prefixed\"` for one of them"
            );
        }
    }
}
