//! Adds metadata to listed documents and archives.

use libris_core::{DIRECTORY, Meta, Page, Resource};
use serde_json::json;

use super::query::with_form;
use super::{Documents, PlainRead};
use crate::{ArchiveFormat, Format, SectionUnit};

/// The `_meta` key for the URI of a document's text.
const TEXT: &str = "dev.libris/text";

/// The `_meta` key for the URI of the image of a document's first page.
const IMAGE: &str = "dev.libris/image";

/// The `_meta` key for the URI of a document's bytes, if its plain URI gives the text.
const ORIGINAL: &str = "dev.libris/original";

/// The `_meta` key for the URI of an archive as a folder.
const MEMBERS: &str = "dev.libris/members";

impl Documents {
    /// Adds the URIs of texts and members to the metadata of documents and archives.
    pub(super) fn describe(&self, page: &mut Page) {
        for resource in &mut page.resources {
            match format_of(resource) {
                Some(format) => self.describe_document(resource, format),
                None if is_archive(resource) => {
                    let members = format!("{}/", resource.uri);
                    resource.meta.get_or_insert_with(Meta::new).insert(MEMBERS.to_owned(), json!(members));
                }
                None => {}
            }
        }
    }

    fn describe_document(&self, resource: &mut Resource, format: Format) {
        let (key, form) = match self.plain {
            PlainRead::Original => (TEXT, "text"),
            PlainRead::Text => (ORIGINAL, "original"),
        };
        let Some(other) = with_form(&resource.uri, form) else { return };
        let unit = SectionUnit::of(format);
        let meta = resource.meta.get_or_insert_with(Meta::new);
        meta.insert(key.to_owned(), json!(other));
        if let Some(image) = with_form(&resource.uri, "image").filter(|_| has_images(format)) {
            meta.insert(IMAGE.to_owned(), json!(image));
        }
        // The number of sections, only if it is cached: opening every listed document would take too long.
        let known = self.known.get(&resource.uri).filter(|known| known.proof.holds());
        let text = known.and_then(|known| self.reader.cached_text(known.digest, known.options));
        if let Some(text) = text.filter(|_| unit != SectionUnit::Whole) {
            meta.insert(format!("dev.libris/{}", unit.plural()), json!(text.sections.len()));
        }
        if self.plain == PlainRead::Text {
            resource.mime = Some("text/markdown".to_owned());
            resource.size = None;
        }
    }
}

/// Whether this program renders the pages of this format.
pub(super) fn has_images(format: Format) -> bool {
    cfg!(feature = "pdf-images") && format == Format::Pdf
}

/// The format of a listed document, by its media type or extension, without reading it.
fn format_of(resource: &Resource) -> Option<Format> {
    if let Some(mime) = &resource.mime {
        // A shortcut for the most frequent types.
        if matches!(&**mime, "text/plain" | "text/markdown" | DIRECTORY) {
            return None;
        }
        if let Some(format) = Format::by_mime(mime) {
            return Some(format);
        }
    }
    Format::by_name(resource.uri.path())
}

/// Whether a listed resource is an archive. The check of the last letter avoids most comparisons of extensions.
fn is_archive(resource: &Resource) -> bool {
    let path = resource.uri.as_str();
    matches!(path.as_bytes().last(), Some(b'p' | b'P' | b'r' | b'R' | b'z' | b'Z'))
        && ArchiveFormat::by_name(path).is_some()
        && resource.mime.as_deref() != Some(DIRECTORY)
}
