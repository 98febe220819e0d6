//! The entries directly below a prefix of URIs, for routes that present the catalog as a file system, such as WebDAV.
//!
//! If the prefix is a directory of a source, the source lists its children. Otherwise the entries are derived from the
//! list of resources. This list is in URI order, so resources with a common prefix are adjacent: after the first of
//! them, the others are skipped.

use std::time::SystemTime;

use libris_core::{Context, DIRECTORY, Error, Page, Resource, Uri};
use libris_wire::{Call, Failure, PrefixEntry, PrefixPage};

use crate::audit::Audited;
use crate::caller_view::CallerView;
use crate::rights::Operation;
use crate::server::to_failure;
use crate::view::ViewSnapshot;

/// How many entries one page has, at most.
const PAGE: usize = 500;

/// How many resources are listed at a time to find prefixes, and how many times for one page, at most.
const SCANNED: usize = 200;
const MAX_SCANS: usize = 100;

/// How many resources are listed to find one by its URI.
const SEEK: usize = 4;

impl CallerView {
    /// A page of the entries directly below a prefix.
    pub(crate) async fn prefix_page(
        &self,
        call: &Call,
        prefix: &str,
        after: Option<&str>,
    ) -> Result<PrefixPage, Failure> {
        let after = after.map(Uri::parse).transpose().map_err(to_failure)?;
        let (view, context) = (self.view().snapshot(), self.context(call));
        let lister = PrefixLister { caller: self, view: &view, context: &context };
        let page = lister.page(prefix, after).await.map_err(to_failure);
        self.audit_prefix(call, prefix, page.as_ref().map(|page| page.entries.len()));
        page
    }

    /// The folder or resource at a URI; `None` if there is none.
    pub(crate) async fn prefix_entry(&self, call: &Call, uri: &str) -> Result<Option<PrefixEntry>, Failure> {
        let (view, context) = (self.view().snapshot(), self.context(call));
        let lister = PrefixLister { caller: self, view: &view, context: &context };
        let found = lister.find(uri).await.map_err(to_failure);
        self.audit_prefix(call, uri, found.as_ref().map(|found| usize::from(found.is_some())));
        found
    }

    /// Records the request and its outcome in the audit log. The recorded size is the number of entries.
    fn audit_prefix(&self, call: &Call, prefix: &str, outcome: Result<usize, &Failure>) {
        let (client, took) = (call.client, call.elapsed());
        // A prefix without a slash is usually a mere scheme, such as `note:`, which no rule matches.
        let uri = Some(prefix).filter(|prefix| prefix.contains('/'));
        let right = uri.map(|_| Operation::List);
        let audited =
            Audited { view: &self.view, client, operation: "directory", right, uri, decisive: None, took };
        self.inner.audit(&audited, outcome);
    }
}

struct PrefixLister<'a> {
    caller: &'a CallerView,
    view: &'a ViewSnapshot<'a>,
    context: &'a Context,
}

impl PrefixLister<'_> {
    async fn page(&self, prefix: &str, after: Option<Uri>) -> Result<PrefixPage, Error> {
        if let Some(page) = self.directory(prefix, after.as_ref(), PAGE).await? {
            let next = page.resources.last().filter(|_| page.more).map(|last| last.uri.to_string());
            let is_incomplete = !page.unavailable.is_empty();
            let entries = page.resources.iter().map(|resource| self.entry(resource)).collect();
            return Ok(PrefixPage { entries, next, is_incomplete });
        }
        let is_first = after.is_none();
        let page = self.scan(prefix, after).await?;
        let is_nothing = page.entries.is_empty() && page.next.is_none() && !page.is_incomplete;
        match is_first && is_nothing && !prefix.is_empty() {
            true => Err(not_found(prefix)),
            false => Ok(page),
        }
    }

    /// A page of a directory; `None` if no source has the directory.
    async fn directory(
        &self,
        prefix: &str,
        after: Option<&Uri>,
        limit: usize,
    ) -> Result<Option<Page>, Error> {
        if !prefix.ends_with('/') {
            return Ok(None);
        }
        let Ok(uri) = Uri::parse(prefix) else { return Ok(None) };
        match self.view.directory(&uri, after, limit, self.context).await {
            Ok(page) => Ok(Some(page)),
            Err(Error::NotDirectory(_)) => Ok(None),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A page of the prefixes and resources that the list has below a prefix.
    async fn scan(&self, prefix: &str, after: Option<Uri>) -> Result<PrefixPage, Error> {
        let mut page = PrefixPage::default();
        let mut after = after.or_else(|| Uri::parse(prefix).ok());
        for _ in 0..MAX_SCANS {
            let listed = self.view.list(after.as_ref(), SCANNED, self.context).await?;
            page.is_incomplete |= !listed.unavailable.is_empty();
            let mut is_within = false;
            for resource in &listed.resources {
                let uri = resource.uri.as_str();
                let Some(below) = directly_below(prefix, uri) else {
                    if uri > prefix && !uri.starts_with(prefix) {
                        return Ok(page);
                    }
                    after = Some(resource.uri.clone());
                    continue;
                };
                let is_known = page.entries.last().is_some_and(|last| last.uri == below);
                if !is_known && page.entries.len() == PAGE {
                    page.next = after.map(|after| after.to_string());
                    return Ok(page);
                }
                is_within = below != uri;
                if !is_known {
                    page.entries.push(match is_within {
                        true => PrefixEntry::folder(below),
                        false => self.entry(resource),
                    });
                }
                after = Some(resource.uri.clone());
            }
            if !listed.more || listed.resources.is_empty() {
                return Ok(page);
            }
            // Skips the other resources below the last entry.
            if is_within && let Some(last) = page.entries.last() {
                after = end_of(&last.uri).filter(|end| Some(end) > after.as_ref()).or(after);
            }
        }
        page.next = after.map(|after| after.to_string());
        Ok(page)
    }

    /// The folder or resource at a URI. No method of a source returns the metadata of one resource, so this lists a few
    /// resources, starting shortly before the URI.
    async fn find(&self, uri: &str) -> Result<Option<PrefixEntry>, Error> {
        if uri.is_empty() {
            return Ok(Some(PrefixEntry::folder("")));
        }
        if uri.ends_with(['/', ':']) {
            let is_there = match self.directory(uri, None, 1).await? {
                Some(_) => true,
                None => {
                    let after = Uri::parse(uri).ok();
                    let listed = self.view.list(after.as_ref(), 1, self.context).await?;
                    listed.resources.first().is_some_and(|first| first.uri.as_str().starts_with(uri))
                }
            };
            return Ok(is_there.then(|| PrefixEntry::folder(uri)));
        }
        let Ok(wanted) = Uri::parse(uri) else { return Ok(None) };
        let before = position_before(wanted.as_str());
        let found = |page: &Page| page.resources.iter().find(|found| found.uri == wanted).cloned();
        let directory = self.directory(folder_of(wanted.as_str()), before.as_ref(), SEEK).await?;
        let found = match directory.as_ref().and_then(found) {
            Some(resource) => Some(resource),
            None => found(&self.view.list(before.as_ref(), SEEK, self.context).await?),
        };
        Ok(found.map(|resource| self.entry(&resource)))
    }

    /// The entry of a resource. A size that another MCP server claims is left out, because clients of a file system
    /// rely on sizes.
    fn entry(&self, resource: &Resource) -> PrefixEntry {
        let mut uri = resource.uri.to_string();
        let is_folder = resource.mime.as_deref() == Some(DIRECTORY);
        if is_folder && !uri.ends_with(['/', ':']) {
            uri.push('/');
        }
        let size = resource.size.filter(|_| !is_folder && self.caller.inner.has_own_sizes(&resource.uri));
        let modified = resource.annotations.last_modified.map(SystemTime::from);
        PrefixEntry { uri, is_folder, mime: resource.mime.clone(), size, modified }
    }
}

fn not_found(prefix: &str) -> Error {
    match Uri::parse(prefix) {
        Ok(uri) => Error::NotFound(uri),
        Err(error) => error,
    }
}

/// The part of a URI that ends with its last slash, before the query.
fn folder_of(uri: &str) -> &str {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    path.rfind('/').map_or("", |slash| &uri[..=slash])
}

/// The entry directly below `prefix` under which a URI appears: a folder, which is the part of the URI up to its next
/// slash (below the empty prefix, up to the colon), or the URI itself if there is none; `None` if the URI is not below
/// `prefix`.
fn directly_below<'u>(prefix: &str, uri: &'u str) -> Option<&'u str> {
    let rest = uri.strip_prefix(prefix).filter(|rest| !rest.is_empty())?;
    if prefix.is_empty() {
        return uri.find(':').map(|colon| &uri[..=colon]);
    }
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    // Below a scheme, the authority is one level. If it is empty, the first path segment belongs to that level, as in
    // `file:///docs/`.
    let slashes = match prefix.ends_with(':') {
        true => path.bytes().take(3).take_while(|&byte| byte == b'/').count(),
        false => 0,
    };
    Some(match path[slashes..].find('/') {
        Some(slash) => &uri[..=prefix.len() + slashes + slash],
        None => uri,
    })
}

/// A position in the list after everything with this prefix: `~` is the last character that a URI in normal form can
/// contain.
fn end_of(prefix: &str) -> Option<Uri> {
    Uri::parse(&format!("{prefix}~~~~~~~~~~~~")).ok()
}

/// A position in the list so shortly before a URI that the next [`SEEK`] resources usually include it; `None` if there
/// is none.
fn position_before(uri: &str) -> Option<Uri> {
    const LITERAL: &[u8] = b"!$&'()*+,-.0123456789:;=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";
    let escaped = uri.len().checked_sub(3).filter(|&start| uri.as_bytes()[start] == b'%');
    let before = match escaped {
        Some(start) => {
            let last = u8::from_str_radix(&uri[start + 1..], 16).ok()?;
            // Unreserved characters are not escaped in normal form.
            let is_escaped = |byte: &u8| !byte.is_ascii_alphanumeric() && !b"-._~".contains(byte);
            let before = (0..last).rev().find(is_escaped);
            before
                .map_or_else(|| format!("{}$", &uri[..start]), |byte| format!("{}%{byte:02X}", &uri[..start]))
        }
        None => {
            let (&last, rest) = uri.as_bytes().split_last()?;
            let before = LITERAL.iter().rev().find(|&&literal| literal < last);
            format!("{}{}", &uri[..rest.len()], before.map_or('!', |&before| char::from(before)))
        }
    };
    let before = Uri::parse(&format!("{before}~~~~~~~~~~~~")).ok()?;
    (before.as_str() < uri).then_some(before)
}

#[cfg(test)]
mod tests {
    use super::{directly_below, end_of, folder_of, position_before};
    use libris_core::Uri;
    use proptest::prelude::*;

    #[test]
    fn levels_are_schemes_authorities_and_segments() {
        for (prefix, uri, below) in [
            ("", "file:///docs/a.md", Some("file:")),
            ("file:", "file:///docs/a/b.md", Some("file:///docs/")),
            ("file:", "file:///single", Some("file:///single")),
            ("git:", "git://project/refs", Some("git://project/")),
            ("docs:", "docs://one", Some("docs://one")),
            ("note:", "note:one", Some("note:one")),
            ("note:", "note:one/two", Some("note:one/")),
            ("git://project/", "git://project/tree/HEAD/x", Some("git://project/tree/")),
            ("git://project/", "git://project/refs", Some("git://project/refs")),
            ("db://a/", "db://a/rows?path=x/y", Some("db://a/rows?path=x/y")),
            ("git://project/", "git://other/refs", None),
            ("git://project/", "git://project/", None),
        ] {
            assert_eq!(directly_below(prefix, uri), below, "{prefix} {uri}");
        }
        assert_eq!(folder_of("db://a/b/rows?path=x/y"), "db://a/b/");
        assert_eq!(folder_of("note:one"), "");
        assert!(end_of("file:").unwrap() > Uri::parse("file:///zzz/~").unwrap());
    }

    proptest! {
        #[test]
        fn a_position_before_a_uri_is_before_it_and_after_what_is_smaller(
            one in "[ -~äé中]{1,6}", other in "[ -~äé中]{1,6}",
        ) {
            let uri = |name: &str| Uri::parse(&format!("a://b/{}", Uri::encode_segment(name.as_bytes())));
            prop_assume!(one != other && ![&one, &other].iter().any(|name| *name == "." || *name == ".."));
            let (one, other) = (uri(&one).unwrap(), uri(&other).unwrap());
            if let Some(before) = position_before(one.as_str()) {
                prop_assert!(before < one);
                // No URI of the same length without escapes sorts between the position and the URI.
                let plain = |uri: &Uri| !uri.as_str().contains('%');
                if plain(&one) && plain(&other) && one.as_str().len() == other.as_str().len() {
                    prop_assert_eq!(other > before, other > one, "{} {} {}", before, one, other);
                }
            }
        }
    }
}
