//! The skills source: folders with a `SKILL.md`, served as the Skills extension of MCP describes.
//!
//! The URI of a file is `skill://<prefix>/<path>`, and that of a directory has no slash at the end. Only the files of
//! valid skills exist for callers; `crate::skill_tree` finds and checks the skills.

mod config;
mod definition;
mod missing;
mod read;
mod watch;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use libris_core::uri_template::Specificity;
use libris_core::{
    Change, Contents, Context, Error, Freshness, Page, Result, Skill, SkillPage, Source, Uri, UriSpan,
};

pub use config::Config;

pub use crate::skill_tree::{check_entry, relative_path, verify};

use crate::patterns::ConfiguredPatterns;
use crate::skill_tree::{MAX_BYTES, SKILL_FILE, SkillOptions, SkillSnapshot, SkillTree};
use crate::tree::{Root, Tree, TreeThreads, is_cancelled, name};

/// The prefix of all URIs.
const SCHEME: &str = "skill://";

/// The maximum number of threads that work on requests for one folder at once.
const MAX_THREADS: usize = 8;

/// A folder of skills as a source.
pub struct Skills {
    inner: Arc<SkillsInner>,
}

/// The state that requests and the watch share.
struct SkillsInner {
    config: Config,
    /// The name of the folder.
    name: String,
    /// The part of a URI between the scheme and the key: segments, each followed by a slash.
    prefix: String,
    tree: Arc<Tree>,
    skills: SkillTree,
    /// Limits the threads that work on requests.
    threads: TreeThreads,
}

impl Skills {
    /// Opens the folder, which must exist.
    pub fn open(config: Config) -> Result<Self> {
        if config.path.as_os_str().is_empty() {
            return Err(Error::invalid("a folder of skills has no `path`; hint: set `path` to the folder"));
        }
        let shown = config.path.display().to_string();
        let unreadable = |cause: io::Error| {
            Error::Unavailable(format!(
                "the folder of skills `{shown}` cannot be opened: {cause}; hint: check the path"
            ))
        };
        let path = std::path::absolute(&config.path).map_err(unreadable)?;
        let root = Root::open(&path).map_err(unreadable)?;
        let name = match path.file_name() {
            Some(name) => name.to_owned(),
            None => path.canonicalize().map_err(unreadable)?.file_name().unwrap_or_default().to_owned(),
        };
        let segment = name::to_segment(&name).unwrap_or_default();
        let mut prefix = prefix(config.prefix.as_deref().unwrap_or_default())?;
        let tree = Tree::open(&config.tree_options(), root)?;
        let names = tree.watched_root().and_then(|root| tree.names(&root)).map_err(unreadable)?;
        // If the folder itself is a skill, its name is part of the URIs.
        let is_skill = names.contains(SKILL_FILE);
        if is_skill {
            prefix = format!("{prefix}{segment}/");
        }
        let options = SkillOptions {
            root_name: segment,
            max_size: MAX_BYTES,
            authority: prefix.is_empty(),
            dynamic: ConfiguredPatterns::new("dynamic", &config.dynamic)?,
            unlisted: ConfiguredPatterns::new("unlisted", &config.unlisted)?,
        };
        let inner = SkillsInner {
            name: name.to_string_lossy().into_owned(),
            prefix,
            tree: Arc::new(tree),
            skills: SkillTree::new(options),
            threads: TreeThreads::new(MAX_THREADS),
            config,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Runs `work` for the client of a request on a thread that may block.
    async fn blocking<T: Send + 'static>(
        &self,
        context: &Context,
        work: impl FnOnce(&SkillsInner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        self.inner.threads.run(context.client(), move || work(&inner)).await
    }
}

/// The configured prefix in its normal form: empty, or with a slash at the end.
fn prefix(configured: &str) -> Result<String> {
    let segments = configured.trim_matches('/');
    if segments.is_empty() {
        return Ok(String::new());
    }
    let uri = format!("{SCHEME}{segments}/");
    match Uri::parse(&uri) {
        Ok(parsed) if parsed.without_query().as_str() == uri && !segments.contains("//") => {
            Ok(format!("{segments}/"))
        }
        _ => Err(Error::invalid(format!(
            "`{configured}` cannot be the `prefix` of skills; hint: use names with slashes between them, such as \
             `acme/billing`"
        ))),
    }
}

#[async_trait]
impl Source for Skills {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.inner.locate(uri).map(|_| Specificity::EXACT)
    }

    fn may_appear(&self, uri: &Uri) -> bool {
        self.inner.locate(uri).is_some()
    }

    fn hint(&self, uri: &Uri) -> Option<String> {
        self.inner.query_hint(uri)
    }

    fn name(&self) -> Cow<'_, str> {
        format!("skills {}", self.inner.name).into()
    }

    fn span(&self) -> Option<UriSpan> {
        Some(UriSpan::below(SCHEME))
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        let after = after.cloned();
        self.blocking(context, move |inner| inner.list(after.as_ref(), limit)).await
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let (uri, request) = (uri.clone(), context.clone());
        self.blocking(context, move |inner| inner.read(&uri, &request)).await
    }

    async fn children(
        &self,
        uri: &Uri,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<Page> {
        let (uri, after) = (uri.clone(), after.cloned());
        self.blocking(context, move |inner| inner.children(&uri, after.as_ref(), limit)).await
    }

    fn has_directories(&self) -> bool {
        true
    }

    async fn skills(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<SkillPage> {
        let after = after.cloned();
        self.blocking(context, move |inner| {
            let mut page = inner.skills.page(&inner.tree, &|key| inner.uri(key), after.as_ref(), limit)?;
            page.freshness = inner.freshness(page.freshness);
            Ok(page)
        })
        .await
    }

    async fn skill(&self, uri: &Uri, context: &Context) -> Result<(Skill, Freshness)> {
        let uri = uri.clone();
        self.blocking(context, move |inner| {
            let not_found = || Error::NotFound(uri.clone());
            let location = inner.locate(&uri).filter(|_| !uri.as_str().ends_with('/'));
            let SkillLocation::InFolder(key) = location.ok_or_else(not_found)? else {
                return Err(not_found());
            };
            let found = inner.skills.skill(&inner.tree, &|key| inner.uri(key), key)?;
            let (skill, freshness) = found.ok_or_else(not_found)?;
            Ok((skill, inner.freshness(freshness)))
        })
        .await
    }

    fn subject(&self, uri: &Uri) -> Uri {
        match uri.as_str().strip_suffix('/') {
            Some(without) => Uri::parse(without).unwrap_or_else(|_| uri.clone()),
            None => uri.clone(),
        }
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        watch::start(&self.inner).await.map(Some)
    }
}

/// The location that a URI of the source names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SkillLocation<'a> {
    /// The key of a file or directory in the folder; empty for the folder itself.
    InFolder(&'a str),
    /// A directory above the folder, by its path without a slash at the end.
    AboveFolder(&'a str),
}

impl SkillsInner {
    /// The location that a URI names; `None` if it is not of this source. A slash at the end is ignored.
    fn locate<'a>(&self, uri: &'a Uri) -> Option<SkillLocation<'a>> {
        if uri.query().is_some() || uri.fragment().is_some() {
            return None;
        }
        let path = uri.as_str().strip_prefix(SCHEME)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        if path.is_empty() {
            return None;
        }
        match path.strip_prefix(&*self.prefix) {
            Some(key) => Some(SkillLocation::InFolder(key)),
            None if self.prefix.strip_suffix('/') == Some(path) => Some(SkillLocation::InFolder("")),
            None => {
                let rest = self.prefix.strip_prefix(path)?;
                rest.starts_with('/').then_some(SkillLocation::AboveFolder(path))
            }
        }
    }

    /// The URI of a key, without the slash at the end of a directory; `None` if it would be too long.
    fn uri(&self, key: &str) -> Option<Uri> {
        let path = format!("{SCHEME}{}{key}", self.prefix);
        Uri::parse(path.strip_suffix('/').unwrap_or(&path)).ok()
    }

    fn snapshot(&self) -> Result<Arc<SkillSnapshot>> {
        self.skills.snapshot(&self.tree).map_err(|cause| self.unavailable(cause))
    }

    fn freshness(&self, proven: Freshness) -> Freshness {
        proven.with_ttl(self.config.ttl).with_scope(self.config.scope)
    }

    fn unavailable(&self, cause: io::Error) -> Error {
        if !is_cancelled(&cause) {
            tracing::warn!(folder = self.name, %cause, "the folder of skills cannot be read");
        }
        Error::Unavailable(format!(
            "the folder of skills `{}` cannot be read now; hint: check that it still exists and that Libris may read it",
            self.name
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{Config, SkillLocation, Skills, prefix};
    use libris_core::Uri;

    #[test]
    fn uris_lead_into_the_folder_or_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let skills = |prefix: Option<&str>| {
            Skills::open(Config { prefix: prefix.map(Into::into), ..Config::new(folder.path()) })
                .unwrap()
                .inner
        };
        let (plain, prefixed) = (skills(None), skills(Some("/acme/billing/")));
        let uri = |text: &str| Uri::parse(text).unwrap();
        assert_eq!(plain.locate(&uri("skill://a/b.md")), Some(SkillLocation::InFolder("a/b.md")));
        assert_eq!(plain.locate(&uri("skill://a/")), Some(SkillLocation::InFolder("a")));
        assert_eq!(plain.uri("a/").unwrap().as_str(), "skill://a");
        for (text, place) in [
            ("skill://acme/billing/a", Some(SkillLocation::InFolder("a"))),
            ("skill://acme/billing", Some(SkillLocation::InFolder(""))),
            ("skill://acme/billing/", Some(SkillLocation::InFolder(""))),
            ("skill://acme", Some(SkillLocation::AboveFolder("acme"))),
            ("skill://acme/", Some(SkillLocation::AboveFolder("acme"))),
            ("skill://ac", None),
            ("skill://acme/billings", None),
            ("skill://acme/billing/a?x=1", None),
            ("file:///acme/billing/a", None),
        ] {
            assert_eq!(prefixed.locate(&uri(text)), place, "{text}");
        }
        assert_eq!(prefixed.uri("a/b%20c").unwrap().as_str(), "skill://acme/billing/a/b%20c");
    }

    #[test]
    fn a_prefix_has_the_form_of_a_path() {
        assert_eq!(prefix("").unwrap(), "");
        assert_eq!(prefix("acme").unwrap(), "acme/");
        assert_eq!(prefix("/acme/v2/").unwrap(), "acme/v2/");
        for wrong in ["a b", "a//b", "a?b", "a/../b", "a#b", "ä"] {
            assert!(prefix(wrong).is_err(), "{wrong}");
        }
    }
}
