//! Reads the resources in the messages of a prompt, and encodes the messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use libris_core::{
    Content, ContentBody, Contents, Context, PromptContent, PromptMessage, PromptRole, Resource, Uri,
};
use libris_wire::{Call, Facts, Failure, Members, Writer, escape};

use crate::caller_view::{CallReporter, CallerView};
use crate::encode;
use crate::rights::Operation;
use crate::view::ViewSnapshot;

/// The largest total size of the resources that one prompt embeds, in bytes.
const MAX_EMBEDDED: usize = 8 << 20;

/// The largest total size of the resources that the built-in prompt embeds, in bytes.
const MAX_SUGGESTED: usize = 64 << 10;

/// How to handle a resource that cannot be embedded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unembeddable {
    /// The request fails, because the prompt names the resource.
    Refuse,
    /// The resource is left out, because the server has chosen it, not the prompt.
    Skip,
}

/// A message whose resources were read.
pub(super) struct ReadMessage {
    role: PromptRole,
    content: ReadContent,
}

enum ReadContent {
    Text(String),
    /// A resource, or an image or sound if its media type says so.
    Resource(Content),
    Link(Box<Resource>),
    Media {
        data: bytes::Bytes,
        mime: String,
    },
}

impl CallerView {
    /// Reads the resources in messages under the rights of the caller. A resource with several parts, such as a
    /// directory, becomes several messages.
    pub(super) async fn embed(
        &self,
        call: &Call,
        view: &ViewSnapshot<'_>,
        messages: Vec<PromptMessage>,
        unembeddable: Unembeddable,
    ) -> Result<Vec<ReadMessage>, Failure> {
        let context = self.context(call).with_memory(Arc::new(CallReporter(call.clone())));
        let (mut read, mut size) = (Vec::new(), 0);
        for PromptMessage { role, content } in messages {
            let visible = |uri: &Uri| match view.allows(Operation::Read, uri) {
                true => Ok(()),
                false => {
                    let failure = Failure::not_found(uri.as_str());
                    self.audit_part(call, uri.as_str(), Duration::ZERO, Err(&failure));
                    Err(failure)
                }
            };
            let content = match content {
                PromptContent::Text(text) => ReadContent::Text(text),
                PromptContent::Media { data, mime } => ReadContent::Media { data, mime },
                PromptContent::Embedded(part) => {
                    visible(&part.uri)?;
                    self.audit_part(call, part.uri.as_str(), Duration::ZERO, Ok(part.body.len()));
                    ReadContent::Resource(part)
                }
                PromptContent::Link(resource) => {
                    visible(&resource.uri)?;
                    ReadContent::Link(resource)
                }
                PromptContent::Resource(uri) => {
                    let parts = self.embedded_parts(call, view, &uri, &context, (&mut size, unembeddable));
                    let parts = parts.await?.into_iter();
                    read.extend(parts.map(|part| ReadMessage { role, content: ReadContent::Resource(part) }));
                    continue;
                }
            };
            read.push(ReadMessage { role, content });
        }
        self.reserve_loaded(call, size)?;
        Ok(read)
    }

    /// Reads a resource in a message, and adds its size to `size`, the total of all embedded resources.
    async fn embedded_parts(
        &self,
        call: &Call,
        view: &ViewSnapshot<'_>,
        uri: &Uri,
        context: &Context,
        (size, unembeddable): (&mut usize, Unembeddable),
    ) -> Result<Vec<Content>, Failure> {
        let began = Instant::now();
        let loaded = self.load(call, view, uri, uri.as_str(), context).await;
        let size_of = |contents: &Contents| contents.parts.iter().map(|part| part.body.len()).sum::<usize>();
        self.audit_part(call, uri.as_str(), began.elapsed(), loaded.as_ref().map(size_of));
        let contents = match (loaded, unembeddable) {
            (Ok(contents), _) => contents,
            (Err(failure), Unembeddable::Refuse) => return Err(failure),
            (Err(_), Unembeddable::Skip) => return Ok(Vec::new()),
        };
        let more = *size + size_of(&contents);
        match unembeddable {
            Unembeddable::Refuse if more > MAX_EMBEDDED => Err(Failure::invalid(format!(
                "the resources of the prompt have more than {MAX_EMBEDDED} bytes; choose smaller ones"
            ))),
            Unembeddable::Skip if more > MAX_SUGGESTED => Ok(Vec::new()),
            _ => {
                *size = more;
                Ok(contents.parts)
            }
        }
    }
}

/// Encodes the members of the result.
pub(super) fn encode(facts: &Facts, description: Option<&str>, messages: Vec<ReadMessage>) -> Members {
    let mut out = Writer::default();
    if let Some(description) = description {
        out.json().extend_from_slice(b"\"description\":");
        escape(out.json(), description);
        out.json().push(b',');
    }
    out.json().extend_from_slice(b"\"messages\":[");
    for (index, ReadMessage { role, content }) in messages.into_iter().enumerate() {
        let json = out.json();
        if index > 0 {
            json.push(b',');
        }
        json.extend_from_slice(match role {
            PromptRole::User => b"{\"role\":\"user\",\"content\":",
            PromptRole::Assistant => b"{\"role\":\"assistant\",\"content\":",
        });
        match content {
            ReadContent::Text(text) => {
                json.extend_from_slice(b"{\"type\":\"text\",\"text\":");
                out.text(text);
                out.json().push(b'}');
            }
            ReadContent::Media { data, mime } => media(&mut out, facts, data, &mime),
            ReadContent::Resource(part) => resource(&mut out, facts, part),
            ReadContent::Link(resource) => link(json, facts, &resource),
        }
        out.json().push(b'}');
    }
    out.json().push(b']');
    out.finish()
}

/// Encodes an embedded resource. An image or a sound becomes media content, because hosts show it only in this form.
fn resource(out: &mut Writer, facts: &Facts, part: Content) {
    let is_media = part.mime.as_deref().is_some_and(|mime| media_type(facts, mime).is_some());
    match part {
        Content { body: ContentBody::Bytes(data), mime: Some(mime), .. } if is_media => {
            media(out, facts, data, &mime);
        }
        part => {
            out.json().extend_from_slice(b"{\"type\":\"resource\",\"resource\":");
            encode::content(out, facts, part);
            out.json().push(b'}');
        }
    }
}

/// Encodes a link to a resource; in revisions that have no links, its URI as text.
fn link(json: &mut Vec<u8>, facts: &Facts, resource: &Resource) {
    if !facts.structured {
        json.extend_from_slice(b"{\"type\":\"text\",\"text\":");
        escape(json, resource.uri.as_str());
        return json.push(b'}');
    }
    json.extend_from_slice(b"{\"type\":\"resource_link\",");
    let mut members = Vec::new();
    encode::resource(&mut members, facts, resource);
    json.extend_from_slice(members.strip_prefix(b"{").unwrap_or(&members));
}

/// The type of media content for a media type; `None` if the revision has no such type.
fn media_type(facts: &Facts, mime: &str) -> Option<&'static str> {
    match mime.split('/').next() {
        Some("image") => Some("image"),
        // The protocol revision that added the `completions` capability also added audio.
        Some("audio") if facts.completions => Some("audio"),
        _ => None,
    }
}

fn media(out: &mut Writer, facts: &Facts, data: bytes::Bytes, mime: &str) {
    let kind = media_type(facts, mime).unwrap_or("image");
    out.json().extend_from_slice(format!("{{\"type\":\"{kind}\",\"data\":").as_bytes());
    out.blob(data);
    out.json().extend_from_slice(b",\"mimeType\":");
    escape(out.json(), mime);
    out.json().push(b'}');
}
