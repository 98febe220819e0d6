//! HTTP APIs as resources: a URI or template is mapped to a request.
//!
//! Responses are cached by the rules of HTTP (RFC 9111). Concurrent reads of one resource share one request
//! (single-flight). Subscribed resources are polled. Addresses, time, size and concurrency are limited.

mod cache;
mod client;
mod config;
mod definition;
mod endpoint;
mod extract;
mod fault;
mod guard;
mod link;
mod list;
mod memory;
mod open;
pub mod openapi;
mod pages;
mod parsing;
mod response;
mod watch;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use libris_core::uri_template::{Specificity, TemplateSet, VariableValue, Variables};
use libris_core::{
    CacheScope, Change, Client, Completion, CompletionRequest, Content, Contents, Context, Error, Freshness,
    Page, Proof, ReplicaKey, Resource, Result, Source, Template, Templates, Uri, UriSpan, UriTemplate,
};

use serde_json::Value;

pub use config::{
    Caching, Choice, ChoiceList, Choices, Config, EndpointConfig, EnvironmentSecret, Link, ListConfig,
    Method, RequestLimits, TextOrSecret,
};
pub use guard::Network;

use crate::{meta, suggest, wrong_uri};
use cache::{FetchedResponse, HttpCache, RequiredFreshness};
use endpoint::ApiEndpoint;
use fault::HttpFault;
use list::{DerivedValue, Instances, ListSource, ListedResources, Pagination};
use parsing::ResponseParser;
use response::ApiResponse;
use watch::FollowedResources;

/// An HTTP API as a source.
pub struct Http {
    inner: Arc<HttpInner>,
}

struct HttpInner {
    /// The name of the source.
    name: String,
    cache: Arc<HttpCache>,
    parser: ResponseParser,
    poll: Duration,
    scope: CacheScope,
    /// The largest response in bytes; also the approximate limit of all pages of a list together.
    max_size: u64,
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
    Found(Arc<ListCompletions>),
}

/// Completions from a list in a response.
struct ListCompletions {
    list_source: ListSource,
    pages: Pagination,
    items: String,
    value: String,
    label: Option<String>,
    /// The cached choices of the last response.
    derived: DerivedValue<Arc<[Choice]>>,
}

impl ListCompletions {
    /// The choices in the pages of a response, from the cache if they were extracted from the same pages before.
    fn choices(&self, responses: &[Arc<ApiResponse>]) -> Result<Arc<[Choice]>, HttpFault> {
        if let Some(derived) = self.derived.get(responses) {
            return Ok(derived);
        }
        let fields: Vec<&str> = [&self.value].into_iter().chain(&self.label).map(String::as_str).collect();
        let items = extract::items_of_pages(responses, &self.items, &fields)?;
        let choices = items.into_iter().filter_map(|item| {
            let mut fields = item.into_iter();
            let (value, label) = (fields.next().flatten()?, fields.next().flatten().unwrap_or_default());
            Some(Choice::Labelled { value, label })
        });
        let choices: Arc<[Choice]> = choices.collect();
        self.derived.set(responses, choices.clone());
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

    fn span(&self) -> Option<UriSpan> {
        let listed = self.inner.listed.iter().map(|template| {
            let literal = template.as_str().split('{').next().unwrap_or_default();
            UriSpan::below(literal)
        });
        self.inner.resources.keys().map(UriSpan::of).chain(listed).reduce(UriSpan::and)
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        self.inner.list(after, limit, context.client()).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.inner.read(uri, context).await
    }

    fn hint(&self, uri: &Uri) -> Option<String> {
        wrong_uri::hint(uri, self.inner.resources.keys(), self.inner.templates.iter().map(|(uri, _)| uri))
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        let templates = self.inner.templates.iter().map(|(_, entry)| entry.template.clone()).collect();
        Ok(Templates { templates, freshness: self.inner.freshness(Proof::always()), ..Templates::default() })
    }

    async fn complete(&self, asked: CompletionRequest<'_>, context: &Context) -> Result<Completion> {
        self.inner.complete(asked, context.client()).await
    }

    /// Private responses are shared too: the API sees every caller as the same client.
    fn replica_key(&self, uri: &Uri) -> Option<ReplicaKey> {
        let (endpoint, variables) = self.inner.endpoint(uri)?;
        let text = endpoint.replica_key(&endpoint.url(variables).ok()?);
        Some(ReplicaKey { text, scope: CacheScope::Private })
    }

    fn follow(&self, subject: &Uri, _client: Client) {
        watch::follow(&self.inner, subject);
    }

    fn unfollow(&self, subject: &Uri) {
        self.inner.followed.remove(subject);
    }

    fn polls_shared_service(&self) -> bool {
        true
    }

    fn follow_for_replicas(&self, subject: &Uri) {
        watch::follow_for_replicas(&self.inner, subject);
    }

    fn invalidate(&self, change: &Change) {
        let updated = match change {
            Change::Updated(uri) => self.inner.endpoint(uri),
            // A list has changed: its pages are cached responses, and any of them may be affected.
            _ => None,
        };
        match updated.and_then(|(endpoint, variables)| Some((endpoint.url(variables).ok()?, endpoint))) {
            Some((url, endpoint)) => self.inner.cache.forget(&endpoint, &url),
            None => self.inner.cache.forget_all(),
        }
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        Ok(Some(watch::changes(self.inner.clone()).await))
    }
}

impl HttpInner {
    /// The freshness of a result that does not consist of one response of the API, such as a page of
    /// `resources/list`.
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
            Some(entry) => Some((entry.endpoint.clone()?, Variables::new())),
            None => {
                let (_, entry, variables) = self.templates.closest(uri)?;
                Some((entry.endpoint.clone(), variables))
            }
        }
    }

    async fn get(
        &self,
        uri: &Uri,
        required: RequiredFreshness,
        client: Client,
    ) -> Result<FetchedResponse, HttpFault> {
        let (endpoint, variables) = self.endpoint(uri).ok_or(HttpFault::Missing)?;
        self.cache.get(&endpoint, endpoint.url(variables)?, required, client).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        if self.resources.get(uri).is_some_and(|entry| entry.endpoint.is_none()) {
            return Ok(link(uri).with_freshness(self.freshness(Proof::always())));
        }
        let hit = match self.get(uri, RequiredFreshness::Fresh, context.client()).await {
            Ok(hit) => hit,
            Err(HttpFault::Missing) => return Err(self.not_found(uri)),
            Err(fault) => return Err(fault.into_error(uri, &self.value_hint(uri))),
        };
        watch::record_served(&self.followed, uri, hit.api_response.digest);
        // Each caller gets its own copy of the body, so each reserves memory for it.
        let size = hit.api_response.body.len();
        if size > memory::UNRESERVED_BYTES {
            context.reserve(size as u64)?;
        }
        let mut meta = hit.stale.map(|known| meta::with(meta::STALE, known.as_secs()));
        if let Some(next) = &hit.api_response.next {
            let (key, value) = match self.next_uri(uri, next) {
                Some(next) => (meta::NEXT, Value::from(next.as_str())),
                None => (meta::MORE, Value::from(true)),
            };
            meta.get_or_insert_default().insert(key.to_owned(), value);
        }
        let content = Content {
            uri: uri.clone(),
            mime: Some(hit.api_response.mime.clone()),
            body: hit.api_response.body.clone(),
            meta,
        };
        Ok(Contents::from(content).with_freshness(hit.freshness))
    }

    /// The error for a URI without an endpoint, or with a value that its URL cannot contain.
    fn not_found(&self, uri: &Uri) -> Error {
        match self.endpoint(uri) {
            Some((_, variables)) => {
                // An exploded variable such as `{?tag*}` also matches parameters of other names; its value is then a
                // map.
                let has_others = variables.iter().any(|(_, value)| matches!(value, VariableValue::Map(_)));
                let templates: Vec<_> = self.templates.iter().map(|(uri, _)| uri).collect();
                match wrong_uri::query_hint(uri, &[], &templates).filter(|_| has_others) {
                    Some(hint) => Error::missing(uri, hint),
                    None => Error::NotFound(uri.clone()),
                }
            }
            None => wrong_uri::error(uri, self.resources.keys(), self.templates.iter().map(|(uri, _)| uri)),
        }
    }

    /// A hint for a URI that the service does not know: similar known values, otherwise the variables to check.
    fn value_hint(&self, uri: &Uri) -> String {
        let Some((template, entry, variables)) =
            self.templates.closest(uri).filter(|_| !self.resources.contains_key(uri))
        else {
            return String::new();
        };
        let listed = entry.instances.as_ref().and_then(|instances| instances.recent());
        for (name, value) in variables.iter() {
            let VariableValue::Text(value) = value else { continue };
            let fixed = match entry.choices.get(name) {
                Some(Completions::Fixed(choices)) => &choices[..],
                Some(Completions::Found(_)) | None => &[],
            };
            let listed = listed.iter().flat_map(|listed| listed.values());
            let listed = listed.filter_map(|found| found.values.get(name).map(String::as_str));
            let known: BTreeSet<&str> = fixed.iter().map(Choice::value).chain(listed).collect();
            let meant = match known.contains(value.as_str()) {
                true => String::new(),
                false => suggest::did_you_mean(value, known),
            };
            if !meant.is_empty() {
                return meant;
            }
        }
        match &template.variables().filter(|name| variables.value(name).is_some()).collect::<Vec<_>>()[..] {
            [] => String::new(),
            [name] => format!("; check the value of `{name}`"),
            names => format!("; check the values of {}", wrong_uri::all_of(names)),
        }
    }

    /// The indexes of the lists in `listed`.
    fn lists(&self) -> std::ops::Range<usize> {
        0..self.listed.len()
    }

    /// The resources of the list with this index in `listed`, with a proof that holds while the list is fresh.
    async fn instances(
        &self,
        number: usize,
        required: RequiredFreshness,
        client: Client,
    ) -> Result<(ListedResources, Option<Proof>)> {
        let template = &self.listed[number];
        let entry = self.templates.get(template);
        let Some((entry, instances)) = entry.and_then(|entry| Some((entry, entry.instances.as_ref()?)))
        else {
            return Ok((ListedResources::default(), Some(Proof::always())));
        };
        let listed = async {
            let location = self.locate(&instances.list_source, Variables::new())?;
            let (responses, proof) = self.pages(location, &instances.pages, required, client).await?;
            if let Some(derived) = instances.cached(&responses) {
                return Ok((derived, proof));
            }
            let (instances, template, endpoint) =
                (instances.clone(), entry.template.clone(), entry.endpoint.clone());
            let extract =
                move |responses: &[Arc<ApiResponse>]| instances.extract(responses, &template, &endpoint);
            Ok((self.parser.run(&responses, client, extract).await?, proof))
        };
        listed.await.map_err(|fault: HttpFault| fault.into_list_error(template.as_str()))
    }

    /// Like [`instances`](Self::instances), but only from the cache, and only if the resources were used recently.
    fn recent(&self, number: usize) -> Option<ListedResources> {
        self.templates.get(&self.listed[number])?.instances.as_ref()?.recent()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, client: Client) -> Result<Page> {
        let from = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let most = limit.saturating_add(1);
        let own = self.resources.range::<Uri, _>(from).take(most);
        let mut resources: Vec<Resource> = own.map(|(_, entry)| entry.resource.clone()).collect();
        let mut freshness = Freshness::unlimited();
        for number in self.lists() {
            let (listed, proof) = match after.and_then(|_| self.recent(number)) {
                Some(recent) => (recent, None),
                None => self.instances(number, RequiredFreshness::Fresh, client).await?,
            };
            freshness = freshness.and_proof(proof);
            resources
                .extend(listed.range::<Uri, _>(from).take(most).map(|(_, found)| found.resource.clone()));
        }
        // The sort is stable, so of duplicates the configured one wins.
        resources.sort_by(|one, other| one.uri.cmp(&other.uri));
        resources.dedup_by(|one, other| one.uri == other.uri);
        let more = resources.len() > limit;
        resources.truncate(limit);
        let freshness = self.freshness(freshness.proof);
        Ok(Page { resources, more, freshness, ..Page::default() })
    }

    async fn complete(&self, asked: CompletionRequest<'_>, client: Client) -> Result<Completion> {
        let Some(entry) = self.templates.get(asked.template) else { return Ok(Completion::default()) };
        match entry.choices.get(asked.variable) {
            Some(Completions::Fixed(choices)) => {
                let completion = list::complete(choices.iter().cloned(), asked.typed, asked.limit);
                Ok(completion.with_proof(Proof::always()))
            }
            Some(Completions::Found(lookup)) => {
                let list_source = &lookup.list_source;
                let Some(variables) = list_source.variables(asked) else { return Ok(Completion::default()) };
                let failed = |fault: HttpFault| fault.into_list_error(asked.template.as_str());
                let responses = async {
                    let location = self.locate(list_source, variables)?;
                    self.pages(location, &lookup.pages, RequiredFreshness::Fresh, client).await
                };
                let (responses, proof) = match responses.await {
                    // A service may respond with 404 if nothing matches the typed text.
                    Err(fault) if fault.is_missing() => return Ok(Completion::default()),
                    responses => responses.map_err(failed)?,
                };
                let choices = match lookup.derived.get(&responses) {
                    Some(derived) => derived,
                    None => {
                        let lookup = lookup.clone();
                        let choices = move |responses: &[Arc<ApiResponse>]| lookup.choices(responses);
                        self.parser.run(&responses, client, choices).await.map_err(failed)?
                    }
                };
                // The service has already filtered by the typed text.
                let typed = if list_source.searches() { "" } else { asked.typed };
                Ok(list::complete(choices.iter().cloned(), typed, asked.limit).with_proof(proof))
            }
            None => self.complete_from_list(entry, asked, client).await,
        }
    }

    /// Completes a variable with its values in those listed resources that match the values chosen so far.
    async fn complete_from_list(
        &self,
        entry: &ApiTemplate,
        asked: CompletionRequest<'_>,
        client: Client,
    ) -> Result<Completion> {
        let number = self.listed.iter().position(|template| template == asked.template);
        let has_values =
            entry.instances.as_ref().is_some_and(|instances| instances.has_values_of(asked.variable));
        let Some(number) = number.filter(|_| has_values) else { return Ok(Completion::default()) };
        let (listed, proof) = self.instances(number, RequiredFreshness::Fresh, client).await?;
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
        Ok(list::complete(choices, asked.typed, asked.limit).with_proof(proof))
    }
}

/// The variable for the typed text in the URL of a completion list.
const TYPED_VARIABLE: &str = "typed";

impl ListSource {
    /// The variables for the URL or URI of the list; `None` if a required variable has no value.
    fn variables(&self, asked: CompletionRequest<'_>) -> Option<Variables> {
        let mut variables: Variables = asked.known.iter().collect();
        let lacks_required = match self {
            Self::Endpoint(endpoint) => {
                variables.insert(TYPED_VARIABLE, asked.typed);
                endpoint.lacks_required(&variables)
            }
            Self::From(from) => {
                from.variables().any(|name| variables.value(name).is_none() && !from.is_optional(name))
            }
        };
        (!lacks_required).then_some(variables)
    }

    /// Whether the service filters by the typed text.
    fn searches(&self) -> bool {
        matches!(self, Self::Endpoint(endpoint) if endpoint.has_variable(TYPED_VARIABLE))
    }
}

/// The content of a link: a note that clients fetch the resource themselves.
fn link(uri: &Uri) -> Contents {
    let text = format!("{uri} is on the web and is not fetched by this server: fetch it from there.");
    Content { mime: None, ..Content::text(uri.clone(), "", text) }.into()
}
