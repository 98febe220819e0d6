//! HTTP APIs as resources: a URI or template is bound to a request.
//!
//! Responses are cached by the rules of HTTP (RFC 9111), concurrent requests for one resource are one request
//! (single-flight), and subscribed resources are polled. Addresses, time, size and concurrency are limited.

mod answer;
mod client;
mod config;
mod definition;
mod endpoint;
mod extract;
mod fault;
mod guard;
mod list;
mod memory;
mod open;
pub mod openapi;
mod parsing;
mod store;
mod watch;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use libris_core::uri_template::{Specificity, TemplateSet, Variables};
use libris_core::{
    Change, Client, Completion, Content, Contents, Context, Freshness, Page, Partial, Proof, Resource,
    Result, Scope, Source, Template, Templates, Uri, UriTemplate,
};

pub use config::{
    Caching, Choice, ChoiceList, Choices, Config, EndpointConfig, Link, ListConfig, Method, RequestLimits,
    Secret, TextOrSecret,
};
pub use guard::Network;

use crate::meta;
use answer::ApiResponse;
use endpoint::ApiEndpoint;
use fault::HttpFault;
use list::{DerivedValue, Instances, ListSource, ListedResources};
use parsing::ResponseParser;
use store::{Hit, Store, Want};
use watch::FollowedResources;

/// An HTTP API as a source.
pub struct Http {
    inner: Arc<Inner>,
}

struct Inner {
    /// The name of the source.
    name: String,
    store: Arc<Store>,
    parser: ResponseParser,
    poll: Duration,
    scope: Scope,
    resources: BTreeMap<Uri, ApiResource>,
    templates: TemplateSet<ApiTemplate>,
    /// The templates whose resources are listed.
    listed: Vec<UriTemplate>,
    followed: Arc<FollowedResources>,
}

/// A resource with its endpoint.
struct ApiResource {
    resource: Resource,
    /// `None` if clients fetch the resource themselves.
    endpoint: Option<Arc<ApiEndpoint>>,
}

/// A template with its endpoint, completions and list.
struct ApiTemplate {
    template: Template,
    endpoint: Arc<ApiEndpoint>,
    choices: BTreeMap<String, Completions>,
    instances: Option<Arc<Instances>>,
}

/// The completions of a variable.
enum Completions {
    Fixed(Vec<Choice>),
    Found(Arc<Lookup>),
}

/// Completions from a list in a response.
struct Lookup {
    place: ListSource,
    items: String,
    value: String,
    label: Option<String>,
    made: DerivedValue<Arc<[Choice]>>,
}

impl Lookup {
    /// Extracts the values from a response.
    fn choices(&self, answer: &Arc<ApiResponse>) -> Result<Arc<[Choice]>, HttpFault> {
        if let Some(made) = self.made.of(answer) {
            return Ok(made);
        }
        let fields: Vec<&str> = [&self.value].into_iter().chain(&self.label).map(String::as_str).collect();
        let items = extract::items(answer.text()?, &self.items, &fields)?;
        let choices = items.into_iter().filter_map(|item| {
            let mut fields = item.into_iter();
            let (value, label) = (fields.next().flatten()?, fields.next().flatten().unwrap_or_default());
            Some(Choice::Labelled { value, label })
        });
        let choices: Arc<[Choice]> = choices.collect();
        self.made.set(answer, choices.clone());
        Ok(choices)
    }
}

impl Http {
    /// Validates the configuration. Sends no request.
    pub fn new(config: Config) -> Result<Self> {
        Ok(Self { inner: Arc::new(open::open(config)?) })
    }
}

#[async_trait]
impl Source for Http {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.inner.covers(uri)
    }

    fn name(&self) -> Cow<'_, str> {
        format!("http {}", self.inner.name).into()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        self.inner.list(after, limit, context.client()).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.inner.read(uri, context).await
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        let templates = self.inner.templates.iter().map(|(_, filled)| filled.template.clone()).collect();
        Ok(Templates { templates, freshness: self.inner.freshness(Proof::always()), ..Templates::default() })
    }

    async fn complete(&self, asked: Partial<'_>, context: &Context) -> Result<Completion> {
        self.inner.complete(asked, context.client()).await
    }

    fn follow(&self, subject: &Uri, _client: Client) {
        watch::follow(&self.inner, subject);
    }

    fn unfollow(&self, subject: &Uri) {
        self.inner.followed.remove(subject);
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        Ok(Some(watch::changes(self.inner.clone()).await))
    }
}

impl Inner {
    /// The freshness of a result that does not depend on one response of the API.
    fn freshness(&self, proof: impl Into<Option<Proof>>) -> Freshness {
        Freshness::proven(proof).with_scope(self.scope)
    }

    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        if self.resources.contains_key(uri) {
            return Some(Specificity::EXACT);
        }
        self.templates.closest(uri).map(|(template, ..)| template.specificity())
    }

    /// The endpoint of a URI, with the values of its variables.
    fn endpoint(&self, uri: &Uri) -> Option<(Arc<ApiEndpoint>, Variables)> {
        match self.resources.get(uri) {
            Some(held) => Some((held.endpoint.clone()?, Variables::new())),
            None => {
                let (_, filled, variables) = self.templates.closest(uri)?;
                Some((filled.endpoint.clone(), variables))
            }
        }
    }

    async fn get(&self, uri: &Uri, want: Want, asker: Client) -> Result<Hit, HttpFault> {
        let (endpoint, variables) = self.endpoint(uri).ok_or(HttpFault::Missing)?;
        self.store.get(&endpoint, endpoint.url(variables)?, want, asker).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        if self.resources.get(uri).is_some_and(|held| held.endpoint.is_none()) {
            return Ok(link(uri).with_freshness(self.freshness(Proof::always())));
        }
        let hit = self.get(uri, Want::Fresh, context.client()).await.map_err(|fault| fault.of(uri))?;
        watch::served(&self.followed, uri, hit.answer.digest);
        // Each caller gets its own copy.
        let size = hit.answer.body.len();
        if size > memory::SMALL {
            context.reserve(size as u64)?;
        }
        let meta = hit.stale.map(|known| meta::with(meta::STALE, known.as_secs()));
        let content = Content {
            uri: uri.clone(),
            mime: Some(hit.answer.mime.clone()),
            body: hit.answer.body.clone(),
            meta,
        };
        Ok(Contents::from(content).with_freshness(hit.freshness))
    }

    /// The indexes of the lists.
    fn lists(&self) -> std::ops::Range<usize> {
        0..self.listed.len()
    }

    /// The resources of a list.
    async fn instances(&self, number: usize, want: Want, asker: Client) -> Result<ListedResources> {
        let template = &self.listed[number];
        let filled = self.templates.get(template);
        let Some((filled, instances)) = filled.and_then(|filled| Some((filled, filled.instances.as_ref()?)))
        else {
            return Ok(ListedResources::default());
        };
        let listed = async {
            let answer = self.found(&instances.place, Variables::new(), want, asker).await?.answer;
            if let Some(made) = instances.made_of(&answer) {
                return Ok(made);
            }
            let (instances, template, endpoint) =
                (instances.clone(), filled.template.clone(), filled.endpoint.clone());
            let make = move |answer: &Arc<ApiResponse>| instances.make(answer, &template, &endpoint);
            self.parser.run(&answer, asker, make).await
        };
        listed.await.map_err(|fault: HttpFault| fault.of_list(template.as_str()))
    }

    /// The resources of a list, if it was used recently.
    fn recent(&self, number: usize) -> Option<ListedResources> {
        self.templates.get(&self.listed[number])?.instances.as_ref()?.recent()
    }

    /// The response that contains a list.
    async fn found(
        &self,
        place: &ListSource,
        variables: Variables,
        want: Want,
        asker: Client,
    ) -> Result<Hit, HttpFault> {
        match place {
            ListSource::Endpoint(endpoint) => {
                self.store.get(endpoint, endpoint.url(variables)?, want, asker).await
            }
            ListSource::From(from) => {
                let uri = Uri::parse(&from.expand(&variables)).map_err(|_| HttpFault::Values)?;
                // A value such as `..` would name another resource.
                from.matches(&uri).ok_or(HttpFault::Values)?;
                self.get(&uri, want, asker).await
            }
        }
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, asker: Client) -> Result<Page> {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let most = limit.saturating_add(1);
        let own = self.resources.range::<Uri, _>(from).take(most);
        let mut resources: Vec<Resource> = own.map(|(_, held)| held.resource.clone()).collect();
        for number in self.lists() {
            let listed = match after.and_then(|_| self.recent(number)) {
                Some(recent) => recent,
                None => self.instances(number, Want::Fresh, asker).await?,
            };
            resources
                .extend(listed.range::<Uri, _>(from).take(most).map(|(_, found)| found.resource.clone()));
        }
        // The sort is stable, so of duplicates the configured one wins.
        resources.sort_by(|one, other| one.uri.cmp(&other.uri));
        resources.dedup_by(|one, other| one.uri == other.uri);
        let more = resources.len() > limit;
        resources.truncate(limit);
        let freshness = self.freshness(self.listed.is_empty().then(Proof::always));
        Ok(Page { resources, more, freshness, ..Page::default() })
    }

    async fn complete(&self, asked: Partial<'_>, asker: Client) -> Result<Completion> {
        let Some(filled) = self.templates.get(asked.template) else { return Ok(Completion::default()) };
        match filled.choices.get(asked.variable) {
            Some(Completions::Fixed(choices)) => {
                Ok(list::offer(choices.iter().cloned(), asked.typed, asked.limit))
            }
            Some(Completions::Found(lookup)) => {
                let place = &lookup.place;
                let Some(variables) = place.variables(asked) else { return Ok(Completion::default()) };
                let failed = |fault: HttpFault| fault.of_list(asked.template.as_str());
                let hit = match self.found(place, variables, Want::Fresh, asker).await {
                    // There may be no completions of the typed text.
                    Err(HttpFault::Missing) => return Ok(Completion::default()),
                    found => found.map_err(failed)?,
                };
                let choices = match lookup.made.of(&hit.answer) {
                    Some(made) => made,
                    None => {
                        let lookup = lookup.clone();
                        let choices = move |answer: &Arc<ApiResponse>| lookup.choices(answer);
                        self.parser.run(&hit.answer, asker, choices).await.map_err(failed)?
                    }
                };
                // The service has already filtered by the typed text.
                let typed = if place.searches() { "" } else { asked.typed };
                Ok(list::offer(choices.iter().cloned(), typed, asked.limit))
            }
            None => self.complete_from_list(filled, asked, asker).await,
        }
    }

    /// The values of a variable in the listed resources that match the known values.
    async fn complete_from_list(
        &self,
        filled: &ApiTemplate,
        asked: Partial<'_>,
        asker: Client,
    ) -> Result<Completion> {
        let number = self.listed.iter().position(|template| template == asked.template);
        let tells = filled.instances.as_ref().is_some_and(|instances| instances.tells(asked.variable));
        let Some(number) = number.filter(|_| tells) else { return Ok(Completion::default()) };
        let listed = self.instances(number, Want::Fresh, asker).await?;
        let fits = |values: &BTreeMap<String, String>| {
            asked.known.iter().all(|(name, known)| {
                name == asked.variable || values.get(name).is_none_or(|value| value == known)
            })
        };
        let choices = listed.values().filter(|found| fits(&found.values)).filter_map(|found| {
            let value = found.values.get(asked.variable)?.clone();
            let label = found.resource.title.as_ref().unwrap_or(&found.resource.name).clone();
            Some(Choice::Labelled { value, label })
        });
        Ok(list::offer(choices, asked.typed, asked.limit))
    }
}

/// The variable for the typed text.
const TYPED: &str = "typed";

impl ListSource {
    /// The variables for its URL; `None` if a required one is unknown.
    fn variables(&self, asked: Partial<'_>) -> Option<Variables> {
        let mut variables: Variables = asked.known.iter().collect();
        let lacks = match self {
            Self::Endpoint(endpoint) => {
                variables.insert(TYPED, asked.typed);
                endpoint.lacks(&variables)
            }
            Self::From(from) => {
                from.variables().any(|name| variables.value(name).is_none() && !from.is_optional(name))
            }
        };
        (!lacks).then_some(variables)
    }

    /// Whether the service filters by the typed text.
    fn searches(&self) -> bool {
        matches!(self, Self::Endpoint(endpoint) if endpoint.takes(TYPED))
    }
}

/// The content of a link: a note that clients fetch it themselves.
fn link(uri: &Uri) -> Contents {
    let text = format!("{uri} is on the web and is not fetched by this server: fetch it from there.");
    Content { mime: None, ..Content::text(uri.clone(), "", text) }.into()
}
