//! A source that could not be opened: lists and `libris://status` report it as unavailable.

use std::borrow::Cow;

use async_trait::async_trait;
use libris::uri_template::Specificity;
use libris::{
    Contents, Context, Error, Freshness, Page, Prompts, Result, Skill, SkillPage, Source, Templates, Uri,
    UriTemplate,
};

/// Completes the message "could not …" of `Error::failed`, which is shown in `libris://status` and logged.
const DOING: &str = "open the source; the log of the server has the reason";

/// Whether a logged `reason` is the message of an `UnopenedSource`. The log hides these in a terminal where the command has
/// already printed the error.
pub(crate) fn is_reason(text: &str) -> bool {
    text.strip_prefix("could not ") == Some(DOING)
}

/// Takes the place of a source that could not be opened. Lists, reads, templates, skills and prompts fail.
pub(crate) struct UnopenedSource {
    name: String,
    /// Why the source could not be opened, which is logged and never sent: it may contain a path.
    reason: String,
    /// What the URIs of the source begin with.
    prefix: String,
    /// The lowest specificity, so that every other source that covers a URI is tried first.
    specificity: Specificity,
}

impl UnopenedSource {
    /// A source of this kind, such as `files`, with this label in messages and this prefix of its URIs.
    pub(crate) fn new(kind: &str, label: &str, prefix: String, reason: String) -> Self {
        let any = UriTemplate::parse("{+uri}").expect("the template is well-formed");
        Self { name: public_name(kind, label), reason, prefix, specificity: any.specificity() }
    }

    /// The error for a URI that no other source has.
    fn missing(&self, uri: &Uri) -> Error {
        let name = &self.name;
        Error::missing(
            uri,
            format!("it may belong to `{name}`, which could not be opened; read `libris://status`"),
        )
    }

    fn error(&self) -> Error {
        Error::failed(DOING, self.reason.clone())
    }
}

/// A name without a path and without credentials, such as `files docs` for the label `/srv/docs`.
fn public_name(kind: &str, label: &str) -> String {
    let label = label.split(['?', '#']).next().unwrap_or_default().trim_end_matches(['/', '\\']);
    let last = label.rsplit(['/', '\\', ':', '@']).next().unwrap_or_default();
    match last {
        "" | "." | ".." => kind.to_owned(),
        last if last.eq_ignore_ascii_case(kind) => kind.to_owned(),
        last => format!("{kind} {last}"),
    }
}

#[async_trait]
impl Source for UnopenedSource {
    /// Covers only URIs that the source may have, because clients can subscribe to every covered URI.
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        uri.as_str().starts_with(&self.prefix).then_some(self.specificity)
    }

    fn name(&self) -> Cow<'_, str> {
        (&*self.name).into()
    }

    async fn list(&self, _after: Option<&Uri>, _limit: usize, _context: &Context) -> Result<Page> {
        Err(self.error())
    }

    async fn templates(&self, _context: &Context) -> Result<Templates> {
        Err(self.error())
    }

    async fn read(&self, uri: &Uri, _context: &Context) -> Result<Contents> {
        Err(self.missing(uri))
    }

    async fn children(
        &self,
        uri: &Uri,
        _after: Option<&Uri>,
        _limit: usize,
        _context: &Context,
    ) -> Result<Page> {
        Err(self.missing(uri))
    }

    async fn skills(&self, _after: Option<&Uri>, _limit: usize, _context: &Context) -> Result<SkillPage> {
        Err(self.error())
    }

    async fn prompts(&self, _context: &Context) -> Result<Prompts> {
        Err(self.error())
    }

    async fn skill(&self, uri: &Uri, _context: &Context) -> Result<(Skill, Freshness)> {
        Err(self.missing(uri))
    }
}

#[cfg(test)]
mod tests {
    use super::{UnopenedSource, public_name};
    use libris::{Source as _, Uri};

    #[test]
    fn only_what_the_source_may_have_is_covered() {
        let covers = |prefix: &str, uri: &str| {
            let source = UnopenedSource::new("files", "/srv/docs", prefix.into(), String::new());
            source.covers(&Uri::parse(uri).unwrap()).is_some()
        };
        assert!(covers("file:///docs", "file:///docs/a.md?lines=1"));
        for uri in ["file:///other/a.md", "git://docs/refs", "note://one"] {
            assert!(!covers("file:///docs", uri), "{uri}");
            assert!(covers("", uri), "{uri}");
        }
    }

    #[test]
    fn names_have_no_paths_and_no_credentials() {
        for (kind, label, name) in [
            ("files", "/home/ada/docs/", "files docs"),
            ("files", ".", "files"),
            ("git", "git:../project", "git project"),
            ("sql", "sqlite:data/shop.db", "sql shop.db"),
            ("sql", "postgres://ada:s3cret@db/shop?sslmode=x", "sql shop"),
            ("openapi", "openapi:https://ada:s3cret@api.example?key=s3cret", "openapi api.example"),
            ("command", "/etc/libris/libris.toml", "command libris.toml"),
            ("notion", "Notion", "notion"),
        ] {
            assert_eq!(public_name(kind, label), name);
        }
    }
}
