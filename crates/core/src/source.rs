//! The [`Source`] trait and the types of its methods.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use futures_core::stream::BoxStream;

use crate::uri_template::Specificity;
use crate::{
    CacheScope, Change, Client, Contents, Context, Error, Freshness, Meta, PromptCompletion, PromptMessage,
    Prompts, Proof, Resource, Result, SearchAnswer, SearchQuery, Skill, SkillPage, SourceToolResult,
    SourceTools, Template, Uri, UriSpan, UriTemplate,
};

/// A source of resources, such as a folder, a database or an API.
///
/// Only [`covers`](Source::covers), [`list`](Source::list) and [`read`](Source::read) are required. The contract suite
/// (feature `contract`) tests an implementation.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// The specificity of the pattern by which this source covers `uri`; `None` if it cannot have a resource there.
    /// A catalog tries the source with the most specific pattern first.
    ///
    /// `None` means that [`read`](Source::read) of `uri` would return [`Error::NotFound`]. Must be cheap: a catalog calls
    /// it on every source for every read.
    fn covers(&self, uri: &Uri) -> Option<Specificity>;

    /// Whether a resource at `uri` can be created or removed without a change of the configuration: true for a path in
    /// a folder, false for a resource with a fixed URI. Must be cheap, like [`covers`](Source::covers).
    ///
    /// Clients can subscribe to such a URI before the resource exists. A view also accepts subscriptions to such URIs of
    /// hidden resources, so that clients cannot distinguish hidden from missing resources.
    fn may_appear(&self, uri: &Uri) -> bool {
        self.covers(uri).is_some_and(|specificity| specificity != Specificity::EXACT)
    }

    /// Whether a third party chooses the URIs of this source, as with another MCP server. If another source covers such
    /// a URI too, a catalog serves the URI from neither, because it cannot know which resource the client means; unless
    /// the pattern of the other source is more specific, or matches every URI.
    fn is_exclusive(&self) -> bool {
        false
    }

    /// The name of the source in the status, the log and the metrics, such as `files docs` or `sqlite shop`. It must
    /// not contain a path or a secret.
    fn name(&self) -> Cow<'_, str> {
        "source".into()
    }

    /// Lists one page: at most `limit` resources in URI order after `after` (keyset pagination).
    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page>;

    /// The ranges of URIs, in URI order, that contain all resources that [`list`](Source::list) returns; `None`, the
    /// default, if they are not known. The ranges must never change. A catalog does not query the source for pages
    /// outside of the ranges.
    fn span(&self) -> Option<UriSpan> {
        None
    }

    /// Whether the source can become unavailable although its lists have a [proof](Freshness::proof), as a database
    /// can. A catalog stores the last known list of such a source, and serves it during an outage. It also stores lists
    /// without a proof. It never stores lists for which the source used the identity of the caller.
    fn may_fail(&self) -> bool {
        false
    }

    /// For a source whose [`list`](Source::list) computes all resources for every page: how a catalog may cache the whole
    /// list. `None`, the default, for a source whose `list` starts at `after`.
    ///
    /// With `Some`, a catalog lists all resources for the first page. It takes the following pages from that list until the
    /// [`ttl`](Freshness::ttl) ends or the [`proof`](Freshness::proof) no longer holds. The [`scope`](Freshness::scope) is
    /// private if the list depends on the caller. Clients do not see this freshness.
    fn whole_list(&self) -> Option<Freshness> {
        None
    }

    /// The package of the program that defines this source. Its name and version become those of the server. The attribute
    /// `#[resources]` sets it.
    fn package(&self) -> Option<Package> {
        None
    }

    /// Reads the resource at `uri`; [`Error::NotFound`] if there is none.
    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents>;

    /// The hint of [`Error::missing`] for a URI that this source does not cover, but that is similar to a URI that it
    /// covers. A catalog calls this if no source covers the URI.
    fn hint(&self, _uri: &Uri) -> Option<String> {
        None
    }

    /// Lists the URI templates of the source. [`read`](Source::read) accepts the URIs that match them.
    async fn templates(&self, _context: &Context) -> Result<Templates> {
        Ok(Templates { freshness: Freshness::proven(Proof::always()), ..Templates::default() })
    }

    /// Completes a variable of a template.
    async fn complete(&self, _partial: CompletionRequest<'_>, _context: &Context) -> Result<Completion> {
        Ok(Completion::default())
    }

    /// Lists one page of the direct children of `uri`, in URI order; [`Error::NotDirectory`] if `uri` cannot have
    /// children.
    async fn children(
        &self,
        uri: &Uri,
        _after: Option<&Uri>,
        _limit: usize,
        _context: &Context,
    ) -> Result<Page> {
        Err(Error::NotDirectory(uri.clone()))
    }

    /// Whether [`children`](Source::children) lists the directories of this source, so that the server announces directory
    /// reads to clients.
    fn has_directories(&self) -> bool {
        false
    }

    /// Lists one page of skills: at most `limit`, in URI order after `after`. The list may leave out skills, which then
    /// only [`skill`](Source::skill) returns. The files of skills are resources of the source; reading one gives the
    /// bytes that its digest covers.
    async fn skills(&self, _after: Option<&Uri>, _limit: usize, _context: &Context) -> Result<SkillPage> {
        Ok(SkillPage::default())
    }

    /// The skill whose `SKILL.md` is at `uri`, and how it may be cached; [`Error::NotFound`] if there is none.
    async fn skill(&self, uri: &Uri, _context: &Context) -> Result<(Skill, Freshness)> {
        Err(Error::NotFound(uri.clone()))
    }

    /// Lists the prompts of the source.
    async fn prompts(&self, _context: &Context) -> Result<Prompts> {
        Ok(Prompts::default())
    }

    /// The messages of the prompt with this name; `None`, the default, if the source has no such prompt. The arguments are
    /// already validated: all required ones are present, and there are no unknown ones.
    async fn prompt(
        &self,
        _name: &str,
        _arguments: &BTreeMap<String, String>,
        _context: &Context,
    ) -> Result<Option<Vec<PromptMessage>>> {
        Ok(None)
    }

    /// Completes an argument of a prompt; `None`, the default, if the source has no values for it.
    async fn complete_prompt(
        &self,
        _partial: PromptCompletion<'_>,
        _context: &Context,
    ) -> Result<Option<Completion>> {
        Ok(None)
    }

    /// Whether [`tools`](Source::tools) may return tools, so that the server announces them to clients.
    fn has_tools(&self) -> bool {
        false
    }

    /// Lists the tools of the source.
    async fn tools(&self, _context: &Context) -> Result<SourceTools> {
        Ok(SourceTools::default())
    }

    /// Calls the tool with this name; `None`, the default, if the source has no such tool. The caller may use the tool; the
    /// arguments are not validated.
    async fn call_tool(
        &self,
        _name: &str,
        _arguments: Meta,
        _context: &Context,
    ) -> Result<Option<SourceToolResult>> {
        Ok(None)
    }

    /// Whether [`search`](Source::search) may return hits. If not, the default, a catalog does not call it: a search
    /// must not wait for a permit of a source that has nothing to search.
    fn has_search(&self) -> bool {
        false
    }

    /// Searches with the source's own search engine; `None`, the default, if it has none. A source implements this
    /// and [`has_search`](Source::has_search) if its engine finds more than an index of its texts would, such as the
    /// full-text search of a database. A catalog fuses the hits by rank with the hits of its index, and removes hidden
    /// resources.
    async fn search(&self, _query: &SearchQuery, _context: &Context) -> Result<Option<SearchAnswer>> {
        Ok(None)
    }

    /// Whether the contents at `uri` are expensive and independent of the caller. A catalog then shares one read, without
    /// an identity, between concurrent callers (single-flight). It caches the contents until their
    /// [`ttl`](Freshness::ttl) ends or their [`proof`](Freshness::proof) no longer holds.
    fn is_shared(&self, _uri: &Uri) -> bool {
        false
    }

    /// The key under which the replicas of a server share the contents at `uri`, because they come from a slow service that
    /// is the same for all replicas. The contents must be independent of the identity of the caller. They are shared until
    /// their [`ttl`](Freshness::ttl) ends, unless the caller repeats a request with [input](Context::input). `None`, the
    /// default, for data that is cheap to read or may differ between machines.
    fn replica_key(&self, _uri: &Uri) -> Option<ReplicaKey> {
        None
    }

    /// The subject of `uri`: the URI under which changes of `uri` are reported. For a part of a file, such as a
    /// range of lines, the subject is the URI of the file. Called for subscribed and for changed URIs.
    fn subject(&self, uri: &Uri) -> Uri {
        uri.clone()
    }

    /// Further URIs that the access rules must allow before a caller gets the resource at `uri`: other names of the
    /// resource, and resources whose contents it includes. If a rule denies one of them, the view denies `uri`. The
    /// default is the [subject](Source::subject).
    ///
    /// URIs that differ from `uri` only in spelling, in the query or in a trailing slash need not be returned: rules ignore
    /// these differences.
    fn aliases(&self, uri: &Uri) -> Vec<Uri> {
        let subject = self.subject(uri);
        if subject == *uri { Vec::new() } else { vec![subject] }
    }

    /// Asks the source to report changes of this subject while a watch is open, because a client has subscribed to it. A
    /// source that cannot watch all its resources polls only the followed subjects, and divides its polling time between
    /// the clients. `client` is one of the subscribers. May be called again for a subject that is followed already.
    fn follow(&self, _subject: &Uri, _client: Client) {}

    /// Stops reporting changes of this subject: it has no subscribers left.
    fn unfollow(&self, _subject: &Uri) {}

    /// Whether the watch of this source polls a service that is the same for all replicas of a server, such as a
    /// database server. Then only one replica polls the service, and follows the subjects of all replicas. False,
    /// the default, for data that may differ between machines, such as a folder.
    fn polls_shared_service(&self) -> bool {
        false
    }

    /// Like [`follow`](Source::follow), for clients of other replicas. The source does not know which contents these
    /// clients have read, so the watch reports the subject as changed as soon as the source has read its state once.
    fn follow_for_replicas(&self, subject: &Uri) {
        self.follow(subject, Client::default());
    }

    /// Drops cached data that this change affects. Called for changes that another replica has reported, and for
    /// [`Change::Lost`] of any source, because the watch of this source may have missed the same changes.
    fn invalidate(&self, _change: &Change) {}

    /// The maximum number of concurrent requests, such as reads, completions, searches and tool calls. A catalog issues
    /// this many permits, at most three quarters of them to one client; further requests wait in a queue per client. Lists
    /// have separate permits, half as many; watches need none. A source that limits its work by another quantity uses its
    /// own [`Budget`](crate::Budget) and keeps this default.
    fn concurrency(&self) -> usize {
        64
    }

    /// Verifies the configuration against the service behind the source: for example, whether a database accepts the
    /// configured queries. `libris check` calls it. Returns an error for each wrong part of the configuration; the rest of
    /// the source works. The errors are for the operator, so they may contain parts of the configuration.
    async fn verify(&self) -> Result<Vec<Error>> {
        Ok(Vec::new())
    }

    /// A stream of changes (a watch); `None` if this source cannot report changes. The stream contains every change that
    /// happens after this method has returned. Dropping the stream stops the watch.
    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        Ok(None)
    }

    /// Closes the connections to the services behind the source, before the program exits. No other method is called
    /// afterwards.
    async fn close(&self) {}
}

#[async_trait]
impl<S: Source + ?Sized> Source for Arc<S> {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (**self).covers(uri)
    }

    fn may_appear(&self, uri: &Uri) -> bool {
        (**self).may_appear(uri)
    }

    fn is_exclusive(&self) -> bool {
        (**self).is_exclusive()
    }

    fn name(&self) -> Cow<'_, str> {
        (**self).name()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        (**self).list(after, limit, context).await
    }

    fn span(&self) -> Option<UriSpan> {
        (**self).span()
    }

    fn may_fail(&self) -> bool {
        (**self).may_fail()
    }

    fn whole_list(&self) -> Option<Freshness> {
        (**self).whole_list()
    }

    fn package(&self) -> Option<Package> {
        (**self).package()
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        (**self).read(uri, context).await
    }

    fn hint(&self, uri: &Uri) -> Option<String> {
        (**self).hint(uri)
    }

    async fn templates(&self, context: &Context) -> Result<Templates> {
        (**self).templates(context).await
    }

    async fn complete(&self, partial: CompletionRequest<'_>, context: &Context) -> Result<Completion> {
        (**self).complete(partial, context).await
    }

    async fn children(
        &self,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<Page> {
        (**self).children(uri, after, limit, context).await
    }

    fn has_directories(&self) -> bool {
        (**self).has_directories()
    }

    async fn skills(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<SkillPage> {
        (**self).skills(after, limit, context).await
    }

    async fn skill(&self, uri: &Uri, context: &Context) -> Result<(Skill, Freshness)> {
        (**self).skill(uri, context).await
    }

    async fn prompts(&self, context: &Context) -> Result<Prompts> {
        (**self).prompts(context).await
    }

    async fn prompt(
        &self,
        name: &str,
        arguments: &BTreeMap<String, String>,
        context: &Context,
    ) -> Result<Option<Vec<PromptMessage>>> {
        (**self).prompt(name, arguments, context).await
    }

    async fn complete_prompt(
        &self,
        partial: PromptCompletion<'_>,
        context: &Context,
    ) -> Result<Option<Completion>> {
        (**self).complete_prompt(partial, context).await
    }

    fn has_tools(&self) -> bool {
        (**self).has_tools()
    }

    async fn tools(&self, context: &Context) -> Result<SourceTools> {
        (**self).tools(context).await
    }

    async fn call_tool(
        &self,
        name: &str,
        arguments: Meta,
        context: &Context,
    ) -> Result<Option<SourceToolResult>> {
        (**self).call_tool(name, arguments, context).await
    }

    fn has_search(&self) -> bool {
        (**self).has_search()
    }

    async fn search(&self, query: &SearchQuery, context: &Context) -> Result<Option<SearchAnswer>> {
        (**self).search(query, context).await
    }

    fn is_shared(&self, uri: &Uri) -> bool {
        (**self).is_shared(uri)
    }

    fn replica_key(&self, uri: &Uri) -> Option<ReplicaKey> {
        (**self).replica_key(uri)
    }

    fn subject(&self, uri: &Uri) -> Uri {
        (**self).subject(uri)
    }

    fn aliases(&self, uri: &Uri) -> Vec<Uri> {
        (**self).aliases(uri)
    }

    fn follow(&self, subject: &Uri, client: Client) {
        (**self).follow(subject, client);
    }

    fn unfollow(&self, subject: &Uri) {
        (**self).unfollow(subject);
    }

    fn polls_shared_service(&self) -> bool {
        (**self).polls_shared_service()
    }

    fn follow_for_replicas(&self, subject: &Uri) {
        (**self).follow_for_replicas(subject);
    }

    fn invalidate(&self, change: &Change) {
        (**self).invalidate(change);
    }

    fn concurrency(&self) -> usize {
        (**self).concurrency()
    }

    async fn verify(&self) -> Result<Vec<Error>> {
        (**self).verify().await
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        (**self).watch().await
    }

    async fn close(&self) {
        (**self).close().await;
    }
}

/// The name and version of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    /// The name, such as `notes`.
    pub name: &'static str,
    /// The version, such as `1.2.0`.
    pub version: &'static str,
}

/// The key under which the replicas of a server share contents, and which contents they share. It may contain
/// credentials, so it has no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct ReplicaKey {
    /// What the contents depend on besides the URI, such as the address and the credentials of the service: replicas with
    /// different configurations must not share contents.
    pub text: String,
    /// The narrowest scope of contents that are shared. With [`CacheScope::Private`], all contents are shared, because
    /// the service is the same for every caller. With [`CacheScope::Public`], callers share only public contents, and
    /// each read has the [input](Context::input) of its caller, because the service may ask the user for input.
    pub scope: CacheScope,
}

/// One page of a listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The resources, in URI order.
    pub resources: Vec<Resource>,
    /// Whether there may be more resources after the last one.
    pub more: bool,
    /// How the page may be cached.
    pub freshness: Freshness,
    /// The unavailable sources, whose resources are missing or stale. Only a catalog sets this; a source that cannot
    /// list returns an error.
    pub unavailable: Vec<UnavailableSource>,
}

/// The templates of a source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Templates {
    /// The templates, in any order.
    pub templates: Vec<Template>,
    /// How the templates may be cached.
    pub freshness: Freshness,
    /// The unavailable sources, whose templates are missing or stale. Only a catalog sets this.
    pub unavailable: Vec<UnavailableSource>,
}

impl From<Vec<Template>> for Templates {
    fn from(templates: Vec<Template>) -> Self {
        Self { templates, ..Self::default() }
    }
}

/// A source that is unavailable to a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnavailableSource {
    /// The [name](Source::name) of the source.
    pub source: String,
    /// The start of the outage.
    pub since: SystemTime,
    /// Whether the response contains the last known list of the source; otherwise it contains nothing of this source.
    pub stale: bool,
}

/// A completion request: a template with some variables filled in.
#[derive(Clone, Copy, Debug)]
pub struct CompletionRequest<'a> {
    /// The template.
    pub template: &'a UriTemplate,
    /// The variable to complete.
    pub variable: &'a str,
    /// The text typed so far.
    pub typed: &'a str,
    /// The values of the other variables, as far as they are known.
    pub known: &'a BTreeMap<String, String>,
    /// The maximum number of values.
    pub limit: usize,
}

/// The values of a completion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// The values, best first.
    pub values: Vec<String>,
    /// The total number of values, if known.
    pub total: Option<u64>,
    /// Whether there are more values than those in `values`.
    pub more: bool,
    /// Checks whether the values are still valid. Without a proof, the server does not cache the completion.
    pub proof: Option<Proof>,
}

impl Completion {
    /// The maximum number of values in a response of the protocol.
    pub const LIMIT: usize = 100;

    /// The first `limit` values that begin with the typed text, ignoring case, in the given order.
    pub fn of<S: Into<String> + AsRef<str>>(
        values: impl IntoIterator<Item = S>,
        typed: &str,
        limit: usize,
    ) -> Self {
        let typed = typed.to_lowercase();
        let mut total = 0;
        let mut matching = Vec::new();
        for value in values {
            if !value.as_ref().to_lowercase().starts_with(&typed) {
                continue;
            }
            total += 1;
            if matching.len() < limit {
                matching.push(value.into());
            }
        }
        Self { more: total > matching.len() as u64, values: matching, total: Some(total), proof: None }
    }

    /// Sets the proof that the values are still valid.
    pub fn with_proof(self, proof: impl Into<Option<Proof>>) -> Self {
        Self { proof: proof.into(), ..self }
    }
}
