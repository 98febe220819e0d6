//! The prompts of a server, and their messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use libris_core::{Prompt, PromptArgument, PromptContent, PromptMessage, PromptRole};
use rmcp::model::{self, ContentBlock, Role};

use crate::config::RemoteLimits;
use crate::convert;
use crate::fault::RemoteFault;
use crate::link::UpstreamSession;
use crate::listing::{CacheHints, PageWalk};
use crate::mount::UriMount;

/// The estimated memory of a prompt or an argument besides its texts, in bytes.
const PROMPT_OVERHEAD: usize = 192;

/// All prompts of a server.
#[derive(Default)]
pub(crate) struct PromptList {
    /// The prompts, under their served names (see [`UriMount::outer_name`]).
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) hints: CacheHints,
}

impl PromptList {
    /// Fetches all pages.
    pub(crate) async fn fetch(
        session: &UpstreamSession,
        mount: &UriMount,
        limits: &RemoteLimits,
    ) -> Result<Self, RemoteFault> {
        let mut walk = PageWalk::new(session, limits, session.supports_prompts());
        let mut list = Self::default();
        while let Some(cursor) = walk.next_cursor() {
            let Some(page) = walk.ask(session.peer.list_prompts(cursor)).await? else { break };
            walk.add(page.prompts.len(), page.next_cursor, page.ttl_ms, page.cache_scope)?;
            for prompt in page.prompts {
                walk.add_bytes(weight(&prompt))?;
                list.prompts.push(prompt_of(prompt, mount));
            }
        }
        list.hints = walk.hints();
        Ok(list)
    }
}

fn prompt_of(prompt: model::Prompt, mount: &UriMount) -> Prompt {
    let argument = |argument: model::PromptArgument| PromptArgument {
        name: argument.name,
        title: argument.title,
        description: argument.description,
        required: argument.required.unwrap_or(false),
    };
    Prompt {
        name: mount.outer_name(&prompt.name),
        title: prompt.title,
        description: prompt.description,
        arguments: prompt.arguments.into_iter().flatten().map(argument).collect(),
        icons: convert::icons(prompt.icons),
        meta: convert::meta(prompt.meta, mount),
        resources: Vec::new(),
    }
}

/// Estimates the memory of a prompt, in bytes.
fn weight(prompt: &model::Prompt) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let arguments = prompt.arguments.iter().flatten().map(|argument| {
        PROMPT_OVERHEAD + argument.name.len() + text(&argument.title) + text(&argument.description)
    });
    PROMPT_OVERHEAD
        + prompt.name.len()
        + text(&prompt.title)
        + text(&prompt.description)
        + arguments.sum::<usize>()
        + convert::extras_weight(prompt.meta.as_ref(), prompt.icons.as_deref())
}

/// Converts a message. The URIs in it become served URIs.
pub(crate) fn message(message: model::PromptMessage, mount: &UriMount) -> Result<PromptMessage, RemoteFault> {
    let role = match message.role {
        Role::User => PromptRole::User,
        Role::Assistant => PromptRole::Assistant,
    };
    let media = |data: String, mime: String| {
        let data = STANDARD.decode(data.as_bytes()).map_err(|_| RemoteFault::Base64)?;
        Ok(PromptContent::Media { data: data.into(), mime })
    };
    let content = match message.content {
        ContentBlock::Text(text) => PromptContent::Text(text.text),
        ContentBlock::Image(image) => media(image.data, image.mime_type)?,
        ContentBlock::Audio(audio) => media(audio.data, audio.mime_type)?,
        ContentBlock::Resource(embedded) => {
            PromptContent::Embedded(convert::embedded(embedded.resource, mount)?)
        }
        ContentBlock::ResourceLink(resource) => {
            let resource = convert::resource(resource, mount).map_err(|_| RemoteFault::ContentUri)?;
            PromptContent::Link(Box::new(resource))
        }
        #[allow(unreachable_patterns, reason = "the enum may get more variants")]
        _ => return Err(RemoteFault::NoContents),
    };
    Ok(PromptMessage { role, content })
}

#[cfg(test)]
mod tests {
    use libris_core::PromptContent;
    use serde_json::{Value, json};

    use super::{RemoteFault, message};
    use crate::mount::UriMount;

    fn converted(content: Value) -> Result<PromptContent, RemoteFault> {
        let sent = serde_json::from_value(json!({ "role": "user", "content": content })).unwrap();
        message(sent, &UriMount::prefixed("docs").unwrap()).map(|message| message.content)
    }

    #[test]
    fn resources_in_messages_have_the_uris_of_the_source() {
        let embedded = json!({ "type": "resource", "resource": { "uri": "a:b", "text": "x" } });
        let Ok(PromptContent::Embedded(content)) = converted(embedded) else { panic!("a resource") };
        assert_eq!(content.uri.as_str(), "docs+a:b");
        let link = json!({ "type": "resource_link", "uri": "a:c", "name": "c" });
        let Ok(PromptContent::Link(resource)) = converted(link) else { panic!("a link") };
        assert_eq!(resource.uri.as_str(), "docs+a:c");
    }

    #[test]
    fn malformed_base64_is_a_fault() {
        let image = |data: &str| json!({ "type": "image", "data": data, "mimeType": "image/png" });
        assert!(matches!(converted(image("AAEC")), Ok(PromptContent::Media { .. })));
        assert_eq!(converted(image("A")).unwrap_err().to_string(), RemoteFault::Base64.to_string());
    }
}
