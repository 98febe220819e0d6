//! Converts a GET operation of an OpenAPI document to a resource or a template.

use std::collections::{BTreeMap, BTreeSet};

use libris_core::{Uri, UriTemplate};
use serde_json::Value;

use super::document::{self, OpenApiDocument};
use super::{Config, UriPrefix};
use crate::http::config::{Choice, Choices, EndpointConfig};
use crate::http::list;
use crate::wrong_uri;

/// The longest name, title or description, in characters.
const MAX_TEXT_CHARACTERS: usize = 1_000;

/// The longest description of a parameter, in characters.
const MAX_PARAMETER_CHARACTERS: usize = 300;

/// The maximum number of values of a parameter that its description names.
const MAX_NAMED_VALUES: usize = 20;

/// A GET operation.
pub(super) struct OpenApiOperation<'a> {
    pub(super) document: &'a OpenApiDocument,
    pub(super) path: &'a str,
    pub(super) get: &'a Value,
    /// The server of the operation, if it overrides that of the document.
    pub(super) server: Option<&'a Value>,
    /// The parameters by their location (`in`) and name.
    pub(super) parameters: BTreeMap<(&'a str, &'a str), &'a Value>,
}

/// The entries of an operation: a resource if the operation has no required parameter, and a template if it has any
/// parameter.
pub(super) struct OperationResources {
    pub(super) resource: Option<EndpointConfig<Uri>>,
    pub(super) template: Option<EndpointConfig<UriTemplate>>,
}

/// A parameter that callers provide.
struct OperationParameter {
    /// The variable name in the template of the resource; may differ from the name in the API (`upstream`).
    name: String,
    upstream: String,
    required: bool,
    list: bool,
    choices: Vec<Choice>,
    /// Whether only the values in `choices` are allowed.
    is_closed: bool,
    description: Option<String>,
    default: Option<String>,
}

impl<'a> OpenApiOperation<'a> {
    /// The `operationId`.
    pub(super) fn id(&self) -> Option<&'a str> {
        self.get["operationId"].as_str()
    }

    pub(super) fn tags(&self) -> impl Iterator<Item = &'a str> {
        self.get["tags"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    /// The resource and template of the operation; `None` if it requires parameters that callers cannot provide, or
    /// its URL cannot be built.
    pub(super) fn entries(&self, prefix: &UriPrefix, config: &Config) -> Option<OperationResources> {
        let skipped = |why: &str| {
            tracing::warn!(path = self.path, "an operation of the OpenAPI document is left out: {why}");
            None::<OperationResources>
        };
        let server = self.server.filter(|_| config.base.is_none());
        let server = match server.map(|server| document::location(server, config.remote())).transpose() {
            Ok(server) => server.unwrap_or_default(),
            Err(why) => return skipped(&why),
        };
        let mut in_path = Vec::new();
        let mut in_query = Vec::new();
        for (&(location, name), definition) in &self.parameters {
            let parameter = self.parameter(name, definition);
            match location {
                "path" => in_path.push(parameter),
                "query" if self.is_plain(definition) && !config.query.contains_key(name) => {
                    in_query.push(parameter);
                }
                "query" if config.query.contains_key(name) => {}
                "header" if config.headers.keys().any(|key| key.eq_ignore_ascii_case(name)) => {}
                _ if parameter.required => return skipped("it needs a parameter that callers cannot give"),
                _ => {}
            }
        }
        let Some(path) = self.path_template(&mut in_path) else {
            return skipped("its path cannot be a part of a URI");
        };
        let path_in_url = make_names_unique(&mut in_path, &mut in_query, &path);
        let queried = |name: fn(&OperationParameter) -> &str| match &*in_query {
            [] => String::new(),
            all => {
                let star = |parameter: &OperationParameter| if parameter.list { "*" } else { "" };
                let names: Vec<_> =
                    all.iter().map(|parameter| format!("{}{}", name(parameter), star(parameter))).collect();
                format!("{{?{}}}", names.join(","))
            }
        };
        let query = queried(|parameter| &parameter.name);
        let uri_text = prefix.uri(&path);
        let plain = in_path.is_empty() && in_query.iter().all(|parameter| !parameter.required);
        let resource = match plain {
            true => match Uri::parse(&uri_text) {
                Ok(uri) => Some(self.entry(uri, server.clone() + &path)),
                Err(_) => return skipped("its path cannot be a part of a URI"),
            },
            false => None,
        };
        let template = match plain && in_query.is_empty() {
            true => None,
            false => match UriTemplate::parse(&(uri_text + &query)) {
                Ok(uri) => {
                    let url = server + &path_in_url + &queried(|parameter| &parameter.upstream);
                    let mut entry = self.entry(uri, url);
                    let parameters: Vec<_> = in_path.into_iter().chain(in_query).collect();
                    entry.description = described(entry.description, &parameters);
                    for parameter in parameters {
                        if parameter.required {
                            entry.required.push(parameter.name.clone());
                        }
                        if parameter.is_closed {
                            let values = parameter.choices.iter().map(|choice| choice.value().to_owned());
                            entry.allowed.insert(parameter.name.clone(), values.collect());
                        }
                        if !parameter.choices.is_empty() {
                            let choices = Choices::Fixed(parameter.choices);
                            entry.complete.insert(parameter.name.clone(), choices);
                        }
                        if parameter.upstream != parameter.name {
                            entry.renamed.insert(parameter.name, parameter.upstream);
                        }
                    }
                    Some(entry)
                }
                Err(_) => return skipped("its path cannot be a part of a URI template"),
            },
        };
        Some(OperationResources { resource, template })
    }

    fn entry<U>(&self, uri: U, url: String) -> EndpointConfig<U> {
        let text = |key: &str| {
            self.get[key].as_str().map(|text| text.chars().take(MAX_TEXT_CHARACTERS).collect::<String>())
        };
        EndpointConfig {
            name: Some(text("operationId").unwrap_or_else(|| self.path.to_owned())),
            title: text("summary").or_else(|| self.id().map(spaced)),
            description: text("description"),
            mime: self.mime(),
            ..EndpointConfig::new(uri, url)
        }
    }

    /// The media type of a successful response.
    fn mime(&self) -> Option<String> {
        let responses = self.get["responses"].as_object()?;
        let good = ["200", "2XX", "2xx", "default"].iter().find_map(|status| responses.get(*status))?;
        let content = self.document.resolved(good)?["content"].as_object()?;
        let named = || content.keys().filter(|mime| mime.contains('/') && !mime.contains('*'));
        let json = named().find(|mime| mime.split(';').next() == Some("application/json"));
        json.or_else(|| named().next()).cloned()
    }

    /// Whether a query parameter can be sent as `name=value`: its style is `form`, it has no `content`, and it is not
    /// an object. The items of a list are not checked.
    fn is_plain(&self, parameter: &Value) -> bool {
        let styled = parameter["style"].as_str().is_none_or(|style| style == "form");
        let schema = self.document.schema(&parameter["schema"]);
        styled && parameter.get("content").is_none() && !is_of_type(schema, "object")
    }

    /// Converts the definition of a parameter.
    fn parameter(&self, name: &str, definition: &Value) -> OperationParameter {
        let schema = self.document.schema(&definition["schema"]);
        let is_list = is_of_type(schema, "array");
        let of = if is_list { self.document.schema(&schema["items"]) } else { schema };
        let mut is_closed = false;
        let choices = match &of["enum"] {
            Value::Array(values) => {
                // YAML parses `010` as a number, and the original text is lost.
                let is_lossy = is_of_type(of, "string") && values.iter().any(Value::is_number);
                if is_lossy {
                    tracing::warn!(
                        path = self.path,
                        name,
                        "values that should be text are not quoted; hint: put them in quotation marks in the OpenAPI document"
                    );
                }
                is_closed = !is_lossy;
                values.iter().filter_map(choice).collect::<Vec<_>>()
            }
            _ if is_of_type(of, "boolean") => ["true", "false"].map(|text| Choice::Plain(text.into())).into(),
            _ => of.get("const").and_then(choice).into_iter().collect(),
        };
        OperationParameter {
            name: variable(name),
            upstream: escaped_variable(name),
            required: definition["required"].as_bool().unwrap_or(false) || definition["in"] == "path",
            list: is_list && definition["in"] == "query" && definition["explode"].as_bool().unwrap_or(true),
            // With `explode: false` a list is sent as one value, such as `a,b`, which cannot be compared with
            // `choices`.
            is_closed: is_closed
                && !choices.is_empty()
                && (!is_list || definition["explode"].as_bool().unwrap_or(true)),
            choices,
            description: definition["description"]
                .as_str()
                .or_else(|| schema["description"].as_str())
                .map(one_line),
            default: list::text(schema, "/default"),
        }
    }

    /// Converts the path to a template with valid variable names. Removes from `parameters` those that the path does
    /// not contain, and adds those of the path that are not declared. `None` if the path does not begin with `/`, or a
    /// brace is not closed.
    fn path_template(&self, parameters: &mut Vec<OperationParameter>) -> Option<String> {
        let mut rest = self.path;
        let mut path = String::new();
        // The variable names, by the parameter names in the document.
        let mut named = BTreeMap::new();
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}')?;
            let upstream = escaped_variable(name);
            if !named.contains_key(&upstream) {
                let mut name = variable(name);
                while named.values().any(|other| *other == name) {
                    name.push('_');
                }
                named.insert(upstream.clone(), name);
            }
            path.push_str(before);
            path.push_str(&format!("{{{}}}", named[&upstream]));
            rest = after;
        }
        path.push_str(rest);
        parameters.retain(|parameter| named.contains_key(&parameter.upstream));
        for (upstream, name) in named {
            match parameters.iter_mut().find(|parameter| parameter.upstream == upstream) {
                Some(parameter) => parameter.name = name,
                None => {
                    parameters.push(OperationParameter {
                        name,
                        upstream,
                        required: true,
                        list: false,
                        choices: Vec::new(),
                        is_closed: false,
                        description: None,
                        default: None,
                    });
                }
            }
        }
        path.starts_with('/').then_some(path)
    }
}

/// Renames parameters so that all names in the path and the query are unique. Returns the path template of the
/// URL. In the URL, names in the query must be those of the API; names in the path are arbitrary.
fn make_names_unique(
    in_path: &mut [OperationParameter],
    in_query: &mut [OperationParameter],
    path: &str,
) -> String {
    let names: BTreeSet<String> = in_path.iter().map(|parameter| parameter.name.clone()).collect();
    let mut known: BTreeSet<String> = in_query.iter().map(|parameter| parameter.upstream.clone()).collect();
    let mut path = path.to_owned();
    for parameter in in_path {
        parameter.upstream = parameter.name.clone();
        if known.contains(&parameter.name) {
            while known.contains(&parameter.upstream) || names.contains(&parameter.upstream) {
                parameter.upstream.push('_');
            }
            known.insert(parameter.upstream.clone());
            path = path.replace(&format!("{{{}}}", parameter.name), &format!("{{{}}}", parameter.upstream));
        }
    }
    let mut taken = names;
    let mut ordered: Vec<_> = in_query.iter_mut().collect();
    // Names that need no change take precedence.
    ordered.sort_by_key(|parameter| parameter.name != parameter.upstream);
    for parameter in ordered {
        while !taken.insert(parameter.name.clone()) {
            parameter.name.push('_');
        }
    }
    path
}

/// The description of a template: that of the operation, and its parameters.
fn described(description: Option<String>, parameters: &[OperationParameter]) -> Option<String> {
    let mut lines = Vec::new();
    for parameter in parameters {
        let mut about = Vec::new();
        about.extend(parameter.description.clone());
        if !parameter.choices.is_empty() {
            let values: Vec<_> = parameter.choices.iter().take(MAX_NAMED_VALUES).map(Choice::value).collect();
            let more = if parameter.choices.len() > MAX_NAMED_VALUES { ", …" } else { "" };
            about.push(format!("one of {}{more}", wrong_uri::all_of(&values)));
        }
        about.extend(parameter.default.as_ref().map(|default| format!("default `{default}`")));
        if about.is_empty() {
            continue;
        }
        let required = if parameter.required { " (required)" } else { "" };
        lines.push(format!("- `{}`{required}: {}", parameter.name, about.join("; ")));
    }
    if lines.is_empty() {
        return description;
    }
    let mut text = description.map(|text| text.trim_end().to_owned() + "\n\n").unwrap_or_default();
    text += "Parameters:\n";
    for line in lines {
        if text.chars().count() + line.chars().count() > MAX_TEXT_CHARACTERS * 4 {
            text += "- …\n";
            break;
        }
        text += &line;
        text.push('\n');
    }
    Some(text.trim_end().to_owned())
}

/// The first sentence or line of a text.
fn one_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let sentence = line.split_once(". ").map_or(line, |(sentence, _)| sentence);
    sentence.trim().trim_end_matches('.').chars().take(MAX_PARAMETER_CHARACTERS).collect()
}

/// An identifier as words: `listBooks` and `books/list-all` become `List books` and `Books list all`.
fn spaced(id: &str) -> String {
    let mut words = String::new();
    let mut after_lower = false;
    for letter in id.chars().take(MAX_TEXT_CHARACTERS) {
        if !letter.is_alphanumeric() {
            words.push(' ');
        } else if letter.is_uppercase() && after_lower {
            words.push(' ');
            words.extend(letter.to_lowercase());
        } else {
            words.push(letter);
        }
        after_lower = letter.is_lowercase() || letter.is_numeric();
    }
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut letters = words.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

fn is_of_type(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::String(only) => only == kind,
        // Since OpenAPI 3.1 `type` may be a list, such as `["string", "null"]`.
        Value::Array(several) => several.iter().any(|one| one == kind),
        _ => false,
    }
}

fn choice(value: &Value) -> Option<Choice> {
    list::text(value, "").map(Choice::Plain)
}

/// Replaces the characters that a variable name cannot contain with `_`.
fn variable(name: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    name.chars().map(letter).collect()
}

/// Percent-encodes the characters that a variable name cannot contain, so that an expanded query has the parameter
/// name of the API.
fn escaped_variable(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Escapes the first segment of a path, which takes the position of the authority in the URI.
pub(super) fn escaped_authority(path: &str) -> String {
    let (first, rest) = path.split_at(path.find('/').unwrap_or(path.len()));
    first.replace(':', "%3A").replace('@', "%40") + rest
}
