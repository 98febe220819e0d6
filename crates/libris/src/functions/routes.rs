//! Routes: which function serves which URI.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use libris_core::uri_template::{Specificity, TemplateSet, Variables};
use libris_core::{
    Annotations, Audience, Context, Error, Icon, Page, Resource, Result, Template, Uri, UriSpan, UriTemplate,
};

use super::{Instance, Request};

/// The metadata of a resource or template from a function, and how long to cache its contents.
///
/// ```
/// use libris::{Audience, ResourceSpec};
/// use std::time::Duration;
///
/// let spec = ResourceSpec::new("weather://forecast/{city}")
///     .title("Forecast")
///     .mime("application/json")
///     .audience([Audience::Assistant])
///     .priority(0.8)
///     .cache(Duration::from_secs(300));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ResourceSpec {
    uri: String,
    name: Option<String>,
    title: Option<String>,
    description: Option<String>,
    mime: Option<String>,
    icons: Vec<Icon>,
    annotations: Annotations,
    cache_ttl: Option<Duration>,
}

impl ResourceSpec {
    /// Metadata for this URI or template.
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into(), ..Self::default() }
    }

    text_setters! {
        /// Sets the short name. Default: the last path segment of the URI.
        name
        /// Sets the display name.
        title
        /// Sets the description.
        description
        /// Sets the media type. Default: that of the returned contents.
        mime
    }

    /// Adds an icon: an `https:` or `data:` URI.
    pub fn icon(mut self, src: impl Into<String>) -> Self {
        self.icons.push(Icon { src: src.into(), mime: None, sizes: Vec::new(), theme: None });
        self
    }

    /// Sets the intended audience.
    pub fn audience(mut self, audience: impl IntoIterator<Item = Audience>) -> Self {
        self.annotations.audience = audience.into_iter().collect();
        self
    }

    /// Sets the importance, from 0 to 1.
    pub fn priority(mut self, priority: f64) -> Self {
        self.annotations.priority = Some(priority);
        self
    }

    /// Caches contents for this long, and shares one call between concurrent reads (single-flight).
    pub fn cache(self, ttl: Duration) -> Self {
        Self { cache_ttl: Some(ttl), ..self }
    }

    fn resource(&self, uri: Uri) -> Resource {
        Resource {
            name: self.name.clone().unwrap_or_else(|| last_part(uri.as_str())),
            uri,
            title: self.title.clone(),
            description: self.description.clone(),
            mime: self.mime.clone(),
            size: None,
            icons: self.icons.clone(),
            annotations: self.annotations.clone(),
            meta: None,
        }
    }

    fn template(&self, uri: UriTemplate) -> Template {
        Template {
            name: self.name.clone().unwrap_or_else(|| last_part(uri.as_str())),
            uri,
            title: self.title.clone(),
            description: self.description.clone(),
            mime: self.mime.clone(),
            icons: self.icons.clone(),
            annotations: self.annotations.clone(),
            meta: None,
        }
    }

    fn check(&self) -> Result<()> {
        if self.mime.as_ref().is_some_and(|mime| mime.contains(char::is_control)) {
            return Err(Error::invalid("a media type must not contain control characters"));
        }
        match self.annotations.priority {
            Some(priority) if !(0.0..=1.0).contains(&priority) => {
                Err(Error::invalid(format!("the priority must be from 0 to 1, not `{priority}`")))
            }
            _ => Ok(()),
        }
    }
}

impl From<&str> for ResourceSpec {
    fn from(uri: &str) -> Self {
        Self::new(uri)
    }
}

impl From<String> for ResourceSpec {
    fn from(uri: String) -> Self {
        Self::new(uri)
    }
}

/// The last non-empty path segment of a URI, or of a template before its first variable.
fn last_part(text: &str) -> String {
    let path = text.split_once(':').map_or(text, |(_, path)| path);
    let plain = path.split('{').next().unwrap_or_default();
    let part = plain.rsplit('/').find(|part| !part.is_empty());
    part.unwrap_or(text).to_owned()
}

/// The functions of a source, by URI and by template.
pub struct Routes<T> {
    direct: BTreeMap<Uri, FunctionRoute<T>>,
    templates: TemplateSet<FunctionRoute<T>>,
}

#[derive(Clone)]
struct FunctionRoute<T> {
    spec: ResourceSpec,
    function: T,
}

impl<T> Default for Routes<T> {
    fn default() -> Self {
        Self { direct: BTreeMap::new(), templates: TemplateSet::new([]) }
    }
}

impl<T: Clone> Routes<T> {
    /// The ranges of the URIs that [`page`](Self::page) lists, with the instances of these templates.
    pub fn span(&self, listed: &[&str]) -> Option<UriSpan> {
        let listed =
            listed.iter().map(|template| UriSpan::below(template.split('{').next().unwrap_or_default()));
        self.direct.keys().map(UriSpan::of).chain(listed).reduce(UriSpan::union)
    }

    /// Builds the routes. Each item is the metadata of a resource or template, and its function.
    pub fn of(routes: impl IntoIterator<Item = (ResourceSpec, T)>) -> Result<Self> {
        let mut all = Self::default();
        let mut templates = Vec::new();
        for (spec, function) in routes {
            let template = UriTemplate::parse(&spec.uri)?;
            if template.variables().next().is_none() {
                all.add_resource(spec, function)?;
            } else {
                templates.push((template, FunctionRoute { spec, function }));
            }
        }
        all.templates = TemplateSet::new(templates);
        Ok(all)
    }

    /// Adds or replaces a resource. Returns its URI, and whether it replaced another.
    pub(super) fn add_resource(&mut self, spec: ResourceSpec, function: T) -> Result<(Uri, bool)> {
        spec.check()?;
        if UriTemplate::parse(&spec.uri).is_ok_and(|template| template.variables().next().is_some()) {
            let uri = &spec.uri;
            return Err(Error::invalid(format!(
                "`{uri}` has variables; add it as a template, not as a resource"
            )));
        }
        let uri = Uri::parse(&spec.uri)?;
        let before = self.direct.insert(uri.clone(), FunctionRoute { spec, function });
        Ok((uri, before.is_some()))
    }

    /// Adds or replaces a template.
    pub(super) fn add_template(&mut self, spec: ResourceSpec, function: T) -> Result<()> {
        spec.check()?;
        let template = UriTemplate::parse(&spec.uri)?;
        if template.variables().next().is_none() {
            return Err(Error::invalid(format!(
                "`{template}` has no variables; add it as a resource, not as a template"
            )));
        }
        self.remove_template(&template);
        let others = self.templates.iter().map(|(template, route)| (template.clone(), route.clone()));
        self.templates = TemplateSet::new(
            others.chain([(template, FunctionRoute { spec, function })]).collect::<Vec<_>>(),
        );
        Ok(())
    }

    pub(super) fn remove_resource(&mut self, uri: &Uri) -> bool {
        self.direct.remove(uri).is_some()
    }

    pub(super) fn remove_template(&mut self, template: &UriTemplate) -> bool {
        let there = self.templates.get(template).is_some();
        if there {
            let others = self.templates.iter().filter(|(other, _)| *other != template);
            let others: Vec<_> = others.map(|(template, route)| (template.clone(), route.clone())).collect();
            self.templates = TemplateSet::new(others);
        }
        there
    }

    /// The route for a URI, and the variables of its template; a fixed URI takes precedence over templates.
    fn find(&self, uri: &Uri) -> Option<(&FunctionRoute<T>, Variables)> {
        if let Some(route) = self.direct.get(uri) {
            return Some((route, Variables::new()));
        }
        self.templates.closest(uri).map(|(_, route, variables)| (route, variables))
    }

    /// See [`Source::covers`](crate::Source::covers).
    pub fn covers(&self, uri: &Uri) -> Option<Specificity> {
        if self.direct.contains_key(uri) {
            return Some(Specificity::EXACT);
        }
        self.templates.closest(uri).map(|(template, ..)| template.specificity())
    }

    /// How long contents at `uri` are cached; `None` if they are not.
    pub fn cache_ttl(&self, uri: &Uri) -> Option<Duration> {
        self.find(uri)?.0.spec.cache_ttl
    }

    /// The function for `uri`, the request to pass to it, and the declared media type.
    pub fn request(&self, uri: &Uri, context: &Context) -> Result<(T, Request, Option<String>)> {
        let (route, variables) = self.find(uri).ok_or_else(|| Error::NotFound(uri.clone()))?;
        let request = Request::new(uri.clone(), variables, context.clone());
        Ok((route.function.clone(), request, route.spec.mime.clone()))
    }

    /// The function of this template.
    pub fn template(&self, template: &UriTemplate) -> Option<T> {
        self.templates.get(template).map(|route| route.function.clone())
    }

    /// See [`Source::templates`](crate::Source::templates).
    pub fn templates(&self) -> Vec<Template> {
        self.templates.iter().map(|(template, route)| route.spec.template(template.clone())).collect()
    }

    /// The instances of a template that a function listed, in URI order. Invalid instances are omitted and logged.
    pub fn instances(&self, template: &UriTemplate, instances: Vec<Instance>) -> Vec<ListedInstance> {
        let mut listed: Vec<_> = instances
            .into_iter()
            .filter_map(|mut instance| match instance.uri(template) {
                Ok(uri) => Some(ListedInstance { uri, template: template.clone(), instance }),
                Err(why) => {
                    tracing::error!(why, "an invalid instance is not listed");
                    None
                }
            })
            .collect();
        listed.sort_by(|one, other| one.uri.cmp(&other.uri));
        listed
    }

    /// One page of the fixed resources and of the listed instances.
    pub fn page(&self, mut listed: Vec<ListedInstance>, after: Option<&Uri>, limit: usize) -> Page {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let direct = self.direct.range::<Uri, _>((from, Bound::Unbounded));
        let direct =
            direct.take(limit + 1).map(|(uri, route)| (uri.clone(), route.spec.resource(uri.clone())));
        // A resource with its own function takes precedence over a listed instance.
        let mut found: BTreeMap<Uri, Resource> = direct.collect();
        listed.sort_by(|one, other| one.uri.cmp(&other.uri));
        let start = listed.partition_point(|listed| after.is_some_and(|after| listed.uri <= *after));
        let mut taken = 0;
        for listed in listed.drain(start..) {
            if taken > limit {
                break;
            }
            let Some(route) = self.templates.get(&listed.template) else { continue };
            let like = route.spec.resource(listed.uri.clone());
            match listed.instance.resource(listed.uri.clone(), &listed.template, like) {
                Ok(resource) => {
                    found.entry(listed.uri).or_insert(resource);
                    taken += 1;
                }
                Err(why) => tracing::error!(why, "an invalid instance is not listed"),
            }
        }
        let more = found.len() > limit;
        Page { resources: found.into_values().take(limit).collect(), more, ..Page::default() }
    }
}

/// An instance of a template that a `#[list]` function returned.
pub struct ListedInstance {
    uri: Uri,
    template: UriTemplate,
    instance: Instance,
}
