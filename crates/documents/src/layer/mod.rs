//! The layer: a source that adds the text of documents and the members of archives to another source.

mod archive_folder;
mod bounded_text;
mod complete;
mod images;
mod list;
mod member_path;
mod members;
mod missing;
mod query;
mod read;
mod select;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use libris_core::uri_template::Specificity;
use libris_core::{
    Change, Client, Completion, CompletionRequest, Contents, Context, Error, Freshness, Meta, Package, Page,
    PromptCompletion, PromptMessage, Prompts, Proof, ReplicaKey, Result, SearchAnswer, SearchQuery, Skill,
    SkillFile, SkillPage, SkillResources, Source, SourceToolResult, SourceTools, Templates, Uri, UriSpan,
};
use quick_cache::sync::Cache;

use crate::cache::Digest;
use crate::extract::ExtractOptions;
use crate::{DocumentReader, Format};
use member_path::{MemberPath, is_member, may_be_own};
use query::{ReadForm, document_uri, form_name, requested_form};

/// The maximum number of documents whose digest is remembered.
const MAX_KNOWN: usize = 4_096;

/// The longest URI of such a document, in bytes. It bounds the memory of the digests to 4 MiB per source.
const MAX_KNOWN_URI: usize = 1_024;

/// What a read of a document returns if its URI has no parameter `as`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainRead {
    /// The bytes. The text is at `?as=text`.
    #[default]
    Original,
    /// The text. The bytes are at `?as=original`.
    Text,
}

/// Wraps a source. Adds the text of each document at `?as=text`, pages of PDF files at `?as=image`, and the members of
/// each archive below its URI; all other requests are passed to the source.
pub struct Documents {
    source: Arc<dyn Source>,
    reader: Arc<DocumentReader>,
    plain: PlainRead,
    /// Documents of which a text or images were read, by URI.
    known: Cache<Uri, KnownDocument>,
}

/// The digest of a document that was read, valid while the proof holds.
#[derive(Clone)]
struct KnownDocument {
    digest: Digest,
    options: ExtractOptions,
    proof: Proof,
    freshness: Freshness,
}

impl Documents {
    /// Wraps a source. Several sources should share one reader, whose limits then apply to all of them together.
    pub fn new(source: Arc<dyn Source>, reader: Arc<DocumentReader>, plain: PlainRead) -> Self {
        Self { source, reader, plain, known: Cache::new(MAX_KNOWN) }
    }

    /// Whether this layer, not the source, answers a read of this URI.
    fn is_own(&self, uri: &Uri) -> bool {
        may_be_own(uri) && (form_name(uri).is_some() || is_member(uri))
            || self.plain == PlainRead::Text && Format::by_name(uri.path()).is_some()
    }

    /// The form in which a URI requests a document. `None` if the URI alone does not decide it; the query then belongs
    /// to the source.
    fn form(&self, uri: &Uri) -> Option<ReadForm> {
        let is_plain_document = || {
            self.plain == PlainRead::Text && form_name(uri).is_none() && Format::by_name(uri.path()).is_some()
        };
        requested_form(uri).or_else(|| is_plain_document().then_some(ReadForm::Text))
    }

    /// The URI of a document, without the parameters of this layer.
    fn document<'a>(&self, uri: &'a Uri) -> Cow<'a, Uri> {
        self.form(uri).map_or(Cow::Borrowed(uri), |form| document_uri(uri, form))
    }

    /// The URI in the source on which `uri` depends: its document, or the outermost archive that contains the document.
    fn inner_uri<'a>(&self, uri: &'a Uri) -> Cow<'a, Uri> {
        if !may_be_own(uri) {
            return Cow::Borrowed(uri);
        }
        let document = self.document(uri);
        match MemberPath::of(&document) {
            // If the source covers the resource by a more specific pattern than the archive, the archive is only a name
            // in its path, as in a web API.
            Some(member) if self.source.covers(&document) <= self.source.covers(&member.archive) => {
                Cow::Owned(member.archive)
            }
            _ => document,
        }
    }
}

impl Documents {
    /// Removes the digests of a skill's files if one of them is a document whose plain URI gives its text: the digests
    /// are those of the bytes.
    fn describe_skill(&self, skill: &mut Skill) {
        let is_document = |file: &SkillFile| Format::by_name(file.uri.path()).is_some();
        if self.plain == PlainRead::Text
            && let SkillResources::Files(files) = &skill.resources
            && files.iter().any(is_document)
        {
            skill.resources = SkillResources::Dynamic;
        }
    }
}

/// What an `async` method of [`Source`] returns.
type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

#[async_trait]
impl Source for Documents {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        if !self.is_own(uri) {
            return self.source.covers(uri);
        }
        let covered = self.source.covers(&self.document(uri));
        let covered = covered.or_else(|| self.source.covers(&self.inner_uri(uri)));
        // A URI with an unknown form is covered too, so that a read of it returns an error that names the forms.
        covered.or_else(|| {
            form_name(uri).and_then(|_| self.source.covers(&document_uri(uri, ReadForm::Original)))
        })
    }

    fn may_appear(&self, uri: &Uri) -> bool {
        if !self.is_own(uri) {
            return self.source.may_appear(uri);
        }
        self.source.may_appear(&self.document(uri)) || self.source.may_appear(&self.inner_uri(uri))
    }

    async fn close(&self) {
        self.source.close().await;
    }

    fn is_exclusive(&self) -> bool {
        self.source.is_exclusive()
    }

    fn name(&self) -> Cow<'_, str> {
        self.source.name()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        let mut page = self.source.list(after, limit, context).await?;
        self.describe(&mut page);
        Ok(page)
    }

    fn span(&self) -> Option<UriSpan> {
        // `list` returns only resources of the source; members are listed by `children`.
        self.source.span()
    }

    fn may_fail(&self) -> bool {
        self.source.may_fail()
    }

    fn whole_list(&self) -> Option<Freshness> {
        self.source.whole_list()
    }

    fn package(&self) -> Option<Package> {
        self.source.package()
    }

    // Not `async`: for anything but a document, this returns the source's own future, without another allocation.
    fn read<'a, 'b, 'c, 'd>(&'a self, uri: &'b Uri, context: &'c Context) -> SourceFuture<'d, Contents>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
    {
        match self.is_own(uri) {
            false if self.plain == PlainRead::Original => self.source.read(uri, context),
            _ => Box::pin(self.read_own(uri, context)),
        }
    }

    fn hint(&self, uri: &Uri) -> Option<String> {
        self.source.hint(uri)
    }

    async fn templates(&self, context: &Context) -> Result<Templates> {
        let mut templates = self.source.templates(context).await?;
        let texts = templates.templates.iter().filter_map(complete::text_template);
        let images = templates.templates.iter().filter_map(complete::image_template);
        let own: Vec<_> = texts.chain(images).collect();
        templates.templates.extend(own);
        Ok(templates)
    }

    async fn complete(&self, partial: CompletionRequest<'_>, context: &Context) -> Result<Completion> {
        match self.inner_template(&partial, context).await? {
            Some(inner) => self.complete_own(partial, &inner, context).await,
            None => self.source.complete(partial, context).await,
        }
    }

    async fn children(
        &self,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<Page> {
        let member = MemberPath::of(uri);
        match (self.source.children(uri, after, limit, context).await, member) {
            (Err(Error::NotDirectory(_) | Error::NotFound(_) | Error::Missing { .. }), Some(member)) => {
                self.member_children(uri, &member, after, limit, context).await
            }
            (page, _) => {
                let mut page = page?;
                self.describe(&mut page);
                Ok(page)
            }
        }
    }

    fn has_directories(&self) -> bool {
        self.source.has_directories()
    }

    async fn skills(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<SkillPage> {
        let mut page = self.source.skills(after, limit, context).await?;
        page.skills.iter_mut().for_each(|skill| self.describe_skill(skill));
        Ok(page)
    }

    async fn skill(&self, uri: &Uri, context: &Context) -> Result<(Skill, Freshness)> {
        let (mut skill, freshness) = self.source.skill(uri, context).await?;
        self.describe_skill(&mut skill);
        Ok((skill, freshness))
    }

    async fn prompts(&self, context: &Context) -> Result<Prompts> {
        self.source.prompts(context).await
    }

    async fn prompt(
        &self,
        name: &str,
        arguments: &BTreeMap<String, String>,
        context: &Context,
    ) -> Result<Option<Vec<PromptMessage>>> {
        self.source.prompt(name, arguments, context).await
    }

    async fn complete_prompt(
        &self,
        partial: PromptCompletion<'_>,
        context: &Context,
    ) -> Result<Option<Completion>> {
        self.source.complete_prompt(partial, context).await
    }

    fn has_tools(&self) -> bool {
        self.source.has_tools()
    }

    async fn tools(&self, context: &Context) -> Result<SourceTools> {
        self.source.tools(context).await
    }

    async fn call_tool(
        &self,
        name: &str,
        arguments: Meta,
        context: &Context,
    ) -> Result<Option<SourceToolResult>> {
        self.source.call_tool(name, arguments, context).await
    }

    fn is_shared(&self, uri: &Uri) -> bool {
        self.source.is_shared(&self.inner_uri(uri))
    }

    /// Replicas share documents, but not their texts and members: each replica has its own extraction cache.
    fn replica_key(&self, uri: &Uri) -> Option<ReplicaKey> {
        let is_unchanged = self.plain != PlainRead::Text && *self.inner_uri(uri) == *uri;
        is_unchanged.then(|| self.source.replica_key(uri)).flatten()
    }

    fn subject(&self, uri: &Uri) -> Uri {
        self.source.subject(&self.inner_uri(uri))
    }

    fn aliases(&self, uri: &Uri) -> Vec<Uri> {
        let inner = self.inner_uri(uri);
        let mut aliases = self.source.aliases(&inner);
        // A caller from whom the document or archive is hidden must not see its text or members either.
        if *inner != *uri {
            aliases.push(inner.into_owned());
        }
        if may_be_own(uri) {
            // The first one is `inner`.
            aliases.extend(MemberPath::archives(uri).into_iter().skip(1));
        }
        aliases
    }

    fn has_search(&self) -> bool {
        self.source.has_search()
    }

    async fn search(&self, query: &SearchQuery, context: &Context) -> Result<Option<SearchAnswer>> {
        self.source.search(query, context).await
    }

    fn follow(&self, subject: &Uri, client: Client) {
        self.source.follow(subject, client);
    }

    fn unfollow(&self, subject: &Uri) {
        self.source.unfollow(subject);
    }

    fn polls_shared_service(&self) -> bool {
        self.source.polls_shared_service()
    }

    fn follow_for_replicas(&self, subject: &Uri) {
        self.source.follow_for_replicas(subject);
    }

    fn invalidate(&self, change: &Change) {
        self.source.invalidate(change);
    }

    fn concurrency(&self) -> usize {
        self.source.concurrency()
    }

    async fn verify(&self) -> Result<Vec<Error>> {
        self.source.verify().await
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        self.source.watch().await
    }
}
