//! Reads of pages of a PDF as images (`as=image`).

use libris_core::{Content, ContentBody, Contents, Context, Error, Freshness, Meta, Result, Uri};
use serde_json::json;

use super::Documents;
use super::query::{DocumentQuery, NumberRanges, WIDTH, with_form};
use super::read::{DocumentBytes, FoundContents, check_no_selection, extraction_error, no_result, renamed};
use crate::cache::RenderedPage;
use crate::extract::{ExtractOptions, HtmlContent};
use crate::render::DEFAULT_WIDTH;
use crate::{ArchiveFormat, ExtractionError, Format, PageRendering};

/// The maximum number of pages in one response.
const MAX_PAGES: usize = 10;

/// The maximum number of bytes of all images in one response.
const MAX_BYTES: u64 = 16 << 20;

/// The media type of images.
const PNG: &str = "image/png";

impl Documents {
    /// The selected pages of a PDF as images, the first page if none is selected; or the list of a folder or archive.
    pub(super) async fn read_images(
        &self,
        uri: &Uri,
        document: &Uri,
        query: &DocumentQuery,
        context: &Context,
    ) -> Result<Contents> {
        if let Some(wrong) = query.selections().find(|key| *key != "pages") {
            return Err(Error::invalid(format!(
                "`as=image` cannot be combined with `{wrong}`; hint: use `pages` or `{WIDTH}`"
            )));
        }
        if let Some((pages, freshness)) = self.known_images(document, query) {
            context.reserve(size(&pages))?;
            return Ok(image_contents(uri, document, query, &pages, freshness));
        }
        let found = match self.find(document, context).await? {
            FoundContents::Document(found) => found,
            FoundContents::Other(contents) => {
                check_no_selection(document, "a folder", query)?;
                return Ok(renamed(contents, document, uri));
            }
        };
        let other = match Format::of(document.path(), found.mime.as_deref(), &found.data) {
            Some(Format::Pdf) => None,
            Some(other) => Some(format!("of the format {}", other.name())),
            None => Some(found.mime.clone().unwrap_or_else(|| "of an unknown type".to_owned())),
        };
        if let Some(other) = other {
            // A folder or archive gives its list, as with `as=text`: completion leads to the documents in it.
            return match ArchiveFormat::by_name(document.path()) {
                Some(format) => {
                    check_no_selection(document, "an archive", query)?;
                    self.list_archive(uri, document, format, context).await
                }
                None if document.path().ends_with('/') => self.already_text(uri, document, query, found),
                None => Err(no_pages(document, &other)),
            };
        }
        let pages = self.render_pages(document, query, &found, context).await?;
        let options =
            ExtractOptions { format: Format::Pdf, content: HtmlContent::default(), decoded: found.decoded };
        self.remember(document, &found, options, context).await;
        Ok(image_contents(uri, document, query, &pages, found.freshness))
    }

    /// Renders the selected pages, one after the other. The first of them also reveals how many there are. Memory is
    /// reserved for each image at once: the request holds it while it waits for a permit to render the next page.
    async fn render_pages(
        &self,
        document: &Uri,
        query: &DocumentQuery,
        found: &DocumentBytes,
        context: &Context,
    ) -> Result<Vec<RenderedPage>> {
        let render = async |page: usize| {
            let rendered = self.reader.image(&found.data, rendering(query, page), context.client()).await;
            let rendered = rendered.map_err(|error| image_error(document, page, error))?;
            context.reserve(rendered.png.len() as u64)?;
            Result::Ok(rendered)
        };
        let first = render(first_page(query)).await?;
        let numbers = selected_pages(document, query, first.image.pages)?;
        let mut size = first.png.len() as u64;
        let mut pages = vec![first];
        for number in numbers.into_iter().skip(1) {
            let page = render(number).await?;
            size += page.png.len() as u64;
            if size > MAX_BYTES {
                let hint = Some(format!("read fewer pages, or smaller ones with `{WIDTH}=500`"));
                return Err(Error::TooLarge { uri: document.clone(), size, limit: MAX_BYTES, hint });
            }
            pages.push(page);
        }
        Ok(pages)
    }

    /// The selected pages of a document that was read before, if the memory cache has all of them.
    fn known_images(&self, document: &Uri, query: &DocumentQuery) -> Option<(Vec<RenderedPage>, Freshness)> {
        let known = self.known_document(document)?;
        let cached = |page: usize| self.reader.cached_image(known.digest, rendering(query, page));
        let first = cached(first_page(query))?;
        let numbers = selected_pages(document, query, first.image.pages).ok()?;
        let pages: Option<Vec<_>> = numbers.into_iter().map(cached).collect();
        let pages = pages.filter(|pages| size(pages) <= MAX_BYTES)?;
        Some((pages, known.freshness))
    }
}

fn rendering(query: &DocumentQuery, page: usize) -> PageRendering {
    PageRendering { page, width: query.width.unwrap_or(DEFAULT_WIDTH) }
}

fn first_page(query: &DocumentQuery) -> usize {
    query.pages.as_ref().map_or(1, NumberRanges::first)
}

/// The numbers of the selected pages; an error if there are too many. The caller has made sure that the first one
/// exists.
fn selected_pages(document: &Uri, query: &DocumentQuery, pages: usize) -> Result<Vec<usize>> {
    let Some(ranges) = &query.pages else { return Ok(vec![1]) };
    let numbers: Vec<usize> = (1..=pages).filter(|number| ranges.contains(*number)).collect();
    if numbers.len() > MAX_PAGES {
        let (first, last) = (numbers[0], numbers[MAX_PAGES - 1]);
        return Err(Error::invalid(format!(
            "`{document}`: {} pages are selected, and one read gives at most {MAX_PAGES} images; \
             hint: read a part of them, such as `pages={first}-{last}`",
            numbers.len(),
        )));
    }
    Ok(numbers)
}

fn size(pages: &[RenderedPage]) -> u64 {
    pages.iter().map(|page| page.png.len() as u64).sum()
}

/// The images as contents. If there are several, each has the URI of its page.
fn image_contents(
    uri: &Uri,
    document: &Uri,
    query: &DocumentQuery,
    pages: &[RenderedPage],
    freshness: Freshness,
) -> Contents {
    let width = query.width.map(|width| format!("&{WIDTH}={width}")).unwrap_or_default();
    let content = |page: &RenderedPage| {
        let own = match pages {
            [_] => Some(uri.clone()),
            _ => with_form(document, &format!("image&pages={}{width}", page.image.page)),
        };
        Content {
            uri: own.unwrap_or_else(|| uri.clone()),
            mime: Some(PNG.to_owned()),
            body: ContentBody::Bytes(page.png.clone()),
            meta: Some(meta(page)),
        }
    };
    let parts = pages.iter().map(content).collect();
    Contents { parts, freshness }
}

fn meta(page: &RenderedPage) -> Meta {
    let image = page.image;
    let facts = [
        ("format", json!(Format::Pdf.name())),
        ("pages", json!(image.pages)),
        ("page", json!(image.page)),
        ("width", json!(image.width)),
        ("height", json!(image.height)),
    ];
    facts.into_iter().map(|(name, value)| (format!("dev.libris/{name}"), value)).collect()
}

/// The error for a resource that is no PDF.
fn no_pages(document: &Uri, kind: &str) -> Error {
    Error::invalid(format!(
        "`{document}` is {kind}, and only pages of PDF files have images; hint: read it without `as=image`"
    ))
}

/// The error for a page that could not be rendered.
fn image_error(document: &Uri, page: usize, error: ExtractionError) -> Error {
    match error {
        ExtractionError::NoPage(pages) => Error::invalid(format!(
            "`{document}` has {pages} pages, and {page} is after the last; hint: choose from 1 to {pages}"
        )),
        ExtractionError::Refused(_) | ExtractionError::Crashed => {
            no_result(document, &format!("image of page {page}"), &error.to_string())
        }
        ExtractionError::Failed(cause) => Error::failed("render the page of the document", cause),
        other => extraction_error(document, other),
    }
}
