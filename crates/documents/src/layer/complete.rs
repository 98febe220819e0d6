//! The templates of extracted texts (`…{?as,pages,…}`), and the completion of their variables.

use std::collections::BTreeMap;

use libris_core::uri_template::Variables;
use libris_core::{Completion, CompletionRequest, Context, Result, Template, Uri, UriTemplate};

use super::Documents;
use super::query::{DocumentQuery, KEYS};
use super::read::FoundContents;
use crate::extract::ExtractOptions;
use crate::{ArchiveFormat, ExtractedText, Format, SectionUnit};

use libris_core::Source as _;

/// How many values to request from the source for one completion, before those that are no documents are removed.
const MAX_FILTERED: usize = 1_000;

/// The template of the texts for a template of the source; `None` unless its resources may be documents: its media type
/// is that of a document format, or it has the variable `bytes`, as templates of files have.
pub(super) fn text_template(template: &Template) -> Option<Template> {
    let gives_documents = template.mime.as_deref().is_some_and(|mime| Format::by_mime(mime).is_some());
    let has_bytes = template.uri.variables().any(|variable| variable == "bytes");
    if !gives_documents && !has_bytes {
        return None;
    }
    let uri = UriTemplate::parse(&text_of(&template.uri)?).ok()?;
    let mut text = Template::new(uri, format!("{} as text", template.name));
    text.title = template.title.as_ref().map(|title| format!("{title} as text"));
    text.mime = Some("text/markdown".to_owned());
    text.description = Some(
        "The text of a document as Markdown (`as=text`): PDF, Word, Excel, PowerPoint, OpenDocument, RTF, EPUB, HTML, \
         notebooks, mail, CSV. `pages` selects pages of a PDF or slides, `sheet` and `rows` parts of a spreadsheet, \
         `chapter` of a book, `cells` of a notebook, `mails` of a mailbox; `content=all` keeps the navigation of HTML."
            .to_owned(),
    );
    Some(text)
}

/// The template with its `{?…}` expression replaced by the parameters of documents; `None` if it has other parameters.
fn text_of(template: &UriTemplate) -> Option<String> {
    let text = template.as_str();
    // Only an expression at the end can be replaced.
    let base = match text.rfind("{?") {
        Some(start) if text.ends_with('}') && !text[start..text.len() - 1].contains('}') => &text[..start],
        Some(_) => return None,
        None if text.contains('?') => return None,
        None => text,
    };
    Some(format!("{base}{{?{}}}", KEYS.join(",")))
}

impl Documents {
    /// The source's template from which a template of texts was derived; `None` for other templates.
    pub(super) async fn inner_template(
        &self,
        partial: &CompletionRequest<'_>,
        context: &Context,
    ) -> Result<Option<UriTemplate>> {
        if !partial.template.as_str().ends_with(&format!("{{?{}}}", KEYS.join(","))) {
            return Ok(None);
        }
        let templates = self.source.templates(context).await?.templates;
        let is_origin =
            |template: &&Template| text_template(template).is_some_and(|text| text.uri == *partial.template);
        Ok(templates.iter().find(is_origin).map(|template| template.uri.clone()))
    }

    /// Completes a variable of a template of texts.
    pub(super) async fn complete_own(
        &self,
        partial: CompletionRequest<'_>,
        inner: &UriTemplate,
        context: &Context,
    ) -> Result<Completion> {
        let CompletionRequest { variable, typed, limit, known, .. } = partial;
        if !KEYS.contains(&variable) {
            let asked = CompletionRequest { template: inner, limit: MAX_FILTERED, ..partial };
            let Completion { mut values, more, .. } = self.source.complete(asked, context).await?;
            let is_last =
                inner.variables().filter(|name| !matches!(*name, "lines" | "bytes")).last() == Some(variable);
            if is_last {
                values.retain(|value| is_document(value));
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
        let Some(text) = self.text_for_completion(&document, context).await? else {
            return Ok(Completion::default());
        };
        Ok(Completion::of(values(&text, variable, known), typed, limit))
    }

    /// The text of a document; `None` if there is no such document or it has no text.
    async fn text_for_completion(
        &self,
        document: &Uri,
        context: &Context,
    ) -> Result<Option<std::sync::Arc<ExtractedText>>> {
        // Completing the pages of a hidden document would reveal that it exists.
        if !context.sees(document) {
            return Ok(None);
        }
        let Ok(FoundContents::Document(found)) = self.find(document, context).await else { return Ok(None) };
        let Some(format) = Format::of(document.path(), found.mime.as_deref(), &found.data) else {
            return Ok(None);
        };
        let content = DocumentQuery::default().content.unwrap_or_default();
        let options = ExtractOptions { format, content, decoded: found.decoded };
        Ok(self.reader.text(&found.data, options, context.client()).await.ok())
    }
}

/// Whether a value can lead to a text: it names a document, an archive or a folder.
fn is_document(value: &str) -> bool {
    value.ends_with('/') || Format::by_name(value).is_some() || ArchiveFormat::by_name(value).is_some()
}

/// The URI of the document that the known values give.
fn document(template: &UriTemplate, known: &BTreeMap<String, String>) -> Option<Uri> {
    let variables: Variables = known.iter().filter(|(name, _)| !KEYS.contains(&name.as_str())).collect();
    Uri::parse(&template.expand(&variables).ok()?).ok()
}

/// The values of a variable that selects sections or rows of a text.
fn values(text: &ExtractedText, variable: &str, known: &BTreeMap<String, String>) -> Vec<String> {
    let unit = SectionUnit::of(text.format);
    let numbers = || (1..=text.sections.len()).map(|number| number.to_string()).collect();
    match variable {
        "rows" => {
            let sheet = known.get("sheet");
            let section = match sheet {
                Some(sheet) => text.sections.iter().find(|section| section.name.as_ref() == Some(sheet)),
                None => text.sections.first(),
            };
            let Some(section) = section.filter(|section| section.table_head.is_some()) else {
                return Vec::new();
            };
            let rows = section.text.lines().count().saturating_sub(section.table_head.unwrap_or(0));
            (0..rows.div_ceil(100))
                .map(|block| format!("{}-{}", block * 100 + 1, (block + 1) * 100))
                .collect()
        }
        variable if unit.parameter() != Some(variable) => Vec::new(),
        "sheet" => text.sections.iter().filter_map(|section| section.name.clone()).collect(),
        _ => numbers(),
    }
}
