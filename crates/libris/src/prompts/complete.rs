//! Completes the arguments of prompts with the values that sources offer for their templates.

use std::collections::BTreeMap;

use libris_core::uri_template::Variables;
use libris_core::{
    Completion, CompletionRequest, Context, Prompt, PromptCompletion, Result, SearchQuery, Template, Uri,
    UriTemplate,
};

use crate::view::ViewSnapshot;

/// The placeholder for the argument to complete. A template of the prompt is expanded with the placeholder, and the URI
/// is matched against the templates of the sources, to find the variable that contains the argument. The placeholder is
/// in lower case, because the normal form of a URI has its host in lower case.
const COMPLETED: &str = "librisxcompletedxargument";

/// The placeholder for another argument that has no value yet.
const UNKNOWN: &str = "librisxunknownxargument";

/// How many resources are compared with the typed beginning of a URI.
const MAX_COMPARED: usize = 1_000;

/// A variable of a source's template that contains the argument of a prompt.
struct MappedVariable {
    template: UriTemplate,
    variable: String,
    /// The text of the variable before and after the argument.
    before: String,
    after: String,
    /// The values of the other variables of the template.
    known: BTreeMap<String, String>,
}

/// Completes an argument of a prompt from the templates of the sources. Of the resources that the prompt embeds and
/// whose URIs contain the argument, it uses the first one for which a source offers values.
pub(super) async fn by_resources(
    view: &ViewSnapshot<'_>,
    prompt: &Prompt,
    partial: PromptCompletion<'_>,
    context: &Context,
) -> Result<Completion> {
    let using = prompt
        .resources
        .iter()
        .filter(|resource| resource.variables().any(|variable| variable == partial.argument));
    let mut templates: Option<Vec<Template>> = None;
    for resource in using {
        if is_whole_uri(resource) {
            return uris(view, partial, context).await;
        }
        if templates.is_none() {
            templates = Some(view.templates(context).await?.templates);
        }
        for mapped in map(resource, partial, templates.as_deref().unwrap_or_default()) {
            let completion = mapped.complete(view, partial, context).await?;
            if !completion.values.is_empty() {
                return Ok(completion);
            }
        }
    }
    Ok(Completion::default())
}

/// Whether a resource of a prompt is nothing but one variable, whose value is a URI.
fn is_whole_uri(resource: &UriTemplate) -> bool {
    resource.as_str().starts_with("{+") && resource.as_str().find('}') == Some(resource.as_str().len() - 1)
}

/// The URIs that begin with the typed text; if there are none, the URIs of resources that a search for the text finds.
async fn uris(
    view: &ViewSnapshot<'_>,
    partial: PromptCompletion<'_>,
    context: &Context,
) -> Result<Completion> {
    let page = view.list(None, MAX_COMPARED, context).await?;
    let listed = page.resources.iter().map(|resource| resource.uri.as_str());
    let completion = Completion::of(listed, partial.typed, partial.limit);
    if !completion.values.is_empty() || partial.typed.trim().is_empty() {
        return Ok(Completion { more: completion.more || page.more, total: None, ..completion });
    }
    let found = view.search(&SearchQuery::new(partial.typed, partial.limit), context).await?;
    let values: Vec<_> = found.hits.into_iter().map(|hit| hit.uri).collect();
    Ok(Completion { total: Some(values.len() as u64), more: false, values, proof: None })
}

/// The variables of the sources' templates that the argument is part of, the most specific template first.
fn map(resource: &UriTemplate, partial: PromptCompletion<'_>, templates: &[Template]) -> Vec<MappedVariable> {
    let mut variables = Variables::new();
    for name in resource.variables() {
        let known = partial.known.get(name).filter(|value| !value.is_empty());
        match (name == partial.argument, known) {
            (true, _) => variables.insert(name, COMPLETED),
            (false, Some(value)) => variables.insert(name, value.as_str()),
            (false, None) if resource.is_optional(name) => None,
            (false, None) => variables.insert(name, UNKNOWN),
        };
    }
    let Ok(uri) = resource.expand(&variables).and_then(|uri| Uri::parse(&uri)) else { return Vec::new() };
    let mut matching: Vec<_> = templates
        .iter()
        .filter_map(|template| Some((template.uri.specificity(), mapped(&template.uri, &uri)?)))
        .collect();
    matching.sort_by_key(|(specificity, _)| std::cmp::Reverse(*specificity));
    matching.into_iter().map(|(_, mapped)| mapped).collect()
}

fn mapped(template: &UriTemplate, uri: &Uri) -> Option<MappedVariable> {
    let variables = template.matches(uri)?;
    let texts = || template.variables().filter_map(|name| Some((name, variables.text(name)?)));
    let (variable, before, after) = texts()
        .find_map(|(name, text)| text.split_once(COMPLETED).map(|(before, after)| (name, before, after)))?;
    if before.contains(UNKNOWN) || after.contains(UNKNOWN) {
        return None;
    }
    let known =
        texts().filter(|(name, text)| *name != variable && !text.is_empty() && !text.contains(UNKNOWN));
    Some(MappedVariable {
        template: template.clone(),
        variable: variable.to_owned(),
        before: before.to_owned(),
        after: after.to_owned(),
        known: known.map(|(name, text)| (name.to_owned(), text.to_owned())).collect(),
    })
}

impl MappedVariable {
    async fn complete(
        &self,
        view: &ViewSnapshot<'_>,
        partial: PromptCompletion<'_>,
        context: &Context,
    ) -> Result<Completion> {
        let typed = format!("{}{}", self.before, partial.typed);
        let request = CompletionRequest {
            template: &self.template,
            variable: &self.variable,
            typed: &typed,
            known: &self.known,
            limit: partial.limit,
        };
        let Completion { values, total, more, .. } = view.complete(request, context).await?;
        let own = |value: &String| {
            let value = value.strip_prefix(&*self.before)?.strip_suffix(&*self.after)?;
            (!value.is_empty()).then(|| value.to_owned())
        };
        let stripped: Vec<_> = values.iter().filter_map(own).collect();
        let total = total.filter(|_| stripped.len() == values.len());
        Ok(Completion { values: stripped, total, more, proof: None })
    }
}

#[cfg(test)]
mod tests {
    use super::{PromptCompletion, Template, UriTemplate, is_whole_uri, map};
    use std::collections::BTreeMap;

    /// The template, the variable, the text around the argument and the other values, of each template that matches.
    fn mapped(resource: &str, known: &[(&str, &str)], templates: &[&str]) -> Vec<String> {
        let resource = UriTemplate::parse(resource).unwrap();
        let known: BTreeMap<_, _> =
            known.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let partial = PromptCompletion { prompt: "p", argument: "x", typed: "", known: &known, limit: 9 };
        let templates: Vec<_> =
            templates.iter().map(|text| Template::new(UriTemplate::parse(text).unwrap(), "t")).collect();
        map(&resource, partial, &templates)
            .iter()
            .map(|mapped| {
                let around = format!("{}…{}", mapped.before, mapped.after);
                format!("{} {} {around} {:?}", mapped.template.as_str(), mapped.variable, mapped.known)
            })
            .collect()
    }

    #[test]
    fn an_argument_is_found_in_the_templates_of_sources() {
        assert_eq!(
            mapped("db://users/{x}", &[], &["db://users/{id}", "db://{+any}"]),
            ["db://users/{id} id … {}", "db://{+any} any users/… {}",]
        );
        assert_eq!(
            mapped("file:///docs/guides/{+x}.md", &[], &["file:///docs/{+path}{?lines,bytes}"]),
            ["file:///docs/{+path}{?lines,bytes} path guides/….md {}",]
        );
        let forecast = "weather://{country}/{city}";
        assert_eq!(
            mapped("weather://{c}/{x}", &[("c", "no")], &[forecast]),
            ["weather://{country}/{city} city … {\"country\": \"no\"}",]
        );
        assert_eq!(mapped("weather://{c}/{x}", &[], &[forecast]), ["weather://{country}/{city} city … {}"]);
        // The value before the argument is not known.
        assert!(mapped("file:///docs/{c}/{x}", &[], &["file:///docs/{+path}"]).is_empty());
        assert!(mapped("file:///docs/{x}", &[], &["db://{id}"]).is_empty());
    }

    #[test]
    fn a_resource_can_be_a_whole_uri() {
        let is_whole = |text: &str| is_whole_uri(&UriTemplate::parse(text).unwrap());
        assert!(is_whole("{+uri}"));
        assert!(!is_whole("{+uri}/x") && !is_whole("a:{+uri}") && !is_whole("{+a}{+b}"));
    }
}
