//! Reads of documents, and of their text.

use std::sync::Arc;

use bytes::Bytes;
use libris_core::{Content, ContentBody, Contents, Context, Error, Freshness, Meta, Proof, Result, Uri};

use super::member_path::MemberPath;
use super::query::{DocumentQuery, ReadForm, document_uri, form_name, unknown_form, with_form};
use super::select::{MAX_TEXT, Oversize, SelectedText, select, select_lines};
use super::{Documents, KnownDocument, MAX_KNOWN_URI, PlainRead};
use crate::extract::ExtractOptions;
use crate::{ArchiveFormat, ExtractedText, ExtractionError, Format};

/// The media type of extracted text.
const MARKDOWN: &str = "text/markdown";

/// The bytes of a document.
pub(super) struct DocumentBytes {
    pub(super) data: Bytes,
    pub(super) mime: Option<String>,
    /// Whether the source decoded the bytes to UTF-8.
    pub(super) decoded: bool,
    pub(super) meta: Option<Meta>,
    pub(super) freshness: Freshness,
}

/// What a source has at a URI.
pub(super) enum FoundContents {
    Document(DocumentBytes),
    /// Contents with several parts or none, such as those of a directory.
    Other(Contents),
}

impl Documents {
    /// Reads a document as text or as images, or a member of an archive, and any other resource if plain reads give text.
    pub(super) async fn read_own(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        // If the form is not certain, parameters such as `pages` belong to the source, and stay in the URI.
        let certain = self.form(uri);
        let form = certain.unwrap_or(match self.plain {
            PlainRead::Text => ReadForm::Text,
            PlainRead::Original => ReadForm::Original,
        });
        let (query, document) = match certain {
            Some(form) => (DocumentQuery::parse(uri, form)?, document_uri(uri, form).into_owned()),
            None => (DocumentQuery::default(), uri.clone()),
        };
        let contents = self.read_form(uri, &document, form, &query, context).await;
        match (contents, form_name(uri).filter(|_| certain.is_none())) {
            (Err(error), Some(name)) if error.is_not_found() || matches!(error, Error::Invalid(_)) => {
                Err(unknown_form(name))
            }
            (contents, _) => contents,
        }
    }

    async fn read_form(
        &self,
        uri: &Uri,
        document: &Uri,
        form: ReadForm,
        query: &DocumentQuery,
        context: &Context,
    ) -> Result<Contents> {
        match form {
            ReadForm::Original => self.read_original(uri, document, context).await,
            ReadForm::Text => self.read_text(uri, document, query, context).await,
            ReadForm::Image => self.read_images(uri, document, query, context).await,
        }
    }

    async fn read_original(&self, uri: &Uri, document: &Uri, context: &Context) -> Result<Contents> {
        let contents = match (self.source.read(document, context).await, MemberPath::of(document)) {
            (Err(error), Some(member)) if error.is_not_found() => {
                return self.read_member(uri, document, &member, context).await;
            }
            (contents, _) => contents?,
        };
        Ok(renamed(contents, document, uri))
    }

    async fn read_text(
        &self,
        uri: &Uri,
        document: &Uri,
        query: &DocumentQuery,
        context: &Context,
    ) -> Result<Contents> {
        if let Some((text, freshness)) = self.known_text(document, query) {
            return text_contents(uri, &text, query, freshness, context);
        }
        let found = match self.find(document, context).await? {
            FoundContents::Document(found) => found,
            FoundContents::Other(contents) => {
                check_no_selection(document, "a folder", query)?;
                return Ok(renamed(contents, document, uri));
            }
        };
        let Some(format) = Format::of(document.path(), found.mime.as_deref(), &found.data) else {
            // The text of an archive is the list of its members.
            return match ArchiveFormat::by_name(document.path()).filter(|_| query.form.is_some()) {
                Some(format) => {
                    check_no_selection(document, "an archive", query)?;
                    self.list_archive(uri, document, format, context).await
                }
                None => self.already_text(uri, document, query, found),
            };
        };
        let content = query.content.unwrap_or_default();
        let options = ExtractOptions { format, content, decoded: found.decoded };
        let text = self.reader.text(&found.data, options, context.client()).await;
        let text = text.map_err(|error| extraction_error(document, error))?;
        self.remember(document, &found, options, context).await;
        text_contents(uri, &text, query, found.freshness, context)
    }

    /// The digest of a document that was read before, if its proof still holds.
    pub(super) fn known_document(&self, document: &Uri) -> Option<KnownDocument> {
        let known = self.known.get(document)?;
        if !known.proof.holds() {
            self.known.remove(document);
            return None;
        }
        Some(known)
    }

    /// The cached text of a document that was read before, if its proof still holds.
    pub(super) fn known_text(
        &self,
        document: &Uri,
        query: &DocumentQuery,
    ) -> Option<(Arc<ExtractedText>, Freshness)> {
        let known = self.known_document(document)?;
        let options = ExtractOptions { content: query.content.unwrap_or_default(), ..known.options };
        Some((self.reader.cached_text(known.digest, options)?, known.freshness))
    }

    /// Remembers the digest of a document with its proof, unless the contents depend on who the caller is.
    pub(super) async fn remember(
        &self,
        document: &Uri,
        found: &DocumentBytes,
        options: ExtractOptions,
        context: &Context,
    ) {
        let is_remembered = !context.identity_was_used() && document.as_str().len() <= MAX_KNOWN_URI;
        let Some(proof) = found.freshness.proof.clone().filter(|_| is_remembered) else { return };
        let digest = self.reader.digest(&found.data).await;
        let known = KnownDocument { digest, options, proof, freshness: found.freshness.clone() };
        self.known.insert(document.clone(), known);
    }

    /// The contents of a resource that is no document: its text, or lines of it. Binary contents are an error if text was
    /// requested with `as=text`.
    pub(super) fn already_text(
        &self,
        uri: &Uri,
        document: &Uri,
        query: &DocumentQuery,
        found: DocumentBytes,
    ) -> Result<Contents> {
        let text = found.decoded.then(|| String::from_utf8(found.data.to_vec()).ok()).flatten();
        let mut meta = found.meta;
        let body = match text {
            Some(text) => {
                let others = DocumentQuery { lines: None, ..query.clone() };
                check_no_selection(document, "already text", &others)?;
                ContentBody::Text(match &query.lines {
                    Some(lines) => {
                        let meta = meta.get_or_insert_with(Meta::new);
                        select_lines(uri, &text, lines, meta)?
                    }
                    None => text,
                })
            }
            // Plain reads give text here, but `as=text` was not given: an image stays an image.
            None if query.form.is_none() => ContentBody::Bytes(found.data),
            None => {
                let kind = found.mime.as_deref().unwrap_or("of an unknown type");
                return Err(Error::invalid(format!(
                    "`{document}` is {kind}, which has no text; hint: read it without `as=text`"
                )));
            }
        };
        let content = Content { uri: uri.clone(), mime: found.mime, body, meta };
        Ok(Contents::from(content).with_freshness(found.freshness))
    }

    /// Reads the contents at a URI from the source. If the source has none, opens the archive member that the URI
    /// names.
    pub(super) async fn find(&self, document: &Uri, context: &Context) -> Result<FoundContents> {
        match (self.find_in_source(document, context).await, MemberPath::of(document)) {
            (Err(error), Some(member)) if error.is_not_found() => {
                self.find_member(document, &member, context).await
            }
            (found, _) => found,
        }
    }

    /// Reads the contents at a URI from the source, in ranges if they are larger than the source's limit for one read.
    pub(super) async fn find_in_source(&self, document: &Uri, context: &Context) -> Result<FoundContents> {
        match self.source.read(document, context).await {
            Ok(contents) => Ok(found_contents(contents)),
            Err(Error::TooLarge { uri, size, limit, hint }) => {
                let too_large = Error::TooLarge { uri, size, limit, hint };
                self.find_in_ranges(document, size, limit, context).await?.ok_or(too_large)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a document in byte ranges, because it is larger than the source's limit for one read. `None` if the source
    /// does not support ranges, if the resource is text that is not a document, or if it is also too large for an
    /// extraction.
    async fn find_in_ranges(
        &self,
        document: &Uri,
        size: u64,
        limit: u64,
        context: &Context,
    ) -> Result<Option<FoundContents>> {
        if size > self.reader.config().max_document || limit == 0 {
            return Ok(None);
        }
        let Some(found) = self.ranges(document, size, limit, context).await? else { return Ok(None) };
        // All ranges must come from the same version of the document. Without a proof that holds, as for a file that
        // was just written, the document is read twice and compared.
        let is_proven = found.freshness.proof.as_ref().is_some_and(Proof::holds);
        if !is_proven {
            let again = self.ranges(document, size, limit, context).await?;
            if again.is_none_or(|again| again.data != found.data) {
                return Err(Error::Busy("the document is being changed"));
            }
        }
        Ok(Some(FoundContents::Document(found)))
    }

    /// Reads a document of `size` bytes in ranges of at most `limit` bytes; `None` if a range could not be read, or if
    /// the resource is text that is not a document.
    async fn ranges(
        &self,
        document: &Uri,
        size: u64,
        limit: u64,
        context: &Context,
    ) -> Result<Option<DocumentBytes>> {
        let mut data = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        let (mut mime, mut freshness) = (None, None::<Freshness>);
        while (data.len() as u64) < size {
            let (first, last) = (data.len() as u64, (data.len() as u64 + limit).min(size) - 1);
            let separator = if document.query().is_some() { '&' } else { '?' };
            let range = Uri::parse(&format!("{document}{separator}bytes={first}-{last}"))?;
            let Ok(contents) = self.source.read(&range, context).await else { return Ok(None) };
            let FoundContents::Document(part) = found_contents(contents) else { return Ok(None) };
            if part.data.len() as u64 != last - first + 1 {
                return Ok(None);
            }
            data.extend_from_slice(&part.data);
            // Text that is not a document has no other form, so the limit of the source applies to it.
            if part.decoded && Format::of(document.path(), part.mime.as_deref(), &data).is_none() {
                return Ok(None);
            }
            mime = part.mime;
            freshness = Some(match freshness {
                Some(before) => before.and(part.freshness),
                None => part.freshness,
            });
        }
        let freshness = freshness.unwrap_or_default();
        Ok(Some(DocumentBytes { data: data.into(), mime, decoded: false, meta: None, freshness }))
    }
}

/// Unpacks contents with exactly one part.
pub(super) fn found_contents(mut contents: Contents) -> FoundContents {
    if contents.parts.len() != 1 {
        return FoundContents::Other(contents);
    }
    let Some(part) = contents.parts.pop() else { return FoundContents::Other(contents) };
    let (data, decoded) = match part.body {
        ContentBody::Text(text) => (Bytes::from(text), true),
        ContentBody::Bytes(data) => (data, false),
    };
    let freshness = contents.freshness;
    FoundContents::Document(DocumentBytes { data, mime: part.mime, decoded, meta: part.meta, freshness })
}

/// Gives the parts with the URI of the document the URI that the client requested.
pub(super) fn renamed(mut contents: Contents, document: &Uri, uri: &Uri) -> Contents {
    for part in contents.parts.iter_mut().filter(|part| part.uri == *document) {
        part.uri = uri.clone();
    }
    contents
}

/// The selected part of a text as contents, within [`MAX_TEXT`] and the memory budget of the request.
fn text_contents(
    uri: &Uri,
    text: &ExtractedText,
    query: &DocumentQuery,
    freshness: Freshness,
    context: &Context,
) -> Result<Contents> {
    let SelectedText { text: selected, meta, oversize } = select(uri, text, query)?;
    if let Some(Oversize { size, part }) = oversize {
        let hint = match part {
            Some(part) => format!("read a part of it, such as `{part}`"),
            None => "one line of it is larger; `as=original` gives the bytes".to_owned(),
        };
        let (size, limit) = (size as u64, MAX_TEXT as u64);
        return Err(Error::TooLarge { uri: uri.clone(), size, limit, hint: Some(hint) });
    }
    context.reserve(selected.len() as u64)?;
    let content = Content {
        uri: uri.clone(),
        mime: Some(MARKDOWN.to_owned()),
        body: ContentBody::Text(selected),
        meta: Some(meta),
    };
    Ok(Contents::from(content).with_freshness(freshness))
}

/// Refuses parameters that select a part of a resource that has no such parts.
pub(super) fn check_no_selection(document: &Uri, kind: &str, query: &DocumentQuery) -> Result<()> {
    match query.selections().next() {
        None => Ok(()),
        Some(wrong) => Err(Error::invalid(format!(
            "`{document}` is {kind} and has no `{wrong}`; hint: read it without `{wrong}`"
        ))),
    }
}

/// The error for a document that could not be extracted.
pub(super) fn extraction_error(document: &Uri, error: ExtractionError) -> Error {
    match error {
        ExtractionError::Refused(_) | ExtractionError::Crashed => {
            no_result(document, "text", &error.to_string())
        }
        ExtractionError::TooLarge { size, limit } => {
            Error::TooLarge { uri: document.clone(), size, limit, hint: None }
        }
        ExtractionError::NoMember | ExtractionError::NoPage(_) => Error::NotFound(document.clone()),
        ExtractionError::Busy => Error::Busy("too many documents are waiting to be extracted"),
        ExtractionError::NoMemory => Error::NO_MEMORY,
        ExtractionError::Failed(cause) => Error::failed("extract the text of the document", cause),
    }
}

/// The error for a document that has no text or no image.
pub(super) fn no_result(document: &Uri, what: &str, why: &str) -> Error {
    let original = with_form(document, "original");
    let original = original.as_ref().unwrap_or(document);
    Error::invalid(format!("`{document}` has no {what}: {why}; hint: `{original}` gives the bytes"))
}
