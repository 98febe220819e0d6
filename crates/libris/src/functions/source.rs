//! `FunctionSource`: resources from closures and free functions, which can be added and removed at run time.

use std::borrow::Cow;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use libris_core::uri_template::Specificity;
use libris_core::{
    CacheScope, Change, Completion, CompletionRequest, Contents, Context, Error, Freshness, Page, Result,
    Source, Templates, Uri, UriTemplate,
};

use super::{
    Instance, IntoCompletion, IntoContents, IntoInstances, LIST_TTL, Notifier, Request, ResourceSpec, Routes,
};

/// A [`Source`] of resources from closures and free functions.
///
/// Pass it to [`serve`](crate::serve), or to a [`Catalog`](crate::Catalog) with other sources.
///
/// ```
/// use libris::{FunctionSource, Request, ResourceSpec};
///
/// async fn forecast(request: Request) -> libris::Result<String> {
///     let city: String = request.variable("city")?;
///     let days: u32 = request.optional("days")?.unwrap_or(1);
///     Ok(format!("{days} days of sun in {city}"))
/// }
///
/// let functions = FunctionSource::new()
///     .resource("weather://cities", || "Paris, Oslo")
///     .template(ResourceSpec::new("weather://forecast/{city}{?days}").title("Forecast"), forecast)
///     .complete("weather://forecast/{city}{?days}", "city", |_| vec!["Paris", "Oslo"]);
///
/// // At run time, from anywhere:
/// let handle = functions.handle();
/// handle.resource("weather://warnings", || "storm")?;
/// handle.updated("weather://warnings")?;
/// # Ok::<(), libris::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct FunctionSource {
    handle: FunctionSourceHandle,
}

/// Adds and removes resources of a [`FunctionSource`] and reports their changes. Cheap to clone.
#[derive(Clone, Default)]
pub struct FunctionSourceHandle {
    registry: Arc<RwLock<FunctionRegistry>>,
    notifier: Notifier,
}

#[derive(Default)]
struct FunctionRegistry {
    routes: Routes<BoxedFunction>,
    completers: Vec<(UriTemplate, String, Completer)>,
    lists: Vec<(UriTemplate, Lister)>,
}

type BoxedFunction =
    Arc<dyn Fn(Request, Option<String>) -> BoxFuture<'static, Result<Contents>> + Send + Sync>;
type Completer = Arc<dyn Fn(&str, usize) -> Result<Completion> + Send + Sync>;
type Lister = Arc<dyn Fn() -> BoxFuture<'static, Result<Vec<Instance>>> + Send + Sync>;

/// A closure or function that returns contents: with or without a [`Request`] parameter, `async` or not.
///
/// The compiler infers `HandlerKind`, which distinguishes these four signatures.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a resource",
    note = "pass a function or closure that takes nothing or a `libris::Request`, `async` or not, and \
            returns text, bytes, `libris::Json`, or a `Result` or `Option` of these"
)]
pub trait Handler<HandlerKind>: Send + Sync + 'static {
    /// Calls the function; `mime` is the declared media type.
    fn call(&self, request: Request, mime: Option<String>) -> BoxFuture<'static, Result<Contents>>;
}

/// Distinguishes the implementations of [`Handler`] by parameter and return type.
pub struct HandlerKind<Takes, Gives>(PhantomData<(Takes, Gives)>);

/// Marks handlers that return contents.
pub struct Immediate;

/// Marks handlers that return a future of contents.
pub struct Deferred;

impl<F, T> Handler<HandlerKind<(), Immediate>> for F
where
    F: Fn() -> T + Send + Sync + 'static,
    T: IntoContents,
{
    fn call(&self, request: Request, mime: Option<String>) -> BoxFuture<'static, Result<Contents>> {
        let contents = self().into_contents(request.uri(), mime.as_deref());
        futures_util::future::ready(contents).boxed()
    }
}

impl<F, R> Handler<HandlerKind<(), Deferred>> for F
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output: IntoContents> + Send + 'static,
{
    fn call(&self, request: Request, mime: Option<String>) -> BoxFuture<'static, Result<Contents>> {
        self().map(move |value| value.into_contents(request.uri(), mime.as_deref())).boxed()
    }
}

impl<F, T> Handler<HandlerKind<Request, Immediate>> for F
where
    F: Fn(Request) -> T + Send + Sync + 'static,
    T: IntoContents,
{
    fn call(&self, request: Request, mime: Option<String>) -> BoxFuture<'static, Result<Contents>> {
        let uri = request.uri().clone();
        futures_util::future::ready(self(request).into_contents(&uri, mime.as_deref())).boxed()
    }
}

impl<F, R> Handler<HandlerKind<Request, Deferred>> for F
where
    F: Fn(Request) -> R + Send + Sync + 'static,
    R: Future<Output: IntoContents> + Send + 'static,
{
    fn call(&self, request: Request, mime: Option<String>) -> BoxFuture<'static, Result<Contents>> {
        let uri = request.uri().clone();
        self(request).map(move |value| value.into_contents(&uri, mime.as_deref())).boxed()
    }
}

impl FunctionSource {
    /// A source without resources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource.
    ///
    /// # Panics
    ///
    /// If the URI is malformed or has variables, or if the metadata is invalid; [`FunctionSourceHandle::resource`]
    /// returns an error instead.
    pub fn resource<K>(self, spec: impl Into<ResourceSpec>, function: impl Handler<K>) -> Self {
        expected(self.handle.resource(spec, function));
        self
    }

    /// Adds a template.
    ///
    /// # Panics
    ///
    /// If the template is malformed or has no variables, or if the metadata is invalid;
    /// [`FunctionSourceHandle::template`] returns an error instead.
    pub fn template<K>(self, spec: impl Into<ResourceSpec>, function: impl Handler<K>) -> Self {
        expected(self.handle.template(spec, function));
        self
    }

    /// Adds a completion function for a variable of a template. The function gets the typed text. From a `Vec`, the
    /// values that begin with that text are offered; a [`Completion`] is returned unchanged.
    ///
    /// # Panics
    ///
    /// If there is no such template, or it has no such variable.
    pub fn complete<T: IntoCompletion>(
        self,
        template: &str,
        variable: &str,
        values: impl Fn(&str) -> T + Send + Sync + 'static,
    ) -> Self {
        expected(self.handle.complete(template, variable, values));
        self
    }

    /// Adds a function that lists the resources of a template.
    ///
    /// # Panics
    ///
    /// If there is no such template.
    pub fn list<T, R>(self, template: &str, list: impl Fn() -> R + Send + Sync + 'static) -> Self
    where
        T: IntoInstances + 'static,
        R: Future<Output = T> + Send + 'static,
    {
        expected(self.handle.list(template, list));
        self
    }

    /// A handle that adds and removes resources at run time and reports changes.
    pub fn handle(&self) -> FunctionSourceHandle {
        self.handle.clone()
    }
}

fn expected<T>(result: Result<T>) {
    if let Err(error) = result {
        panic!("{error}");
    }
}

impl FunctionSourceHandle {
    /// Adds a resource, or replaces the resource with the same URI, and reports the change.
    pub fn resource<K>(&self, spec: impl Into<ResourceSpec>, function: impl Handler<K>) -> Result<()> {
        let function: BoxedFunction = Arc::new(move |request, mime| function.call(request, mime));
        let (uri, replaced) = self.write().routes.add_resource(spec.into(), function)?;
        match replaced {
            true => {
                self.notifier.report(Change::Described(uri.clone()));
                self.notifier.report(Change::Updated(uri));
            }
            false => self.notifier.report(Change::Added(uri)),
        }
        Ok(())
    }

    /// Adds a template, or replaces the template with the same text.
    pub fn template<K>(&self, spec: impl Into<ResourceSpec>, function: impl Handler<K>) -> Result<()> {
        let function: BoxedFunction = Arc::new(move |request, mime| function.call(request, mime));
        self.write().routes.add_template(spec.into(), function)?;
        self.notifier.everything();
        Ok(())
    }

    /// Removes the resource or template with this text. Returns whether it existed.
    pub fn remove(&self, text: impl AsRef<str>) -> Result<bool> {
        let template = UriTemplate::parse(text.as_ref())?;
        if template.variables().next().is_some() {
            let mut registry = self.write();
            let removed = registry.routes.remove_template(&template);
            registry.completers.retain(|(of, ..)| *of != template);
            registry.lists.retain(|(of, _)| *of != template);
            drop(registry);
            if removed {
                self.notifier.everything();
            }
            return Ok(removed);
        }
        let uri = Uri::parse(text.as_ref())?;
        let removed = self.write().routes.remove_resource(&uri);
        if removed {
            self.notifier.report(Change::Removed(uri));
        }
        Ok(removed)
    }

    /// Reports that the contents of this resource changed.
    pub fn updated(&self, uri: impl AsRef<str>) -> Result<()> {
        self.notifier.updated(uri)
    }

    /// The notifier for all other changes.
    pub fn notifier(&self) -> &Notifier {
        &self.notifier
    }

    /// Sets the completion function for a variable of a template; see [`FunctionSource::complete`].
    pub fn complete<T: IntoCompletion>(
        &self,
        template: &str,
        variable: &str,
        values: impl Fn(&str) -> T + Send + Sync + 'static,
    ) -> Result<()> {
        let template = self.known(template)?;
        if !template.variables().any(|name| name == variable) {
            return Err(Error::invalid(format!("`{template}` has no variable `{variable}`")));
        }
        let completer: Completer =
            Arc::new(move |typed, limit| values(typed).into_completion(Some(typed), limit));
        let mut registry = self.write();
        registry.completers.retain(|(of, name, _)| *of != template || name != variable);
        registry.completers.push((template, variable.to_owned(), completer));
        Ok(())
    }

    /// Sets the function that lists the resources of a template.
    pub fn list<T, R>(&self, template: &str, list: impl Fn() -> R + Send + Sync + 'static) -> Result<()>
    where
        T: IntoInstances + 'static,
        R: Future<Output = T> + Send + 'static,
    {
        let template = self.known(template)?;
        let lister: Lister = Arc::new(move || list().map(IntoInstances::into_instances).boxed());
        let mut registry = self.write();
        registry.lists.retain(|(of, _)| *of != template);
        registry.lists.push((template, lister));
        drop(registry);
        self.notifier.everything();
        Ok(())
    }

    fn known(&self, template: &str) -> Result<UriTemplate> {
        let template = UriTemplate::parse(template)?;
        match self.read().routes.template(&template) {
            Some(_) => Ok(template),
            None => Err(Error::invalid(format!("there is no template `{template}`; add it first"))),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, FunctionRegistry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, FunctionRegistry> {
        self.registry.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Source for FunctionSource {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.handle.read().routes.covers(uri)
    }

    fn name(&self) -> Cow<'_, str> {
        "functions".into()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, _context: &Context) -> Result<Page> {
        let proof = self.handle.notifier.list_proof();
        let lists = self.handle.read().lists.clone();
        // What a function lists can change at any time.
        let proof = lists.is_empty().then_some(proof);
        let mut listed = Vec::new();
        for (template, list) in lists {
            let instances = list().await?;
            listed.extend(self.handle.read().routes.instances(&template, instances));
        }
        let page = self.handle.read().routes.page(listed, after, limit);
        Ok(Page { freshness: Freshness::proven(proof), ..page })
    }

    fn whole_list(&self) -> Option<Freshness> {
        let has_lists = !self.handle.read().lists.is_empty();
        has_lists.then(|| {
            Freshness::proven(self.handle.notifier.list_proof())
                .with_ttl(LIST_TTL)
                .with_scope(CacheScope::Public)
        })
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let proof = self.handle.notifier.proof();
        let (function, request, mime) = self.handle.read().routes.request(uri, context)?;
        let mut contents = function(request, mime).await?;
        let ttl = self.handle.read().routes.cache_ttl(uri);
        contents.freshness.proof = ttl.map(|_| proof);
        contents.freshness.ttl = ttl.unwrap_or(contents.freshness.ttl);
        Ok(contents)
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        let freshness = Freshness::proven(self.handle.notifier.proof());
        Ok(Templates { templates: self.handle.read().routes.templates(), freshness, ..Templates::default() })
    }

    async fn complete(&self, partial: CompletionRequest<'_>, _context: &Context) -> Result<Completion> {
        let completer = {
            let registry = self.handle.read();
            let mut all = registry.completers.iter();
            all.find(|(template, variable, _)| template == partial.template && variable == partial.variable)
                .map(|(.., completer)| completer.clone())
        };
        completer
            .map_or_else(|| Ok(Completion::default()), |completer| completer(partial.typed, partial.limit))
    }

    fn is_shared(&self, uri: &Uri) -> bool {
        self.handle.read().routes.cache_ttl(uri).is_some()
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        Ok(Some(self.handle.notifier.watch()))
    }
}
