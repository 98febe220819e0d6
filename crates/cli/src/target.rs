//! The targets of the client commands (`ls`, `read`, `templates`, `complete`, `prompts`, `skills`, `watch`, `info`,
//! `bench`): any sources, or another MCP server. Also the JSON that these commands share, and their exit codes, which
//! `search`, `bundle`, `login` and `logout` share too.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use libris::{Annotations, Catalog, Content, ContentBody, Resource, Server, Template, View, catalog};
use serde_json::{Map, Value, json};

use crate::sources::{ConfiguredSource, OpenedConfig, SourceArguments};
use crate::terminal::{advice, columns, cut, report, shown};

/// The exit codes of the client commands, for their help texts.
pub(crate) const EXIT_CODES: &str = "Exit codes:
  0  success
  1  nothing was found (an empty result), or another failure
  2  wrong arguments
  3  the requested resource does not exist, or access to it is denied
  4  the target is unavailable";

/// How long a source may take to list its resources. Long, because no other client waits for this process.
pub(crate) const SOURCE_TIMEOUT: Duration = Duration::from_secs(300);

/// An open target.
pub(crate) struct OpenedTarget {
    pub(crate) view: View,
    pub(crate) catalog: Arc<Catalog>,
    sources: Vec<ConfiguredSource>,
}

impl OpenedTarget {
    /// Opens the sources. All must be available: a list that lacks some would look complete.
    pub(crate) fn open(arguments: &SourceArguments) -> Result<Self> {
        let OpenedConfig { sources, mut errors, .. } = arguments.open(&[])?;
        if let [_] = &errors[..]
            && let Some(only) = errors.pop()
        {
            drop(sources);
            return Err(
                Arc::into_inner(only).unwrap_or_else(|| anyhow::anyhow!("a source could not be opened"))
            );
        }
        if !errors.is_empty() {
            errors.iter().for_each(|error| report(error));
            return Err(advice(
                format!("{} of {} sources could not be opened", errors.len(), sources.len()),
                "correct them, and see what `libris check` reports",
            ));
        }
        Ok(Self::of(sources, catalog::Config { source_timeout: SOURCE_TIMEOUT, strict: true }))
    }

    /// Opens the sources that may be queried while a user types. Those that cannot be opened are left out.
    pub(crate) fn open_for_completion(arguments: &SourceArguments) -> Result<Self> {
        let config = catalog::Config { source_timeout: Duration::from_secs(1), strict: false };
        Ok(Self::of(arguments.open_for_completion()?, config))
    }

    fn of(sources: Vec<ConfiguredSource>, config: catalog::Config) -> Self {
        let opened = sources.iter().map(|opened| opened.source.clone()).collect();
        let catalog = Arc::new(Catalog::with_config(opened, config));
        let view = Server::new(catalog.clone(), libris::Config::default()).view_for(None);
        Self { view, catalog, sources }
    }

    /// A view in which this program converts the documents of other servers, too; `None` if no source is a server, or this
    /// program cannot convert documents.
    pub(crate) fn converting_view(&self) -> Option<View> {
        #[cfg(feature = "text-documents")]
        if self.sources.iter().any(ConfiguredSource::is_server) {
            let sources = self.sources.iter().map(ConfiguredSource::with_documents).collect();
            let config = catalog::Config { source_timeout: SOURCE_TIMEOUT, strict: true };
            let catalog = Arc::new(Catalog::with_config(sources, config));
            return Some(Server::new(catalog, libris::Config::default()).view_for(None));
        }
        None
    }

    /// Ends the connections to other servers.
    pub(crate) async fn close(self) {
        for source in self.sources {
            source.source.close().await;
        }
    }
}

/// Prints the error if a command failed, and returns its exit code.
pub(crate) fn exit_code(outcome: Result<ExitCode>) -> Result<ExitCode> {
    let error = match outcome {
        Ok(code) => return Ok(code),
        Err(error) => error,
    };
    let code = error.chain().find_map(|cause| match cause.downcast_ref::<libris::Error>()? {
        libris::Error::NotFound(_) | libris::Error::Missing { .. } | libris::Error::Denied(_) => Some(3),
        libris::Error::Unavailable(_) | libris::Error::Busy(_) => Some(4),
        _ => None,
    });
    report(&error);
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The width of lines: `COLUMNS` if it is set, otherwise the width of the terminal. `None` without either, or below 20.
pub(crate) fn width() -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal =
        || terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
    columns.or_else(terminal).filter(|width| *width >= 20)
}

/// Text of a source in one line, with escaped control characters.
pub(crate) fn one_line(text: &str) -> String {
    shown(&text.replace(['\n', '\t'], " "))
}

/// Text of a source in one line, clipped to `left` columns, with escaped control characters.
pub(crate) fn clipped(text: &str, left: Option<usize>) -> String {
    let line = one_line(text);
    match left {
        // So few columns are left that nothing could be recognised.
        Some(left) if left <= 3 && columns(&line) > left => String::new(),
        Some(left) => cut(&line, left),
        None => line,
    }
}

/// A JSON object in one line.
pub(crate) fn json_line(value: &Value) -> String {
    format!("{value}\n")
}

/// A resource, with the names that the protocol has for its fields.
pub(crate) fn resource_json(resource: &Resource) -> Value {
    let mut object = described(&resource.name, resource.title.as_deref(), resource.description.as_deref());
    object.insert("uri".to_owned(), resource.uri.as_str().into());
    insert(&mut object, "mimeType", resource.mime.as_deref().map(Value::from));
    insert(&mut object, "size", resource.size.map(Value::from));
    insert(&mut object, "annotations", annotations(&resource.annotations));
    insert(&mut object, "icons", (!resource.icons.is_empty()).then(|| json!(resource.icons)));
    insert(&mut object, "_meta", resource.meta.as_ref().map(|meta| json!(meta)));
    object.into()
}

/// A template, with the names that the protocol has for its fields.
pub(crate) fn template_json(template: &Template) -> Value {
    let mut object = described(&template.name, template.title.as_deref(), template.description.as_deref());
    object.insert("uriTemplate".to_owned(), template.uri.as_str().into());
    insert(&mut object, "mimeType", template.mime.as_deref().map(Value::from));
    insert(&mut object, "annotations", annotations(&template.annotations));
    insert(&mut object, "icons", (!template.icons.is_empty()).then(|| json!(template.icons)));
    insert(&mut object, "_meta", template.meta.as_ref().map(|meta| json!(meta)));
    object.into()
}

/// An item of the `contents` of a read, with the names that the protocol has for its fields.
pub(crate) fn content_json(content: &Content) -> Value {
    let mut object = Map::new();
    object.insert("uri".to_owned(), content.uri.as_str().into());
    insert(&mut object, "mimeType", content.mime.as_deref().map(Value::from));
    match &content.body {
        ContentBody::Text(text) => object.insert("text".to_owned(), text.as_str().into()),
        ContentBody::Bytes(bytes) => object.insert("blob".to_owned(), base64(bytes).into()),
    };
    insert(&mut object, "_meta", content.meta.as_ref().map(|meta| json!(meta)));
    object.into()
}

/// Parses a name and its value on the command line.
pub(crate) fn assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected a name and a value, such as `table=users`")?;
    Ok((name.to_owned(), value.to_owned()))
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

fn described(name: &str, title: Option<&str>, description: Option<&str>) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("name".to_owned(), name.into());
    insert(&mut object, "title", title.map(Value::from));
    insert(&mut object, "description", description.map(Value::from));
    object
}

fn annotations(annotations: &Annotations) -> Option<Value> {
    if annotations.is_empty() {
        return None;
    }
    let mut object = Map::new();
    insert(&mut object, "audience", (!annotations.audience.is_empty()).then(|| json!(annotations.audience)));
    insert(&mut object, "priority", annotations.priority.map(Value::from));
    insert(&mut object, "lastModified", annotations.last_modified.map(|time| time.to_string().into()));
    Some(object.into())
}

fn insert(object: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        object.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::clipped;

    #[test]
    fn lines_fit_and_carry_no_escapes() {
        assert_eq!(clipped("a\nb\u{1b}[2Jc", None), "a b\\u{1b}[2Jc");
        assert_eq!(clipped("abcdef", Some(6)), "abcdef");
        assert_eq!(clipped("abcdefg", Some(6)), "abcde…");
        assert_eq!(clipped("abcdefg", Some(2)), "");
    }
}
