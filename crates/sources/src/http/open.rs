//! Validates a configuration and creates the source.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use libris_core::uri_template::{TemplateSet, Variables};
use libris_core::{Error, Resource, Result, Uri, UriTemplate};

use super::cache::HttpCache;
use super::client::ApiClient;
use super::config::{Choices, Config, EndpointConfig, Link, Method};
use super::endpoint::{ApiEndpoint, EndpointSpec};
use super::guard::AddressGuard;
use super::list::{DerivedValue, Instances, ListSource, Pagination};
use super::parsing::ResponseParser;
use super::{ApiResource, ApiTemplate, Completions, HttpInner, ListCompletions, TYPED_VARIABLE};
use crate::segment;

/// Validates a configuration and creates the source.
pub(super) fn open(mut config: Config) -> Result<HttpInner> {
    let (resources, templates, links) = (
        std::mem::take(&mut config.resources),
        std::mem::take(&mut config.templates),
        std::mem::take(&mut config.links),
    );
    check(&config)?;
    if resources.is_empty() && templates.is_empty() && links.is_empty() {
        return Err(Error::invalid(
            "it has no `resource`, no `template` and no `link`; hint: add one, such as a `[[http.resource]]`",
        ));
    }
    let guard = AddressGuard::new(&config.limits);
    let list_uris = uris_of_lists(&templates);
    let mut builder = EndpointBuilder::new(&config, &guard);

    let mut opened_resources = BTreeMap::new();
    for entry in resources {
        let uri = entry.uri.clone();
        let opened = builder.resource(entry).map_err(|why| wrong(&uri, why))?;
        if opened_resources.insert(uri.clone(), opened).is_some() {
            return Err(wrong(
                &uri,
                "it is declared twice; hint: remove one, or give it another `uri`".into(),
            ));
        }
    }
    for link in links {
        let uri = link.uri.clone();
        let opened = self::link(link).map_err(|why| wrong(&uri, why))?;
        if opened_resources.insert(uri.clone(), opened).is_some() {
            return Err(wrong(
                &uri,
                "it is declared twice; hint: remove one, or give it another `uri`".into(),
            ));
        }
    }
    let mut opened_templates = Vec::new();
    let mut listed = Vec::new();
    let mut texts = HashSet::new();
    for entry in templates {
        let uri = entry.uri.clone();
        if !texts.insert(uri.as_str().to_owned()) {
            return Err(wrong(
                &uri,
                "it is declared twice; hint: remove one, or give it another `uri`".into(),
            ));
        }
        let opened = builder.template(entry).map_err(|why| wrong(&uri, why))?;
        listed.extend(opened.instances.is_some().then(|| uri.clone()));
        opened_templates.push((uri, opened));
    }
    let secure = builder.secure;
    let client = ApiClient::new(&config.limits, guard, secure)?;
    // The default name is a scheme and not the base URL, which may contain a secret.
    let scheme = opened_resources
        .keys()
        .map(Uri::as_str)
        .chain(opened_templates.iter().map(|(template, _)| template.as_str()))
        .find_map(|uri| uri.split_once(':'));
    let inner = HttpInner {
        name: config.name.clone().or_else(|| Some(scheme?.0.to_owned())).unwrap_or_default(),
        cache: Arc::new(HttpCache::new(client, config.cache.clone())),
        parser: ResponseParser::default(),
        poll: config.poll,
        scope: config.cache.scope,
        max_size: config.limits.max_size,
        resources: opened_resources,
        templates: TemplateSet::new(opened_templates),
        listed,
        followed: Arc::default(),
    };
    // A list from an unknown resource would otherwise fail only when it is used.
    match list_uris.into_iter().find(|uri| inner.endpoint(uri).is_none()) {
        Some(uri) => Err(Error::invalid(format!(
            "a list is `from` `{uri}`, which is not a resource of this source; hint: add it as a `[[http.resource]]`, or set `url`"
        ))),
        None => Ok(inner),
    }
}

/// Rejects intervals, time-outs and limits of zero.
fn check(config: &Config) -> Result<()> {
    let limits = &config.limits;
    let zero = [
        ("poll", config.poll.is_zero()),
        ("limits.connect", limits.connect.is_zero()),
        ("limits.timeout", limits.timeout.is_zero()),
        ("limits.max_size", limits.max_size == 0),
        ("limits.concurrency", limits.concurrency == 0),
    ];
    match zero.iter().find(|(_, zero)| *zero) {
        Some((name, _)) => Err(Error::invalid(format!("`{name}` must be greater than 0"))),
        None => Ok(()),
    }
}

pub(super) fn wrong(uri: &impl std::fmt::Display, why: String) -> Error {
    Error::invalid(format!("`{uri}`: {why}"))
}

/// The URIs in the `from` keys of all lists and completions, with `x` for the values of variables.
fn uris_of_lists(templates: &[EndpointConfig<UriTemplate>]) -> HashSet<Uri> {
    let list_uris = templates.iter().flat_map(|entry| {
        let found = entry.complete.values().filter_map(|choices| match choices {
            Choices::Found(found) => found.from.as_deref(),
            Choices::Fixed(_) => None,
        });
        found.chain(entry.list.as_ref().and_then(|list| list.from.as_deref()))
    });
    list_uris
        .filter_map(|from| {
            let template = UriTemplate::parse(from).ok()?;
            let sample: Variables = template.variables().map(|name| (name, "x")).collect();
            Uri::parse(&template.expand(&sample).ok()?).ok()
        })
        .collect()
}

/// Creates endpoints from entries, and validates them.
pub(super) struct EndpointBuilder<'a> {
    config: &'a Config,
    guard: &'a AddressGuard,
    /// Whether any endpoint uses TLS.
    secure: bool,
    count: usize,
}

impl<'a> EndpointBuilder<'a> {
    pub(super) fn new(config: &'a Config, guard: &'a AddressGuard) -> Self {
        Self { config, guard, secure: false, count: 0 }
    }

    fn endpoint(&mut self, spec: EndpointSpec<'_>) -> Result<Arc<ApiEndpoint>, String> {
        let endpoint = ApiEndpoint::new(spec, self.count, self.config, self.guard)?;
        self.count += 1;
        self.secure |= endpoint.origin().starts_with("https:");
        Ok(Arc::new(endpoint))
    }

    /// Validates an entry and creates its endpoint.
    fn entry<U>(
        &mut self,
        entry: &EndpointConfig<U>,
        variables: Vec<&str>,
    ) -> Result<Arc<ApiEndpoint>, String> {
        entry.check_descriptive_keys()?;
        if entry.method == Method::HEAD
            && entry.mime.as_deref().is_some_and(|mime| mime != "application/json")
        {
            return Err("the content of a `HEAD` request is `application/json`: omit `mime`".into());
        }
        let is_unknown = |name: &&String| !variables.contains(&name.as_str());
        if let Some(unknown) = entry.required.iter().chain(entry.complete.keys()).find(is_unknown) {
            return Err(format!("it has no variable `{unknown}`; hint: add it to `uri`, or remove it"));
        }
        self.endpoint(EndpointSpec {
            method: entry.method,
            headers: &entry.headers,
            query: &entry.query,
            mime: entry.mime.as_deref(),
            required: &entry.required,
            allowed: Some(&entry.allowed),
            renamed: Some(&entry.renamed),
            variables,
            ..EndpointSpec::new(&entry.url)
        })
    }

    pub(super) fn resource(&mut self, entry: EndpointConfig<Uri>) -> Result<ApiResource, String> {
        if entry.list.is_some() {
            return Err("only a template can have a `list`; hint: remove it".into());
        }
        let endpoint = self.entry(&entry, Vec::new())?;
        Ok(ApiResource { resource: entry.resource(&entry.uri), endpoint: Some(endpoint) })
    }

    pub(super) fn template(&mut self, entry: EndpointConfig<UriTemplate>) -> Result<ApiTemplate, String> {
        let variables: Vec<_> = entry.uri.variables().collect();
        let endpoint = self.entry(&entry, variables.clone())?;
        let mut choices = BTreeMap::new();
        for (variable, choice) in &entry.complete {
            let offered = match choice {
                Choices::Fixed(choices) => Completions::Fixed(choices.clone()),
                Choices::Found(found) => {
                    let pointers = [&found.items, &found.value].into_iter().chain(&found.label);
                    check_pointers(pointers.chain(&found.next))?;
                    let mut known = variables.clone();
                    known.push(TYPED_VARIABLE);
                    let list_source =
                        self.list_source(&entry, found.url.as_deref(), found.from.as_deref(), known)?;
                    // The best results of a search are on its first page.
                    let max_pages = if list_source.searches() { 1 } else { found.max_pages };
                    let pages = Pagination::new(found.next.as_deref(), found.cursor.as_deref(), max_pages)?;
                    let (items, value, label) =
                        (found.items.clone(), found.value.clone(), found.label.clone());
                    Completions::Found(Arc::new(ListCompletions {
                        list_source,
                        pages,
                        items,
                        value,
                        label,
                        derived: DerivedValue::default(),
                    }))
                }
            };
            choices.insert(variable.clone(), offered);
        }
        let instances = match &entry.list {
            None => None,
            Some(list) => {
                let shown = list.name.iter().chain(&list.title).chain(&list.description).chain(&list.next);
                check_pointers(list.values.values().chain([&list.items]).chain(shown))?;
                if let Some(unknown) = list.values.keys().find(|name| !variables.contains(&name.as_str())) {
                    return Err(format!(
                        "its `list` has the variable `{unknown}`, which the template in `uri` does not define; hint: add it to `uri`, or remove it"
                    ));
                }
                let lacking =
                    |name: &&&str| !list.values.contains_key(**name) && !entry.uri.is_optional(name);
                if let Some(lacking) = variables.iter().find(lacking) {
                    return Err(format!(
                        "its `list` has no `{lacking}` in `values`; hint: set it to the JSON pointer of that value"
                    ));
                }
                let list_source =
                    self.list_source(&entry, list.url.as_deref(), list.from.as_deref(), Vec::new())?;
                let pages = Pagination::new(list.next.as_deref(), list.cursor.as_deref(), list.max_pages)?;
                Some(Arc::new(Instances::new(list_source, pages, list.clone())))
            }
        };
        Ok(ApiTemplate { template: entry.template(&entry.uri), endpoint, choices, instances })
    }

    /// The source of a list. Fails unless exactly one of `url` and `from` is set.
    fn list_source<U>(
        &mut self,
        entry: &EndpointConfig<U>,
        url: Option<&str>,
        from: Option<&str>,
        variables: Vec<&str>,
    ) -> Result<ListSource, String> {
        match (url, from) {
            (Some(url), None) => {
                let endpoint = self.endpoint(EndpointSpec {
                    headers: &entry.headers,
                    mime: Some("application/json"),
                    variables,
                    ..EndpointSpec::new(url)
                })?;
                Ok(ListSource::Endpoint(endpoint))
            }
            (None, Some(from)) => {
                let template = UriTemplate::parse(from).map_err(|cause| cause.to_string())?;
                match template.variables().find(|name| !variables.contains(name)) {
                    Some(unknown) => Err(format!(
                        "`from` has the variable `{unknown}`, which is not known; hint: use the variables of the template"
                    )),
                    None => Ok(ListSource::From(template.clone())),
                }
            }
            _ => Err("a list must have either a `url` or a `from`".into()),
        }
    }
}

fn check_pointers<'a>(mut pointers: impl Iterator<Item = &'a String>) -> Result<(), String> {
    match pointers.find(|pointer| !pointer.is_empty() && !pointer.starts_with('/')) {
        Some(wrong) => Err(format!("`{wrong}` is not a JSON pointer such as `/data/0/name`")),
        None => Ok(()),
    }
}

fn link(link: Link) -> Result<ApiResource, String> {
    if link.uri.scheme() != "https" && link.uri.scheme() != "http" {
        return Err("the `uri` of a link must begin with `https://`".into());
    }
    let resource = Resource {
        name: link.name.unwrap_or_else(|| segment::last(&link.uri)),
        title: link.title,
        description: link.description,
        mime: link.mime,
        ..Resource::new(link.uri, "")
    };
    Ok(ApiResource { resource, endpoint: None })
}
