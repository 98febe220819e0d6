//! The templates of extracted texts (`…{?as,pages,…}`) and of page images (`…?as=image{&pages,width}`), and the
//! completion of their variables.

use std::collections::BTreeMap;

use libris_core::uri_template::Variables;
use libris_core::{Completion, CompletionRequest, Context, Result, Template, Uri, UriTemplate};

use super::Documents;
use super::list::has_images;
use super::query::{DocumentQuery, KEYS, ReadForm, WIDTH, document_uri};
use super::read::{DocumentBytes, FoundContents};
use super::select::{row_count, section_number};
use crate::extract::{ExtractOptions, HtmlContent};
use crate::render::DEFAULT_WIDTH;
use crate::{ArchiveFormat, ExtractedText, Format, PageRendering, SectionUnit};

use libris_core::Source as _;

/// How many values to request from the source for one completion, before those that are no documents are removed.
const MAX_FILTERED: usize = 1_000;

/// How the template of page images ends.
const IMAGE_QUERY: &str = "?as=image{&pages,width}";

/// The widths of images that completion offers.
const OFFERED_WIDTHS: [&str; 4] = ["500", "1000", "1500", "2000"];

/// The template for the texts of documents, made from a template of the source. `None` unless the resources of the
/// source's template may be documents: its media type is that of a document format, or it has the variable `bytes`, as
/// templates of files have.
pub(super) fn text_template(template: &Template) -> Option<Template> {
    if !may_give(template, |_| true) {
        return None;
    }
    let uri = UriTemplate::parse(&format!("{}{{?{}}}", base(&template.uri)?, KEYS.join(","))).ok()?;
    let mut text = Template::new(uri, format!("{} as text", template.name));
    text.title = template.title.as_ref().map(|title| format!("{title} as text"));
    text.mime = Some("text/markdown".to_owned());
    text.description = Some(
        "The text of a document as Markdown (`as=text`): PDF, Word, Excel, PowerPoint, OpenDocument, RTF, EPUB, HTML, \
         notebooks, mail, CSV. `pages` selects pages of a PDF or slides, `sheet` and `rows` parts of a spreadsheet, \
         `chapter` of a book, `cells` of a notebook, `mails` of a mailbox, `lines` of any text; `content=all` keeps the \
         navigation of HTML."
            .to_owned(),
    );
    Some(text)
}

/// The template of the page images for a template of the source; `None` unless its resources may be PDF files.
pub(super) fn image_template(template: &Template) -> Option<Template> {
    if !may_give(template, has_images) || !has_images(Format::Pdf) {
        return None;
    }
    let uri = UriTemplate::parse(&format!("{}{IMAGE_QUERY}", base(&template.uri)?)).ok()?;
    let mut image = Template::new(uri, format!("{} as images", template.name));
    image.title = template.title.as_ref().map(|title| format!("{title} as images"));
    image.mime = Some("image/png".to_owned());
    image.description = Some(
        "Pages of a PDF as PNG images, with their layout and pictures: the first page, or up to ten that `pages` \
         selects. `width` is that of the images in pixels."
            .to_owned(),
    );
    Some(image)
}

/// Whether resources of a template may be documents of a format: its media type says so, or it has the variable `bytes`,
/// as templates of files have.
fn may_give(template: &Template, is_wanted: impl Fn(Format) -> bool) -> bool {
    let format = template.mime.as_deref().and_then(Format::by_mime);
    format.is_some_and(is_wanted) || template.uri.variables().any(|variable| variable == "bytes")
}

/// The template without its `{?…}` expression; `None` if it has other parameters.
fn base(template: &UriTemplate) -> Option<&str> {
    let text = template.as_str();
    // Only an expression at the end can be replaced.
    match text.rfind("{?") {
        Some(start) if text.ends_with('}') && !text[start..text.len() - 1].contains('}') => {
            Some(&text[..start])
        }
        Some(_) => None,
        None => Some(text).filter(|text| !text.contains('?')),
    }
}

/// Whether a template is one of page images, by its form.
fn is_image_template(template: &UriTemplate) -> bool {
    template.as_str().ends_with(IMAGE_QUERY)
}

impl Documents {
    /// The source's template from which a template of texts or images was derived; `None` for other templates.
    pub(super) async fn inner_template(
        &self,
        partial: &CompletionRequest<'_>,
        context: &Context,
    ) -> Result<Option<UriTemplate>> {
        let derived = match partial.template.as_str() {
            _ if is_image_template(partial.template) => image_template,
            text if text.ends_with(&format!("{{?{}}}", KEYS.join(","))) => text_template,
            _ => return Ok(None),
        };
        let templates = self.source.templates(context).await?.templates;
        let is_origin =
            |template: &&Template| derived(template).is_some_and(|derived| derived.uri == *partial.template);
        Ok(templates.iter().find(is_origin).map(|template| template.uri.clone()))
    }

    /// Completes a variable of a template of texts or images.
    pub(super) async fn complete_own(
        &self,
        partial: CompletionRequest<'_>,
        inner: &UriTemplate,
        context: &Context,
    ) -> Result<Completion> {
        let CompletionRequest { variable, typed, limit, known, .. } = partial;
        let is_image = is_image_template(partial.template);
        if !(KEYS.contains(&variable) || is_image && variable == WIDTH) {
            let asked = CompletionRequest { template: inner, limit: MAX_FILTERED, ..partial };
            let Completion { mut values, more, .. } = self.source.complete(asked, context).await?;
            let is_last =
                inner.variables().filter(|name| !matches!(*name, "lines" | "bytes")).last() == Some(variable);
            if is_last {
                values.retain(|value| is_document(value, |format| !is_image || has_images(format)));
            }
            let total = (!more).then_some(values.len() as u64);
            let more = more || values.len() > limit;
            values.truncate(limit);
            return Ok(Completion { values, total, more, proof: None });
        }
        if variable == "as" {
            return Ok(Completion::of(["text", "original"], typed, limit));
        }
        if known.get("as").is_some_and(|form| form == "original") {
            return Ok(Completion::default());
        }
        let Some(document) = document(partial.template, known) else { return Ok(Completion::default()) };
        if variable == "content" {
            let is_html = Format::by_name(document.path()) == Some(Format::Html);
            return Ok(Completion::of(
                if is_html { &["main", "all"][..] } else { &[] }.iter().copied(),
                typed,
                limit,
            ));
        }
        if is_image {
            let numbers = async {
                let pages = self.pages_for_completion(&document, context).await.unwrap_or(0);
                (1..=pages).map(|number| number.to_string()).collect()
            };
            let values = match variable {
                WIDTH => OFFERED_WIDTHS.map(str::to_owned).to_vec(),
                _ => numbers.await,
            };
            return Ok(Completion::of(values, typed, limit));
        }
        let Some(text) = self.text_for_completion(&document, context).await? else {
            return Ok(Completion::default());
        };
        Ok(Completion::of(values(&text, variable, known), typed, limit))
    }

    /// The bytes of a document and its format; `None` if there is no such document.
    async fn document_for_completion(
        &self,
        document: &Uri,
        context: &Context,
    ) -> Option<(DocumentBytes, Format)> {
        // Completing the pages of a hidden document would reveal that it exists.
        if !context.sees(document) {
            return None;
        }
        let Ok(FoundContents::Document(found)) = self.find(document, context).await else { return None };
        let format = Format::of(document.path(), found.mime.as_deref(), &found.data)?;
        Some((found, format))
    }

    /// The number of pages of a PDF, from the image of its first page; `None` if it has none.
    async fn pages_for_completion(&self, document: &Uri, context: &Context) -> Option<usize> {
        let rendering = PageRendering { page: 1, width: DEFAULT_WIDTH };
        // Each keystroke gets here, so the document is read only if its digest is unknown.
        let known = self.known_document(document).filter(|_| context.sees(document));
        if let Some(first) = known.and_then(|known| self.reader.cached_image(known.digest, rendering)) {
            return Some(first.image.pages);
        }
        let (found, format) = self.document_for_completion(document, context).await?;
        if !has_images(format) {
            return None;
        }
        let first = self.reader.image(&found.data, rendering, context.client()).await.ok()?;
        let options = ExtractOptions { format, content: HtmlContent::default(), decoded: found.decoded };
        self.remember(document, &found, options, context).await;
        Some(first.image.pages)
    }

    /// The text of a document; `None` if there is no such document or it has no text.
    async fn text_for_completion(
        &self,
        document: &Uri,
        context: &Context,
    ) -> Result<Option<std::sync::Arc<ExtractedText>>> {
        let known = self.known_text(document, &DocumentQuery::default());
        if let Some((text, _)) = known.filter(|_| context.sees(document)) {
            return Ok(Some(text));
        }
        let Some((found, format)) = self.document_for_completion(document, context).await else {
            return Ok(None);
        };
        let options = ExtractOptions { format, content: HtmlContent::default(), decoded: found.decoded };
        let Ok(text) = self.reader.text(&found.data, options, context.client()).await else {
            return Ok(None);
        };
        self.remember(document, &found, options, context).await;
        Ok(Some(text))
    }
}

/// Whether a value can lead to a wanted document: it names one, an archive or a folder.
fn is_document(value: &str, is_wanted: impl Fn(Format) -> bool) -> bool {
    value.ends_with('/')
        || Format::by_name(value).is_some_and(is_wanted)
        || ArchiveFormat::by_name(value).is_some()
}

/// The URI of the document that the known values give.
fn document(template: &UriTemplate, known: &BTreeMap<String, String>) -> Option<Uri> {
    let is_own = |name: &str| KEYS.contains(&name) || is_image_template(template) && name == WIDTH;
    let variables: Variables = known.iter().filter(|(name, _)| !is_own(name)).collect();
    let uri = Uri::parse(&template.expand(&variables).ok()?).ok()?;
    Some(document_uri(&uri, ReadForm::Image).into_owned())
}

/// The number of rows that a completion of `rows` offers at once.
const OFFERED_ROWS: usize = 100;

/// The number of lines that a completion of `lines` offers at once.
const OFFERED_LINES: usize = 1_000;

/// The values of a variable that selects sections, rows or lines of a text.
fn values(text: &ExtractedText, variable: &str, known: &BTreeMap<String, String>) -> Vec<String> {
    let unit = SectionUnit::of(text.format);
    let numbers = (1..=text.sections.len()).map(|number| number.to_string());
    let names = || text.sections.iter().filter_map(|section| section.name.clone());
    match variable {
        "rows" => {
            let rows = match known.get("sheet").filter(|sheet| !sheet.is_empty()) {
                Some(sheet) => {
                    section_number(text, sheet).map(|number| row_count(&text.sections[number - 1]))
                }
                None => text.sections.iter().map(row_count).max(),
            };
            blocks(rows.unwrap_or(0), OFFERED_ROWS)
        }
        "lines" => match (unit, &text.sections[..]) {
            (SectionUnit::Whole, [only]) => blocks(only.text.lines().count(), OFFERED_LINES),
            // The number of lines depends on the selected sections.
            _ => Vec::new(),
        },
        variable if unit.parameter() != Some(variable) => Vec::new(),
        "sheet" => names().collect(),
        "chapter" => names().filter(|title| !title.is_empty()).chain(numbers).collect(),
        _ => numbers.collect(),
    }
}

/// Ranges of this length that cover the numbers from 1 to `count`; the last one may exceed `count`.
fn blocks(count: usize, length: usize) -> Vec<String> {
    let block = |block: usize| format!("{}-{}", block * length + 1, (block + 1) * length);
    (0..count.div_ceil(length)).map(block).collect()
}
