//! JSON encoding of resources, templates and contents, with the fields of each protocol revision.

use bytes::Bytes;
use libris_core::{
    Annotations, Completion, Content, ContentBody, Icon, Meta, Resource, Template, UnavailableSource,
};
use libris_wire::{Facts, Members, Writer, escape};
use serde::Serialize;
use serde::ser::SerializeMap as _;

use crate::health::rfc3339;

/// Encodes the members of a list page.
pub(crate) struct PageWriter(Vec<u8>);

impl PageWriter {
    /// Encodes `items` as an array member called `name`.
    pub(crate) fn new<T>(name: &str, items: &[T], mut write: impl FnMut(&mut Vec<u8>, &T)) -> Self {
        let mut json = Vec::with_capacity(64 + items.len() * 256);
        json.extend_from_slice(format!("\"{name}\":[").as_bytes());
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            write(&mut json, item);
        }
        json.push(b']');
        Self(json)
    }

    /// Adds a string member.
    pub(crate) fn text(mut self, name: &str, value: &str) -> Self {
        self.0.extend_from_slice(format!(",\"{name}\":").as_bytes());
        write(&mut self.0, value);
        self
    }

    pub(crate) fn finish(self) -> Members {
        self.0.into()
    }
}

/// Serialises a value. This cannot fail for the values of this crate: map keys are strings, and numbers are finite.
pub(crate) fn write(json: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    if let Err(cause) = serde_json::to_writer(&mut *json, value) {
        tracing::error!(%cause, "could not encode a value as JSON; sending `null`");
        json.extend_from_slice(b"null");
    }
}

/// Encodes a resource with the fields that a protocol revision has; `facts` are the features of that revision.
pub(crate) fn resource(json: &mut Vec<u8>, facts: &Facts, resource: &Resource) {
    let item = ListItem {
        address: ("uri", resource.uri.as_str()),
        name: &resource.name,
        title: resource.title.as_deref(),
        description: resource.description.as_deref(),
        mime: resource.mime.as_deref(),
        size: resource.size,
        icons: &resource.icons,
        annotations: &resource.annotations,
        meta: resource.meta.as_ref(),
        facts,
    };
    item.write(json);
}

/// Encodes a template with the fields that a protocol revision has; `facts` are the features of that revision.
pub(crate) fn template(json: &mut Vec<u8>, facts: &Facts, template: &Template) {
    let item = ListItem {
        address: ("uriTemplate", template.uri.as_str()),
        name: &template.name,
        title: template.title.as_deref(),
        description: template.description.as_deref(),
        mime: template.mime.as_deref(),
        size: None,
        icons: &template.icons,
        annotations: &template.annotations,
        meta: template.meta.as_ref(),
        facts,
    };
    item.write(json);
}

/// The fields of a resource or template in a list.
struct ListItem<'a> {
    address: (&'static str, &'a str),
    name: &'a str,
    title: Option<&'a str>,
    description: Option<&'a str>,
    mime: Option<&'a str>,
    size: Option<u64>,
    icons: &'a [Icon],
    annotations: &'a Annotations,
    meta: Option<&'a Meta>,
    facts: &'a Facts,
}

impl ListItem<'_> {
    /// Hand-written for speed: a page has hundreds of items, most of whose members are short strings.
    fn write(&self, json: &mut Vec<u8>) {
        let facts = self.facts;
        json.extend_from_slice(b"{\"");
        json.extend_from_slice(self.address.0.as_bytes());
        json.extend_from_slice(b"\":");
        escape(json, self.address.1);
        json.extend_from_slice(b",\"name\":");
        escape(json, self.name);
        if let Some(title) = self.title.filter(|_| facts.titles) {
            json.extend_from_slice(b",\"title\":");
            escape(json, title);
        }
        if let Some(description) = self.description {
            json.extend_from_slice(b",\"description\":");
            escape(json, description);
        }
        if let Some(mime) = self.mime {
            json.extend_from_slice(b",\"mimeType\":");
            escape(json, mime);
        }
        if let Some(size) = self.size {
            json.extend_from_slice(b",\"size\":");
            write(json, &size);
        }
        if !self.icons.is_empty() && facts.icons {
            json.extend_from_slice(b",\"icons\":");
            write(json, self.icons);
        }
        let hints = AnnotationsEncoder { annotations: self.annotations, facts };
        if !hints.is_empty() {
            json.extend_from_slice(b",\"annotations\":");
            write(json, &hints);
        }
        if let Some(meta) = self.meta.filter(|_| facts.titles) {
            json.extend_from_slice(b",\"_meta\":");
            write(json, meta);
        }
        json.push(b'}');
    }
}

/// The `annotations` member of a resource or template: hints for clients, as far as the protocol revision has them.
struct AnnotationsEncoder<'a> {
    annotations: &'a Annotations,
    facts: &'a Facts,
}

impl AnnotationsEncoder<'_> {
    fn last_modified(&self) -> Option<String> {
        let modified = self.annotations.last_modified.filter(|_| self.facts.titles)?;
        // Whole seconds, as in the specification's examples.
        in_whole_seconds(modified)
    }

    fn is_empty(&self) -> bool {
        self.annotations.audience.is_empty()
            && self.annotations.priority.is_none()
            && (self.annotations.last_modified.is_none() || !self.facts.titles)
    }
}

fn in_whole_seconds(time: jiff::Timestamp) -> Option<String> {
    jiff::Timestamp::from_second(time.as_second()).ok().map(|time| time.to_string())
}

impl Serialize for AnnotationsEncoder<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.annotations.audience.is_empty() {
            map.serialize_entry("audience", &self.annotations.audience)?;
        }
        if let Some(priority) = self.annotations.priority {
            map.serialize_entry("priority", &priority)?;
        }
        if let Some(modified) = self.last_modified() {
            map.serialize_entry("lastModified", &modified)?;
        }
        map.end()
    }
}

/// The `_meta` member that lists unavailable sources; empty if there are none. Their names are included only if `names`
/// is true.
pub(crate) fn unavailable(sources: &[UnavailableSource], names: bool) -> Bytes {
    if sources.is_empty() {
        return Bytes::new();
    }
    let sources: Vec<_> = sources
        .iter()
        .map(|UnavailableSource { source, since, stale }| {
            let mut entry = serde_json::json!({ "since": rfc3339(*since), "stale": stale });
            if names {
                entry["source"] = source.as_str().into();
            }
            entry
        })
        .collect();
    let mut json = b"\"dev.libris/unavailable\":".to_vec();
    write(&mut json, &sources);
    json.into()
}

/// Encodes the parts of contents with the fields that a protocol revision has; `facts` are the features of that
/// revision.
pub(crate) fn contents(facts: &Facts, parts: Vec<Content>) -> Members {
    let mut out = Writer::default();
    out.json().extend_from_slice(b"\"contents\":[");
    for (index, part) in parts.into_iter().enumerate() {
        if index > 0 {
            out.json().push(b',');
        }
        content(&mut out, facts, part);
    }
    out.json().push(b']');
    out.finish()
}

/// Encodes one part of contents.
pub(crate) fn content(out: &mut Writer, facts: &Facts, content: Content) {
    let json = out.json();
    json.extend_from_slice(b"{\"uri\":");
    escape(json, content.uri.as_str());
    if let Some(mime) = &content.mime {
        json.extend_from_slice(b",\"mimeType\":");
        escape(json, mime);
    }
    match content.body {
        ContentBody::Text(text) => {
            json.extend_from_slice(b",\"text\":");
            out.text(text);
        }
        ContentBody::Bytes(bytes) => {
            json.extend_from_slice(b",\"blob\":");
            out.blob(bytes);
        }
    }
    let json = out.json();
    if let Some(meta) = content.meta.as_ref().filter(|_| facts.titles) {
        json.extend_from_slice(b",\"_meta\":");
        write(json, meta);
    }
    json.push(b'}');
}

/// Encodes the `completion` member of a result.
pub(crate) fn completion(completion: &Completion) -> Members {
    let values = &completion.values[..completion.values.len().min(Completion::LIMIT)];
    let mut json = b"\"completion\":{\"values\":".to_vec();
    write(&mut json, values);
    if let Some(total) = completion.total {
        json.extend_from_slice(format!(",\"total\":{total}").as_bytes());
    }
    let more = completion.more || values.len() < completion.values.len();
    json.extend_from_slice(format!(",\"hasMore\":{more}}}").as_bytes());
    json.into()
}
