//! Resources, templates and contents as JSON, in the shape each revision knows.

use bytes::Bytes;
use libris_core::{Annotations, Body, Completion, Content, Icon, Meta, Resource, Template, Unavailable};
use libris_wire::{Facts, Members, Writer, escape};
use serde::Serialize;
use serde::ser::SerializeMap as _;

use crate::health::rfc3339;

/// The members of a page being written.
pub(crate) struct PageWriter(Vec<u8>);

impl PageWriter {
    /// A page with these items under this name.
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

    /// One more member, with text as its value.
    pub(crate) fn text(mut self, name: &str, value: &str) -> Self {
        self.0.extend_from_slice(format!(",\"{name}\":").as_bytes());
        write(&mut self.0, value);
        self
    }

    pub(crate) fn finish(self) -> Members {
        self.0.into()
    }
}

/// Writes any value. What we write cannot fail to be JSON: maps have text keys and numbers are finite.
fn write(json: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    if let Err(cause) = serde_json::to_writer(&mut *json, value) {
        tracing::error!(%cause, "could not encode");
        json.extend_from_slice(b"null");
    }
}

/// A resource as `facts` know it.
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

/// A template as `facts` know it.
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
    /// Written by hand: a page has hundreds of these, and all but a few members are short texts.
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
        let hints = Hints { annotations: self.annotations, facts };
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

struct Hints<'a> {
    annotations: &'a Annotations,
    facts: &'a Facts,
}

impl Hints<'_> {
    fn last_modified(&self) -> Option<String> {
        let modified = self.annotations.last_modified.filter(|_| self.facts.titles)?;
        // Whole seconds are what the protocol's own examples show, and what clients parse.
        jiff_seconds(modified)
    }

    fn is_empty(&self) -> bool {
        self.annotations.audience.is_empty()
            && self.annotations.priority.is_none()
            && (self.annotations.last_modified.is_none() || !self.facts.titles)
    }
}

fn jiff_seconds(time: jiff::Timestamp) -> Option<String> {
    jiff::Timestamp::from_second(time.as_second()).ok().map(|time| time.to_string())
}

impl Serialize for Hints<'_> {
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

/// The member of a list's `_meta` that names the sources which are missing from it, or stale; nothing if there are none.
/// A caller that may not see the status of the server is not told their names.
pub(crate) fn unavailable(sources: &[Unavailable], names: bool) -> Bytes {
    if sources.is_empty() {
        return Bytes::new();
    }
    let sources: Vec<_> = sources
        .iter()
        .map(|Unavailable { source, since, stale }| {
            let mut entry = serde_json::json!({ "since": rfc3339(*since), "stale": stale });
            if names {
                entry["source"] = source.as_str().into();
            }
            entry
        })
        .collect();
    let mut json = b"\"libris/unavailable\":".to_vec();
    write(&mut json, &sources);
    json.into()
}

/// The parts of a resource as `facts` know them.
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

fn content(out: &mut Writer, facts: &Facts, content: Content) {
    let json = out.json();
    json.extend_from_slice(b"{\"uri\":");
    escape(json, content.uri.as_str());
    if let Some(mime) = &content.mime {
        json.extend_from_slice(b",\"mimeType\":");
        escape(json, mime);
    }
    match content.body {
        Body::Text(text) => {
            json.extend_from_slice(b",\"text\":");
            out.text(text);
        }
        Body::Bytes(bytes) => {
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

/// The member of a completion result.
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
