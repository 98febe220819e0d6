//! The text of a resource for indexing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libris_core::{ContentBody, ContentMemory, Context, DIRECTORY, Error, Resource, Result, Uri, Visibility};
use libris_search::MAX_TEXT;

use crate::Catalog;
use crate::document_text::text_uri;

/// The largest resource that is read, in bytes. Larger resources are found only by their metadata.
const MAX_READ: usize = 2 * MAX_TEXT;

/// The text by which a resource is indexed; `None` if it has no text, or too much. After an error for which
/// [`may_be_readable_later`] returns true, it should be read again later.
pub(super) async fn text(catalog: &Catalog, resource: &Resource) -> Result<Option<String>> {
    if is_binary(resource) || resource.size.is_some_and(|size| size > MAX_READ as u64) {
        return Ok(None);
    }
    let memory = Arc::new(ReadLimit(AtomicUsize::new(0)));
    let context =
        Context::default().with_memory(memory).with_visibility(Arc::new(OnlyResource(resource.uri.clone())));
    let uri = document_text(resource).unwrap_or_else(|| resource.uri.clone());
    let contents = match catalog.read_in_background(&uri, &context).await {
        Ok(contents) => contents,
        Err(Error::TooLarge { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_own = |part: &Uri| *part == uri;
    let texts =
        contents.parts.into_iter().filter(|part| is_own(&part.uri)).filter_map(|part| match part.body {
            ContentBody::Text(text) => Some(text),
            ContentBody::Bytes(_) => None,
        });
    Ok(texts.reduce(|all, text| all + "\n" + &text))
}

/// Whether a read that failed with this error may succeed later, though the resource stays the same.
pub(super) fn may_be_readable_later(error: &Error) -> bool {
    !error.is_not_found()
        && !matches!(
            error,
            Error::Invalid(_) | Error::NotDirectory(_) | Error::TooLarge { .. } | Error::InputRequired(_)
        )
}

/// The URI of the text of a document, if the source has one.
pub(super) fn document_text(resource: &Resource) -> Option<Uri> {
    resource.meta.as_ref()?.get("dev.libris/text")?;
    text_uri(&resource.uri, resource.mime.as_deref())
}

/// Whether the media type says that there is no text.
fn is_binary(resource: &Resource) -> bool {
    const BINARY: [&str; 4] = ["image/", "audio/", "video/", "font/"];
    let mime = resource.mime.as_deref().unwrap_or_default();
    mime == DIRECTORY || mime != "image/svg+xml" && BINARY.iter().any(|prefix| mime.starts_with(prefix))
}

/// Hides all other resources while a resource is read for the index. The index serves all callers, so it must not contain
/// what a source shows only to some of them, such as the names of hidden tables in the schema of a database.
struct OnlyResource(Uri);

impl Visibility for OnlyResource {
    fn sees(&self, uri: &Uri) -> bool {
        uri.without_query() == self.0.without_query()
    }

    fn sees_below(&self, _prefix: &str) -> bool {
        false
    }
}

/// Refuses contents that are too large for the index before they are loaded.
struct ReadLimit(AtomicUsize);

impl ContentMemory for ReadLimit {
    fn reserve(&self, bytes: usize) -> bool {
        self.grow(bytes)
    }

    fn grow(&self, bytes: usize) -> bool {
        self.0.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= MAX_READ
    }
}
