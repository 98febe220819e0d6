//! Stamps: fingerprints by which the feeder recognises unchanged resources.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use libris_core::Resource;

/// The fingerprint of the metadata and the note of a resource.
pub(super) fn of_metadata(resource: &Resource, source: &str, note: Option<&str>) -> u64 {
    let Resource { uri, name, title, description, mime, size, annotations, .. } = resource;
    let mut hasher = DefaultHasher::new();
    (uri.as_str(), name, title, description, mime, size, source, note).hash(&mut hasher);
    annotations.last_modified.map(|time| time.as_nanosecond()).hash(&mut hasher);
    annotations.priority.map(f64::to_bits).hash(&mut hasher);
    annotations.audience.len().hash(&mut hasher);
    hasher.finish()
}

/// The fingerprint of the metadata with that of the text.
pub(super) fn of_text(metadata: u64, text: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (metadata, text).hash(&mut hasher);
    hasher.finish()
}

/// Whether the resource has a modification time, so that its metadata alone shows whether its contents changed.
pub(super) fn is_dated(resource: &Resource) -> bool {
    resource.annotations.last_modified.is_some()
}
