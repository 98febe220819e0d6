//! Parses an OpenAPI document and resolves its references.

use std::collections::BTreeMap;

use libris_core::{Error, Result, Uri};
use serde_json::Value;
use url::Url;

use super::operation::OpenApiOperation;
use crate::http::list;

/// The maximum number of references in a chain, and the deepest nesting of schema wrappers.
const MAX_DEPTH: usize = 16;

/// An OpenAPI document.
pub(super) struct OpenApiDocument(Value);

impl OpenApiDocument {
    /// Parses a document in JSON or YAML. Fails unless its version is OpenAPI 3.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let wrong = |cause: String| Error::invalid(format!("the OpenAPI document cannot be read: {cause}"));
        let value: Value = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|cause| wrong(cause.to_string()))?
        } else {
            let options = serde_saphyr::options! {
                // Large APIs have large documents. The limits on aliases keep their defaults.
                budget: serde_saphyr::budget! { max_events: 4_000_000, max_nodes: 2_000_000 },
                // YAML 1.1 parses `NO` (Norway) and `y` (a coordinate) as booleans.
                strict_booleans: true,
                with_snippet: false,
            };
            serde_saphyr::from_str_with_options(text, options).map_err(|cause| wrong(cause.to_string()))?
        };
        match value.get("openapi").and_then(Value::as_str) {
            Some(version) if version.starts_with("3.") => Ok(Self(value)),
            Some(version) => Err(wrong(format!("it is of OpenAPI {version}; hint: convert it to OpenAPI 3"))),
            None if value.get("swagger").is_some() => {
                Err(wrong("it is of Swagger 2; hint: convert it to OpenAPI 3".into()))
            }
            None => Err(wrong("it has no key `openapi`; hint: name an OpenAPI document of version 3".into())),
        }
    }

    /// A URI scheme that is made from the title.
    pub(super) fn name(&self) -> String {
        let title = self.0.pointer("/info/title").and_then(Value::as_str).unwrap_or_default();
        let mut name = String::new();
        for letter in title.chars() {
            if letter.is_ascii_alphanumeric() {
                name.push(letter.to_ascii_lowercase());
            } else if !name.is_empty() && !name.ends_with('-') {
                name.push('-');
            }
        }
        let name = name.trim_matches('-');
        match name.chars().next() {
            Some('a'..='z') => name.to_owned(),
            Some(_) => format!("api-{name}"),
            None => "api".to_owned(),
        }
    }

    /// The URL of the first server.
    pub(super) fn server(&self, document_url: Option<&String>) -> Result<String> {
        location(&self.0["servers"][0], document_url).map_err(Error::invalid)
    }

    /// The GET operations.
    pub(super) fn operations(&self) -> Vec<OpenApiOperation<'_>> {
        let paths = self.0["paths"].as_object().into_iter().flatten();
        let mut operations = Vec::new();
        for (path, item) in paths {
            let Some(item) = self.resolved(item) else { continue };
            let Some(get) = item.get("get").filter(|get| get.is_object()) else { continue };
            let mut parameters = BTreeMap::new();
            // Parameters of the operation override those of the path item.
            for of in [item, get] {
                for parameter in of["parameters"].as_array().into_iter().flatten() {
                    let Some(parameter) = self.resolved(parameter) else { continue };
                    match (parameter["name"].as_str(), parameter["in"].as_str()) {
                        (Some(name), Some(location)) => _ = parameters.insert((location, name), parameter),
                        _ => tracing::warn!(path, "a parameter is left out: its `name` or `in` is not text"),
                    }
                }
            }
            // The servers of the operation override those of the path item.
            let server = [get, item].into_iter().find_map(|of| of["servers"].get(0));
            operations.push(OpenApiOperation { document: self, path, get, server, parameters });
        }
        operations
    }

    /// Unwraps a schema: follows references, and an `allOf`, `anyOf` or `oneOf` with one element. An element of
    /// the type `null`, which declares an optional value, does not count.
    pub(super) fn schema<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let mut schema = schema;
        for _ in 0..MAX_DEPTH {
            let Some(found) = self.resolved(schema) else { return &Value::Null };
            schema = found;
            let says = |key: &str| schema.get(key).is_some();
            let wrapped = ["allOf", "anyOf", "oneOf"].iter().find_map(|key| only(&schema[*key]));
            match wrapped.filter(|_| !["enum", "const", "items", "properties"].into_iter().any(says)) {
                Some(wrapped) => schema = wrapped,
                None => return schema,
            }
        }
        &Value::Null
    }

    /// Follows the references of a value within the document; `None` if one cannot be resolved.
    pub(super) fn resolved<'a>(&'a self, value: &'a Value) -> Option<&'a Value> {
        let mut value = value;
        for _ in 0..MAX_DEPTH {
            let Some(reference) = value.get("$ref").and_then(Value::as_str) else { return Some(value) };
            let Some(pointer) = reference.strip_prefix('#') else {
                tracing::warn!(reference, "a reference out of the OpenAPI document is not followed");
                return None;
            };
            let pointer = String::from_utf8(Uri::decode_segment(pointer)?).ok()?;
            value = self.0.pointer(&pointer)?;
        }
        tracing::warn!("references in the OpenAPI document lead too far");
        None
    }
}

/// The absolute URL of a server, with its variables replaced by their defaults. A relative server URL is resolved
/// against `document_url`.
pub(super) fn location(server: &Value, document_url: Option<&String>) -> Result<String, String> {
    let mut url = server["url"].as_str().unwrap_or("/").to_owned();
    for (name, variable) in server["variables"].as_object().into_iter().flatten() {
        // YAML parses a port or a version as a number.
        if let Some(default) = list::text(variable, "/default") {
            url = url.replace(&format!("{{{name}}}"), &default);
        }
    }
    if url.contains('{') {
        return Err(format!(
            "the server `{url}` of the OpenAPI document has a variable without a default: set `base`"
        ));
    }
    let url = match url.starts_with("http://") || url.starts_with("https://") {
        true => Some(url),
        false => {
            let from = document_url.and_then(|url| Url::parse(url).ok());
            from.and_then(|from| from.join(&url).ok()).map(String::from)
        }
    };
    let url = url.ok_or("the OpenAPI document does not say where its server is: set `base`")?;
    Ok(url.trim_end_matches('/').to_owned())
}

/// The schema whose `type` is not `null`, if there is exactly one.
fn only(schemas: &Value) -> Option<&Value> {
    let mut schemas = schemas.as_array()?.iter().filter(|schema| schema["type"] != "null");
    schemas.next().filter(|_| schemas.next().is_none())
}
