//! The fields of the index, and the conversion of a resource to documents.
//!
//! A resource becomes one *head* document with its metadata, followed by a document for each section of its text. All
//! documents of a resource are added in one batch, so that they are consecutive and in order in one segment.

use libris_core::{Audience, Resource, Uri};
use tantivy::TantivyDocument;
use tantivy::schema::{FAST, Field, IndexRecordOption, STORED, Schema, TextFieldIndexing, TextOptions};

use crate::analyser::{ANALYSER, marked};
use crate::definitions;
use crate::embedding::{self, EmbeddingModel, SIGN_WORDS};
use crate::index::uri_hash;
use crate::language::Language;
use crate::sections::{self, TextSection};
use crate::simhash;

/// The version of the index format, which is part of the name of the index folder. Increase it whenever the fields, the
/// tokens or the indexed texts change.
pub const FORMAT: u32 = 5;

/// The longest text that is indexed per resource, in bytes. The rest is not searchable.
pub const MAX_TEXT: usize = 4 << 20;

/// The names of the columns of [`Fields::signs`].
pub(crate) const SIGN_COLUMNS: [&str; SIGN_WORDS] = ["signs0", "signs1", "signs2", "signs3"];

/// A resource to index.
#[derive(Clone, Copy, Debug)]
pub struct IndexedResource<'a> {
    /// The metadata.
    pub resource: &'a Resource,
    /// The name of the source of the resource.
    pub source: &'a str,
    /// The note in the configuration (`search.notes`) that applies to the resource.
    pub note: Option<&'a str>,
    /// The text of the resource; `None` for binary contents, which are found only by their metadata.
    pub text: Option<&'a str>,
    /// The URI of the text, if it is not that of the resource: the text extracted from a document.
    pub text_uri: Option<&'a str>,
    /// A fingerprint of the indexed version, by which changes are detected.
    pub stamp: u64,
}

/// The fields of the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    /// The URI. Every document of the resource has it, so that one term deletes all of them.
    pub(crate) uri: Field,
    pub(crate) title: Field,
    pub(crate) path: Field,
    pub(crate) description: Field,
    /// The heading of a section.
    pub(crate) heading: Field,
    /// The headings above the heading of a section.
    pub(crate) outline: Field,
    pub(crate) definition: Field,
    pub(crate) body: Field,
    pub(crate) source: Field,
    pub(crate) mime: Field,
    pub(crate) audience: Field,
    /// The number of the section; 0 in a head document.
    pub(crate) section: Field,
    pub(crate) stamp: Field,
    /// The modification time, in seconds since the epoch.
    pub(crate) modified: Field,
    pub(crate) priority: Field,
    pub(crate) simhash: Field,
    /// The index of the language in [`Language::ALL`].
    pub(crate) language: Field,
    /// The hash of the URI, which orders resources with equal scores.
    pub(crate) order: Field,
    /// The [signs](embedding::signs) of the vector of a section; 0 without a vector. A document has them if the index has
    /// an embedding model.
    pub(crate) signs: [Field; SIGN_WORDS],
    /// The encoded [`StoredMetadata`], stored in the head document.
    pub(crate) metadata: Field,
    /// The first and last line, the language and the heading of a section, separated by spaces; stored.
    pub(crate) place: Field,
    /// The text of a section; stored.
    pub(crate) text: Field,
}

impl Fields {
    pub(crate) fn schema() -> (Schema, Self) {
        let mut schema = Schema::builder();
        let words = |option: IndexRecordOption| {
            let words = TextFieldIndexing::default()
                .set_tokenizer(ANALYSER)
                .set_index_option(option)
                .set_fieldnorms(true);
            TextOptions::default().set_indexing_options(words)
        };
        // How often a word is in a name or a heading says little about the text. Without these frequencies, tantivy computes
        // less for each of the many terms that only one resource has, such as its file name.
        let (frequencies, terms) = (words(IndexRecordOption::WithFreqs), words(IndexRecordOption::Basic));
        let names = TextOptions::default().set_indexing_options(
            TextFieldIndexing::default()
                .set_tokenizer("raw")
                .set_index_option(IndexRecordOption::Basic)
                .set_fieldnorms(false),
        );
        let fields = Self {
            uri: schema.add_text_field("uri", names.clone()),
            title: schema.add_text_field("title", terms.clone()),
            path: schema.add_text_field("path", terms.clone()),
            description: schema.add_text_field("description", terms.clone()),
            heading: schema.add_text_field("heading", terms.clone()),
            outline: schema.add_text_field("outline", terms),
            definition: schema.add_text_field("definition", frequencies.clone()),
            body: schema.add_text_field("body", frequencies),
            source: schema.add_text_field("source", names.clone()),
            mime: schema.add_text_field("mime", names.clone()),
            audience: schema.add_text_field("audience", names),
            section: schema.add_u64_field("section", FAST),
            stamp: schema.add_u64_field("stamp", FAST),
            modified: schema.add_i64_field("modified", FAST),
            priority: schema.add_u64_field("priority", FAST),
            simhash: schema.add_u64_field("simhash", FAST),
            language: schema.add_u64_field("language", FAST),
            order: schema.add_u64_field("order", FAST),
            signs: SIGN_COLUMNS.map(|name| schema.add_u64_field(name, FAST)),
            metadata: schema.add_text_field("metadata", STORED),
            place: schema.add_text_field("place", STORED),
            text: schema.add_text_field("text", STORED),
        };
        (schema.build(), fields)
    }

    /// The documents of a resource, the head first.
    pub(crate) fn documents(
        &self,
        indexed: &IndexedResource<'_>,
        model: Option<&EmbeddingModel>,
    ) -> Vec<TantivyDocument> {
        let text = indexed.text.map(|text| &text[..text.floor_char_boundary(MAX_TEXT)]);
        let sample = text.or(indexed.resource.description.as_deref()).unwrap_or_default();
        let language = Language::detect(sample).unwrap_or(Language::English);
        let (uri, mime) = (&indexed.resource.uri, indexed.resource.mime.as_deref());
        let (divided, defined) = match text {
            Some(text) => (sections::divide(text, mime, uri.path()), definitions::of_text(text)),
            None => Default::default(),
        };
        let title = sections::title(&divided, mime, uri.path());
        let mut documents = vec![self.head(indexed, text, title, language)];
        let numbered = divided.iter().enumerate();
        documents.extend(numbered.map(|(at, section)| {
            self.section(uri, at + 1, section, text.unwrap_or_default(), &defined, language)
        }));
        if let Some(model) = model {
            // A column with a value for each document is read fastest, so the head has one too.
            let sections = divided.iter().map(|section| {
                let text = &text.unwrap_or_default()[section.range.clone()];
                model.vector(&embedding::section_text(&section.heading, text))
            });
            for (document, vector) in documents.iter_mut().zip(std::iter::once(None).chain(sections)) {
                let signs = vector.map_or([0; SIGN_WORDS], |vector| embedding::signs(&vector));
                self.signs.iter().zip(signs).for_each(|(field, signs)| document.add_u64(*field, signs));
            }
        }
        documents
    }

    /// The bytes of the texts that [`Analyser`](crate::analyser::Analyser) tokenises in these documents.
    pub(crate) fn analysed_bytes(&self, documents: &[TantivyDocument]) -> usize {
        use tantivy::schema::Value as _;
        let analysed =
            [self.title, self.path, self.description, self.heading, self.outline, self.definition, self.body];
        let values = documents.iter().flat_map(TantivyDocument::field_values);
        let texts =
            values.filter(|(field, _)| analysed.contains(field)).filter_map(|(_, value)| value.as_str());
        texts.map(str::len).sum()
    }

    /// The head document. `first_heading` is used as the title of a resource that has no title, or whose title is its
    /// name.
    fn head(
        &self,
        indexed: &IndexedResource<'_>,
        text: Option<&str>,
        first_heading: &str,
        language: Language,
    ) -> TantivyDocument {
        let IndexedResource { resource, source, note, stamp, .. } = *indexed;
        let mut document = TantivyDocument::new();
        document.add_text(self.uri, resource.uri.as_str());
        let title =
            resource.title.as_deref().filter(|title| *title != resource.name).unwrap_or(first_heading);
        document.add_text(self.title, marked(language, [title, &resource.name]));
        document.add_text(self.path, marked(Language::English, [&*words_of_uri(&resource.uri)]));
        let description = resource.description.as_deref().unwrap_or_default();
        document.add_text(self.description, marked(language, [description, note.unwrap_or_default()]));
        document.add_text(self.source, source);
        if let Some(mime) = &resource.mime {
            document.add_text(self.mime, mime);
        }
        for audience in &resource.annotations.audience {
            document.add_text(self.audience, audience_name(*audience));
        }
        document.add_u64(self.section, 0);
        document.add_u64(self.stamp, stamp);
        if let Some(modified) = resource.annotations.last_modified {
            document.add_i64(self.modified, modified.as_second());
        }
        if let Some(priority) = resource.annotations.priority {
            document.add_u64(self.priority, (priority.clamp(0.0, 1.0) * 1000.0) as u64);
        }
        document.add_u64(self.simhash, text.map_or(0, simhash::of));
        document.add_u64(self.language, language as u64);
        document.add_u64(self.order, uri_hash(resource.uri.as_str()));
        document.add_text(self.metadata, StoredMetadata::of(indexed).encode());
        document
    }

    fn section(
        &self,
        uri: &Uri,
        at: usize,
        section: &TextSection,
        text: &str,
        defined: &[(usize, String)],
        language: Language,
    ) -> TantivyDocument {
        let start = defined.partition_point(|(offset, _)| *offset < section.range.start);
        let end = defined.partition_point(|(offset, _)| *offset < section.range.end);
        let text = &text[section.range.clone()];
        let mut document = TantivyDocument::new();
        document.add_text(self.uri, uri.as_str());
        document.add_u64(self.section, at as u64);
        let (outline, heading) =
            section.heading.rsplit_once(sections::ABOVE).unwrap_or(("", &section.heading));
        if !heading.is_empty() {
            document.add_text(self.heading, marked(language, [heading]));
        }
        if !outline.is_empty() {
            document.add_text(self.outline, marked(language, [outline]));
        }
        if start < end {
            let names = defined[start..end].iter().map(|(_, name)| &**name);
            document.add_text(self.definition, marked(Language::English, names));
        }
        document.add_text(self.body, marked(language, [text]));
        let TextSection { heading, first_line, last_line, .. } = section;
        let mark = language as u8;
        document.add_text(self.place, format!("{first_line} {last_line} {mark} {heading}"));
        document.add_text(self.text, text);
        document
    }
}

/// The text of a URI after `://`, or the whole URI if it has no `://`, with `%20` as a space.
fn words_of_uri(uri: &Uri) -> String {
    let text = uri.as_str().split_once("://").map_or(uri.as_str(), |(_, rest)| rest);
    text.replace("%20", " ")
}

pub(crate) fn audience_name(audience: Audience) -> &'static str {
    match audience {
        Audience::User => "user",
        Audience::Assistant => "assistant",
    }
}

/// The metadata that a hit shows, stored in the index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredMetadata {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) mime: String,
    pub(crate) source: String,
    pub(crate) note: String,
    /// The URI of the indexed text; empty if it is `uri`.
    pub(crate) text_uri: String,
}

/// Separates the parts of stored metadata. In the parts, it is replaced by a space.
const SEPARATOR: char = '\u{1f}';

impl StoredMetadata {
    fn of(indexed: &IndexedResource<'_>) -> Self {
        let IndexedResource { resource, source, note, text_uri, .. } = *indexed;
        let text = |text: Option<&str>| text.unwrap_or_default().replace(SEPARATOR, " ");
        Self {
            uri: text(Some(resource.uri.as_str())),
            name: text(Some(&resource.name)),
            title: text(resource.title.as_deref()),
            description: text(resource.description.as_deref()),
            mime: text(resource.mime.as_deref()),
            source: text(Some(source)),
            note: text(note),
            text_uri: text(text_uri),
        }
    }

    fn encode(&self) -> String {
        let Self { uri, name, title, description, mime, source, note, text_uri } = self;
        let parts: [&str; 8] = [uri, name, title, description, mime, source, note, text_uri];
        parts.join(&SEPARATOR.to_string())
    }

    pub(crate) fn decode(text: &str) -> Option<Self> {
        let mut parts = text.split(SEPARATOR).map(str::to_owned);
        let mut next = || parts.next();
        Some(Self {
            uri: next()?,
            name: next()?,
            title: next()?,
            description: next()?,
            mime: next()?,
            source: next()?,
            note: next()?,
            text_uri: next()?,
        })
    }
}
