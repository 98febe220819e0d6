//! Links in a preview. The page itself opens links to resources; links to the web open a new tab.

use url::Url;

use crate::html;

/// The URI against which relative links are resolved.
pub(super) struct LinkBase(Option<Url>);

/// Where a link leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinkTarget {
    /// A heading of the same document.
    Heading(String),
    /// The web, or a mail address.
    Web(String),
    /// A resource of this server.
    Resource(String),
}

impl LinkBase {
    pub(super) fn new(uri: &str) -> Self {
        let mut base = Url::parse(uri).ok();
        if let Some(base) = &mut base {
            base.set_query(None);
            base.set_fragment(None);
        }
        Self(base)
    }

    /// Resolves a link; `None` if the link is relative and cannot be resolved against the base. Every scheme but
    /// `http`, `https` and `mailto` counts as the URI of a resource, so the browser never opens a URL such as
    /// `javascript:…`.
    pub(super) fn resolve(&self, link: &str) -> Option<LinkTarget> {
        if let Some(heading) = link.strip_prefix('#') {
            return Some(LinkTarget::Heading(heading.to_owned()));
        }
        let url = match Url::parse(link) {
            Ok(url) => url,
            Err(_) => self.0.as_ref().filter(|base| !base.cannot_be_a_base())?.join(link).ok()?,
        };
        Some(match url.scheme() {
            "http" | "https" | "mailto" => LinkTarget::Web(url.into()),
            _ => LinkTarget::Resource(url.into()),
        })
    }

    /// Appends the start tag of a link.
    pub(super) fn push_start(&self, out: &mut String, link: &str) {
        match self.resolve(link) {
            Some(LinkTarget::Heading(heading)) => {
                out.push_str("<a href=\"#");
                html::push_attribute(out, &heading);
                out.push_str("\">");
            }
            Some(LinkTarget::Web(url)) => {
                out.push_str(
                    "<a class=\"web\" target=\"_blank\" rel=\"noopener noreferrer nofollow\" href=\"",
                );
                html::push_attribute(out, &url);
                out.push_str("\">");
            }
            Some(LinkTarget::Resource(uri)) => {
                out.push_str("<a target=\"_top\" href=\"/#uri=");
                url::form_urlencoded::byte_serialize(uri.as_bytes()).for_each(|part| out.push_str(part));
                out.push_str("\">");
            }
            None => out.push_str("<a>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LinkBase, LinkTarget};

    #[test]
    fn only_the_web_reaches_the_browser() {
        let base = LinkBase::new("file:///docs/guide/start.md?as=text#top");
        let resource = |uri: &str| Some(LinkTarget::Resource(uri.to_owned()));
        assert_eq!(base.resolve("../a%20b.md"), resource("file:///docs/a%20b.md"));
        assert_eq!(base.resolve("setup.md#x"), resource("file:///docs/guide/setup.md#x"));
        assert_eq!(base.resolve("javascript:alert(1)"), resource("javascript:alert(1)"));
        assert_eq!(base.resolve("https://a.example/"), Some(LinkTarget::Web("https://a.example/".into())));
        assert_eq!(base.resolve("#part"), Some(LinkTarget::Heading("part".into())));
        let repository = LinkBase::new("git://project/tree/main/README.md");
        assert_eq!(repository.resolve("docs/a.md"), resource("git://project/tree/main/docs/a.md"));
        assert_eq!(LinkBase::new("urn:a").resolve("b"), None);
        let mut out = String::new();
        base.push_start(&mut out, "javascript:alert(\"1\")");
        assert_eq!(out, "<a target=\"_top\" href=\"/#uri=javascript%3Aalert%28%221%22%29\">");
    }
}
