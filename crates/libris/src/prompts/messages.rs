//! The messages of a prompt: reads the resources in them, and encodes them.

use std::sync::Arc;

use libris_core::{Content, ContentBody, PromptContent, PromptMessage, PromptRole};
use libris_wire::{Call, Facts, Failure, Members, Writer, escape};

use crate::caller_view::{CallReporter, CallerView};
use crate::encode;
use crate::view::ViewSnapshot;

/// The most bytes of the resources that one prompt embeds.
const MAX_EMBEDDED: usize = 8 << 20;

/// The most bytes of the resources that a prompt embeds because a search found them.
const MAX_SUGGESTED: usize = 64 << 10;

/// What happens to a resource that cannot be embedded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unembeddable {
    /// The request fails, because the prompt says that the resource is in it.
    Refuse,
    /// It is left out, because the server has chosen it.
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
    Media {
        data: bytes::Bytes,
        mime: String,
    },
}

impl CallerView {
    /// Reads the resources in messages under the rights of the caller. A resource with several parts, such as a
    /// directory, becomes several messages.
    pub(super) async fn embedded(
        &self,
        call: &Call,
        view: &ViewSnapshot<'_>,
        messages: Vec<PromptMessage>,
        unembeddable: Unembeddable,
    ) -> Result<Vec<ReadMessage>, Failure> {
        let context = self.context(call).with_memory(Arc::new(CallReporter(call.clone())));
        let (mut read, mut size) = (Vec::new(), 0);
        for PromptMessage { role, content } in messages {
            let uri = match content {
                PromptContent::Text(text) => {
                    read.push(ReadMessage { role, content: ReadContent::Text(text) });
                    continue;
                }
                PromptContent::Media { data, mime } => {
                    read.push(ReadMessage { role, content: ReadContent::Media { data, mime } });
                    continue;
                }
                PromptContent::Resource(uri) => uri,
            };
            let contents = match (self.load(call, view, &uri, uri.as_str(), &context).await, unembeddable) {
                (Ok(contents), _) => contents,
                (Err(failure), Unembeddable::Refuse) => return Err(failure),
                (Err(_), Unembeddable::Skip) => continue,
            };
            let more = size + contents.parts.iter().map(|part| part.body.len()).sum::<usize>();
            match unembeddable {
                Unembeddable::Refuse if more > MAX_EMBEDDED => {
                    return Err(Failure::invalid(format!(
                        "the resources of the prompt have more than {MAX_EMBEDDED} bytes; choose smaller ones"
                    )));
                }
                Unembeddable::Skip if more > MAX_SUGGESTED => continue,
                _ => size = more,
            }
            let parts = contents.parts.into_iter();
            read.extend(parts.map(|part| ReadMessage { role, content: ReadContent::Resource(part) }));
        }
        self.reserve_loaded(call, size)?;
        Ok(read)
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
        }
        out.json().push(b'}');
    }
    out.json().push(b']');
    out.finish()
}

/// An embedded resource. Hosts show an image or a sound only as content of that type.
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

/// The type of content for a media type; `None` if the revision has none.
fn media_type(facts: &Facts, mime: &str) -> Option<&'static str> {
    match mime.split('/').next() {
        Some("image") => Some("image"),
        // Audio came with the `completions` capability.
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
