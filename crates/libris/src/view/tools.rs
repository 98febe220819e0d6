//! The tools of sources that a caller may see and call.

use libris_core::{Context, Meta, Result, SourceToolResult, SourceTools};

use super::ViewSnapshot;
use crate::rights::{Decision, Operation};
use crate::tools;

impl ViewSnapshot<'_> {
    /// The tools of the sources, sorted by name, without those that rules deny.
    pub async fn tools(&self, context: &Context) -> Result<SourceTools> {
        let mut tools = self.source.tools(context).await.map_err(|error| self.redacted(error))?;
        if !self.rights.are_everything() {
            let is_visible = |name: &str| self.decide_source_tool(name) != Decision::Deny;
            tools.tools = tools.tools.iter().filter(|tool| is_visible(&tool.name)).cloned().collect();
        }
        Ok(tools)
    }

    /// The decision of the rules about a tool of a source. Unlike the server's own tools, such a tool may do more than return
    /// resources that the caller may see, so rules for all URIs apply to it too.
    pub(crate) fn decide_source_tool(&self, name: &str) -> Decision {
        tools::uri_of(name).map_or(Decision::Deny, |uri| self.rights.decide(Operation::Read, &uri, Vec::new))
    }

    /// Calls a tool that rules allow; `None` if no source has it. Blocks of the result with resources that the caller may
    /// not read are left out.
    pub async fn call_tool(
        &self,
        name: &str,
        arguments: Meta,
        context: &Context,
    ) -> Result<Option<SourceToolResult>> {
        let result = self.source.call_tool(name, arguments, context).await;
        let Some(mut result) = result.map_err(|error| self.redacted(error))? else { return Ok(None) };
        result
            .content
            .retain(|block| block.resource.as_ref().is_none_or(|uri| self.allows(Operation::Read, uri)));
        Ok(Some(result))
    }
}
