//! A tool for each URI template, with the variables of the template as its arguments.

use libris_core::uri_template::Variables;
use libris_core::{Freshness, Template, Uri, UriTemplate};
use libris_wire::Facts;
use serde_json::{Map, Value, json};

use super::arguments::ToolArguments;
use super::output::ToolError;
use super::untrusted::one_line;
use super::{MAX_DESCRIPTION, MAX_TITLE, Tool, ToolCall, ToolReply, definition};

/// The largest number of tools for templates.
const MAX_TOOLS: usize = 64;

/// The longest name of a tool, in characters.
const MAX_NAME: usize = 64;

/// A tool that reads the resources of a template.
#[derive(Clone, Debug)]
pub(crate) struct TemplateTool {
    pub(crate) name: String,
    template: Template,
}

impl TemplateTool {
    /// The tools for these templates. Their names differ from each other and from those of all built-in tools.
    pub(crate) fn all(templates: Vec<Template>) -> Vec<Self> {
        let mut tools: Vec<Self> = Vec::new();
        let own = templates.into_iter().filter(|template| !template.uri.as_str().starts_with("libris:"));
        for template in own.take(MAX_TOOLS) {
            let base = tool_name(&template.name);
            let numbered = (2..=MAX_TOOLS + 1).map(|number| format!("{base}_{number}"));
            let is_free =
                |name: &String| !Tool::is_reserved(name) && !tools.iter().any(|tool| tool.name == *name);
            let name = [base.clone()].into_iter().chain(numbered).find(is_free);
            tools.extend(name.map(|name| Self { name, template }));
        }
        tools
    }

    /// The definition of the tool; `facts` are the features of the protocol revision.
    pub(crate) fn definition(&self, facts: &Facts) -> Value {
        let Template { uri, title, description, .. } = &self.template;
        let title = one_line(title.as_deref().unwrap_or(&self.template.name), MAX_TITLE);
        let about = description.as_deref().map(|text| one_line(text, MAX_DESCRIPTION)).unwrap_or_default();
        let mut properties = Map::new();
        for name in uri.variables() {
            properties.insert(name.to_owned(), json!({ "type": "string" }));
        }
        let input = json!({
            "type": "object",
            "properties": properties,
            "required": required(uri),
            "additionalProperties": false,
        });
        let description = format!("{title}. {about} Reads `{uri}`.");
        definition::assembled(&self.name, &title, &description, input, definition::output(Tool::Read), facts)
    }

    /// The URI of the resource that these arguments name.
    fn uri(&self, arguments: &str) -> Result<Uri, ToolError> {
        let template = &self.template.uri;
        let names: Vec<_> = template.variables().collect();
        let arguments = ToolArguments::parse(arguments, &names)?;
        let mut variables = Variables::new();
        for name in &names {
            let Some(value) = arguments.range(name)? else { continue };
            match template.explodes(name) {
                true => variables.insert(*name, value.split('/').map(str::to_owned).collect::<Vec<_>>()),
                false => variables.insert(*name, value),
            };
        }
        if let Some(missing) = required(template).into_iter().find(|name| variables.value(name).is_none()) {
            return Err(ToolError::told(format!("`{missing}` is missing")));
        }
        let expanded = template.expand(&variables).map_err(ToolError::from)?;
        Uri::parse(&expanded).map_err(ToolError::from)
    }
}

impl ToolCall<'_> {
    /// Expands the template of `tool` with the arguments, and reads the resource at that URI.
    pub(crate) async fn run_template(&self, tool: &TemplateTool, arguments: &str) -> ToolReply {
        let uri = match tool.uri(arguments) {
            Ok(uri) => uri,
            Err(error) => {
                return ToolReply { output: Err(error), freshness: Freshness::unproven(), uri: None };
            }
        };
        let read = self.read(&json!({ "uri": uri.as_str() }).to_string()).await;
        let (output, freshness) = match read {
            Ok((output, freshness)) => (Ok(output), freshness),
            Err(error) => (Err(error), Freshness::unproven()),
        };
        ToolReply { output, freshness, uri: Some(uri.as_str().to_owned()) }
    }
}

/// The variables of a template that are not query parameters.
fn required(template: &UriTemplate) -> Vec<&str> {
    let text = template.as_str();
    let is_query = |name: &str| {
        text.split('{').skip(1).filter_map(|rest| rest.split_once('}')).any(|(inside, _)| {
            inside.starts_with(['?', '&'])
                && inside[1..].split(',').any(|variable| variable.trim_end_matches('*') == name)
        })
    };
    template.variables().filter(|name| !is_query(name)).collect()
}

/// A name as clients accept it: letters, digits, `_` and `-`.
fn tool_name(name: &str) -> String {
    let mut shown = String::new();
    for letter in name.chars().take(MAX_NAME - 4) {
        match letter.is_ascii_alphanumeric() || letter == '-' {
            true => shown.push(letter.to_ascii_lowercase()),
            false if !shown.ends_with('_') => shown.push('_'),
            false => {}
        }
    }
    let shown = shown.trim_matches('_');
    if shown.is_empty() { "template".to_owned() } else { shown.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::TemplateTool;
    use libris_core::{Template, UriTemplate};

    fn tools(templates: &[(&str, &str)]) -> Vec<TemplateTool> {
        let template = |(uri, name): &(&str, &str)| Template::new(UriTemplate::parse(uri).unwrap(), *name);
        TemplateTool::all(templates.iter().map(template).collect())
    }

    #[test]
    fn names_are_distinct_and_well_formed() {
        let tools = tools(&[
            ("w://f/{city}/{date}{?units}", "forecast"),
            ("w://g/{city}", "forecast"),
            ("w://h/{city}", "Wetter für heute!"),
            ("w://i/{city}", "read_resource"),
            ("w://j/{city}", "…"),
            ("libris://index{?below}", "index"),
        ]);
        let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["forecast", "forecast_2", "wetter_f_r_heute", "read_resource_2", "template"]);
    }

    #[test]
    fn arguments_become_a_uri() {
        let tools = tools(&[("w://f/{city}/{date}{?units}", "forecast"), ("file:///m{/path*}", "files")]);
        let uri = |at: usize, arguments: &str| tools[at].uri(arguments).ok().map(|uri| uri.to_string());
        assert_eq!(uri(0, r#"{"city":"a b","date":3}"#).as_deref(), Some("w://f/a%20b/3"));
        assert_eq!(uri(0, r#"{"city":"x","date":"y","units":"m"}"#).as_deref(), Some("w://f/x/y?units=m"));
        assert_eq!(uri(0, r#"{"city":"x"}"#), None);
        assert_eq!(uri(0, r#"{"city":"x","date":"y","other":"z"}"#), None);
        assert_eq!(uri(1, r#"{"path":"a/b c.md"}"#).as_deref(), Some("file:///m/a/b%20c.md"));
    }
}
