//! Stamps: fingerprints by which the feeder recognises unchanged resources.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use libris_core::{Audience, Resource};

use super::text;

/// The fingerprint of the metadata and the note of a resource.
pub(super) fn of_metadata(resource: &Resource, source: &str, note: Option<&str>) -> u64 {
    let Resource { uri, name, title, description, mime, size, annotations, .. } = resource;
    let mut hasher = DefaultHasher::new();
    (uri.as_str(), name, title, description, mime, size, source, note).hash(&mut hasher);
    annotations.last_modified.map(|time| time.as_nanosecond()).hash(&mut hasher);
    annotations.priority.map(f64::to_bits).hash(&mut hasher);
    // The order of the audiences has no meaning.
    let has = |audience: Audience| annotations.audience.contains(&audience);
    [Audience::User, Audience::Assistant].map(has).hash(&mut hasher);
    // When a source begins to extract the text of documents, nothing else in their metadata changes.
    text::document_text(resource).is_some().hash(&mut hasher);
    hasher.finish()
}

/// Combines the fingerprint of the metadata with that of the text.
pub(super) fn of_text(metadata: u64, text: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (metadata, text).hash(&mut hasher);
    hasher.finish()
}

/// Whether the resource has a modification time, so that its metadata alone shows whether its contents changed.
pub(super) fn is_dated(resource: &Resource) -> bool {
    resource.annotations.last_modified.is_some()
}

#[cfg(test)]
mod tests {
    use libris_core::{Audience, Resource, Uri};

    use super::of_metadata;

    #[test]
    fn every_indexed_part_of_the_metadata_changes_the_stamp() {
        let plain = Resource::new(Uri::parse("file:///a.md").unwrap(), "a.md");
        let mut changed = vec![plain.clone(); 12];
        changed[0].name = "b.md".to_owned();
        changed[1].title = Some("A".to_owned());
        changed[2].description = Some("A".to_owned());
        changed[3].mime = Some("text/markdown".to_owned());
        changed[4].size = Some(1);
        changed[5].annotations.priority = Some(0.5);
        changed[6].annotations.audience = vec![Audience::User];
        changed[7].annotations.audience = vec![Audience::Assistant];
        changed[8].annotations.audience = vec![Audience::User, Audience::Assistant];
        changed[9].annotations.last_modified = Some("2026-01-31T12:00:00Z".parse().unwrap());
        // The same PDF file, without and with its text.
        changed[10].mime = Some("application/pdf".to_owned());
        changed[11].mime = Some("application/pdf".to_owned());
        let text = ("dev.libris/text".to_owned(), "file:///a.md?as=text".into());
        changed[11].meta = Some([text].into_iter().collect());
        let mut stamps: Vec<_> =
            changed.iter().map(|resource| of_metadata(resource, "files", None)).collect();
        stamps.extend([
            of_metadata(&plain, "files", None),
            of_metadata(&plain, "other", None),
            of_metadata(&plain, "files", Some("note")),
        ]);
        let mut reversed = changed[8].clone();
        reversed.annotations.audience.reverse();
        assert_eq!(of_metadata(&reversed, "files", None), stamps[8]);
        let count = stamps.len();
        stamps.sort_unstable();
        stamps.dedup();
        assert_eq!(stamps.len(), count);
    }
}
