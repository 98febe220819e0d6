//! Transcripts of what a client gets from a source, for snapshots that people read.

#![allow(dead_code, reason = "each request is made by some transcripts")]

use libris_core::{CompletionRequest, ContentBody, Context, Error, Meta, Source, Uri, UriTemplate};

/// The longest line of a transcript, in characters.
const MAX_LINE_CHARACTERS: usize = 200;

/// A transcript of requests and their results.
pub(crate) struct Transcript<'a> {
    source: &'a dyn Source,
    /// Whether it joins other sources, and asks them for hints itself.
    is_catalog: bool,
    text: String,
}

impl<'a> Transcript<'a> {
    pub(crate) fn of(source: &'a dyn Source) -> Self {
        Self { source, is_catalog: false, text: String::new() }
    }

    /// The transcript of a catalog, or of a caller's view of one.
    pub(crate) fn of_catalog(catalog: &'a dyn Source) -> Self {
        Self { is_catalog: true, ..Self::of(catalog) }
    }

    pub(crate) fn text(self) -> String {
        self.text
    }

    fn request(&mut self, request: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text += &format!("> {request}\n");
    }

    fn lines(&mut self, indent: &str, text: &str) {
        for line in text.lines() {
            let shown: String = line.chars().take(MAX_LINE_CHARACTERS).collect();
            let rest = if shown.len() < line.len() { "…" } else { "" };
            self.text += format!("{indent}{shown}{rest}").trim_end();
            self.text.push('\n');
        }
    }

    fn meta(&mut self, meta: &Option<Meta>) {
        if let Some(meta) = meta {
            self.lines("  ", &format!("_meta {}", serde_json::to_string(meta).unwrap()));
        }
    }

    fn error(&mut self, error: &Error) {
        // As the client gets it.
        let message = match error {
            Error::NotFound(_) | Error::Denied(_) => "resource not found".to_owned(),
            Error::Missing { hint, .. } => format!("resource not found: {hint}"),
            error => error.to_string(),
        };
        self.lines("  ", &format!("error: {message}"));
    }

    fn entry(&mut self, uri: &str, name: &str, title: &Option<String>, mime: &Option<String>) {
        let shown = match title {
            Some(title) => format!("{title} ({name})"),
            None => name.to_owned(),
        };
        let mime = mime.as_ref().map(|mime| format!(", {mime}")).unwrap_or_default();
        self.lines("  ", uri);
        self.lines("      ", &format!("{shown}{mime}"));
    }

    pub(crate) async fn list(&mut self) {
        self.request("resources/list");
        match self.source.list(None, 100, &Context::default()).await {
            Err(error) => self.error(&error),
            Ok(page) => {
                for resource in page.resources {
                    self.entry(resource.uri.as_str(), &resource.name, &resource.title, &resource.mime);
                    self.lines("      ", resource.description.as_deref().unwrap_or_default());
                }
                for unavailable in page.unavailable {
                    let listed = if unavailable.stale { "listed as last known" } else { "not listed" };
                    self.lines("  ", &format!("unavailable: {}, {listed}", unavailable.source));
                }
            }
        }
    }

    pub(crate) async fn templates(&mut self) {
        self.request("resources/templates/list");
        let mut templates = self.source.templates(&Context::default()).await.unwrap().templates;
        templates.sort_by(|one, other| one.uri.as_str().cmp(other.uri.as_str()));
        for template in templates {
            self.entry(template.uri.as_str(), &template.name, &template.title, &template.mime);
            self.lines("      ", template.description.as_deref().unwrap_or_default());
        }
    }

    pub(crate) async fn complete(&mut self, template: &str, variable: &str, typed: &str) {
        self.request(&format!("completion/complete {variable}={typed} of {template}"));
        let (template, known) = (UriTemplate::parse(template).unwrap(), Default::default());
        let asked = CompletionRequest { template: &template, variable, typed, known: &known, limit: 100 };
        match self.source.complete(asked, &Context::default()).await {
            Err(error) => self.error(&error),
            Ok(completion) => self.lines("  ", &completion.values.join(", ")),
        }
    }

    pub(crate) async fn read(&mut self, uri: &str) {
        self.request(&format!("resources/read {uri}"));
        let uri = Uri::parse(uri).unwrap();
        let read = self.source.read(&uri, &Context::default()).await;
        if self.source.covers(&uri).is_none() && !self.is_catalog {
            let Err(error) = &read else { panic!("{uri} is not covered") };
            let hint = match error {
                Error::Missing { hint, .. } => Some(hint.clone()),
                _ => None,
            };
            assert_eq!(self.source.hint(&uri), hint, "a catalog gives the same hint for {uri}");
        }
        match read {
            Err(error) => self.error(&error),
            Ok(contents) => {
                for part in contents.parts {
                    self.lines("  ", part.mime.as_deref().unwrap_or("no media type"));
                    match &part.body {
                        ContentBody::Text(text) => self.lines("    ", text),
                        ContentBody::Bytes(bytes) => self.lines("    ", &format!("{} bytes", bytes.len())),
                    }
                    self.meta(&part.meta);
                }
            }
        }
    }
}
