//! The outline of a listing: its roots, or the folders below a URI, with counts.
//!
//! A listing is in URI order, so that resources with the same prefix are adjacent. A scan counts the resources of a
//! prefix up to a limit, and then continues after the prefix without listing its remaining resources.

use async_trait::async_trait;
use libris_core::{Context, DIRECTORY, Freshness, Page, Resource, Result, UnavailableSource, Uri};

use crate::unserved::root;
use crate::view::ViewSnapshot;

/// How many resources are listed at a time.
const PAGE: usize = 200;

/// How many resources one scan lists at most.
const MAX_SCANNED: usize = 20_000;

/// Lists the resources that one caller may see.
#[async_trait]
pub(crate) trait OutlineListing: Sync {
    /// One page in URI order after `after`. The page may be shorter than `limit`, or empty, even if there are more
    /// resources.
    async fn page(&self, after: Option<&Uri>, limit: usize) -> Result<Page>;
}

/// The list of a view.
pub(crate) struct ViewListing<'a> {
    pub(crate) view: &'a ViewSnapshot<'a>,
    pub(crate) context: &'a Context,
}

#[async_trait]
impl OutlineListing for ViewListing<'_> {
    async fn page(&self, after: Option<&Uri>, limit: usize) -> Result<Page> {
        self.view.list(after, limit, self.context).await
    }
}

/// The parameters of a scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutlineRequest<'a> {
    /// Groups by the folders directly below this prefix; `None` groups by roots.
    pub(crate) below: Option<&'a str>,
    /// The URI after which the scan begins.
    pub(crate) after: Option<&'a Uri>,
    /// The maximum number of groups.
    pub(crate) groups: usize,
    /// The maximum number of resources of one group that are counted and returned.
    pub(crate) resources: usize,
}

/// Resources with a common prefix.
#[derive(Clone, Debug)]
pub(crate) struct OutlineGroup {
    /// The prefix, such as `file:///handbook/`, or the URI of a single resource that is not in a folder.
    pub(crate) prefix: String,
    /// The resource of the folder itself, if it is listed.
    pub(crate) folder: Option<Resource>,
    /// The first resources, without folders.
    pub(crate) resources: Vec<Resource>,
    /// The number of resources, without folders; a lower bound if `is_partial`.
    pub(crate) count: usize,
    pub(crate) is_partial: bool,
}

impl OutlineGroup {
    /// The resource, if this group is a single resource rather than a folder.
    pub(crate) fn as_resource(&self) -> Option<&Resource> {
        self.resources.first().filter(|resource| resource.uri.as_str() == self.prefix)
    }

    /// The count as text: `12`, or `100+` if there may be more.
    pub(crate) fn counted(&self) -> String {
        counted(self.count, self.is_partial)
    }
}

/// A count as text: `12`, or `100+` if there may be more.
pub(crate) fn counted(count: usize, is_partial: bool) -> String {
    format!("{count}{}", if is_partial { "+" } else { "" })
}

/// The groups of a listing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    pub(crate) groups: Vec<OutlineGroup>,
    /// The URI after which the next group begins, if there may be more groups.
    pub(crate) next: Option<Uri>,
    /// How the outline may be cached.
    pub(crate) freshness: Freshness,
    pub(crate) unavailable: Vec<UnavailableSource>,
}

/// Scans a listing for groups, until it has found `request.groups` groups or listed [`MAX_SCANNED`] resources. In the
/// latter case, the last group is partial.
pub(crate) async fn outline(listing: &dyn OutlineListing, request: OutlineRequest<'_>) -> Result<Outline> {
    let below = request.below.and_then(|below| Uri::parse(below).ok());
    let mut after = request.after.cloned().or(below);
    let mut outline = Outline::default();
    let mut freshness: Option<Freshness> = None;
    let mut scanned = 0;
    'pages: loop {
        if scanned >= MAX_SCANNED {
            if let Some(last) = outline.groups.last_mut() {
                last.is_partial = true;
                after = end_of(&last.prefix, after);
            }
            outline.next = after;
            break;
        }
        let page = listing.page(after.as_ref(), PAGE).await?;
        freshness = Some(match freshness {
            None => page.freshness,
            Some(before) => before.and(page.freshness),
        });
        for source in page.unavailable {
            if !outline.unavailable.contains(&source) {
                outline.unavailable.push(source);
            }
        }
        let is_empty = page.resources.is_empty();
        for resource in page.resources {
            scanned += 1;
            let uri = resource.uri.clone();
            let Some(prefix) = prefix_of(uri.as_str(), request.below) else {
                // The resource is the directory itself, or is not below it. A URI that sorts after all URIs with the
                // prefix ends the scan.
                if request.below.is_some_and(|below| uri.as_str() > below && !uri.as_str().starts_with(below))
                {
                    break 'pages;
                }
                after = Some(uri);
                continue;
            };
            let is_new = outline.groups.last().is_none_or(|last| last.prefix != prefix);
            if is_new {
                if outline.groups.len() == request.groups {
                    outline.next.clone_from(&after);
                    break 'pages;
                }
                outline.groups.push(OutlineGroup {
                    prefix: prefix.to_owned(),
                    folder: None,
                    resources: Vec::new(),
                    count: 0,
                    is_partial: false,
                });
            }
            let Some(group) = outline.groups.last_mut() else { break 'pages };
            after = Some(uri);
            match resource.mime.as_deref() == Some(DIRECTORY) {
                true if resource.uri.as_str() == group.prefix => group.folder = Some(resource),
                true => {}
                false if group.count < request.resources => {
                    group.count += 1;
                    group.resources.push(resource);
                }
                false => {
                    group.is_partial = true;
                    let before = after.clone();
                    after = end_of(&group.prefix, after);
                    if after != before {
                        continue 'pages;
                    }
                }
            }
        }
        if !page.more || is_empty {
            break;
        }
    }
    outline.freshness = freshness.unwrap_or_default();
    Ok(outline)
}

/// A position after the URIs with this prefix; `after` if that is later, or if the position is not a valid URI. `~` is
/// the last character that a URI in normal form can contain.
fn end_of(prefix: &str, after: Option<Uri>) -> Option<Uri> {
    Uri::parse(&format!("{prefix}~~~~~~~~~~~~")).ok().filter(|end| Some(end) > after.as_ref()).or(after)
}

/// The prefix by which a URI is grouped: without `below`, its root; otherwise the folder directly below `below`, or the
/// URI itself if it is in no such folder. `None` if the URI is not below `below`.
fn prefix_of<'u>(uri: &'u str, below: Option<&str>) -> Option<&'u str> {
    let Some(below) = below else { return Some(root(uri)) };
    let rest = uri.strip_prefix(below).filter(|rest| !rest.is_empty())?;
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    Some(match path.find('/') {
        Some(slash) => &uri[..=below.len() + slash],
        None => uri,
    })
}

#[cfg(test)]
mod tests {
    use super::{Outline, OutlineListing, OutlineRequest, outline, prefix_of};
    use async_trait::async_trait;
    use libris_core::{DIRECTORY, Page, Resource, Result, Uri};
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Sorted(Vec<Uri>, AtomicUsize);

    #[async_trait]
    impl OutlineListing for Sorted {
        async fn page(&self, after: Option<&Uri>, limit: usize) -> Result<Page> {
            self.1.fetch_add(1, Ordering::Relaxed);
            let mut rest = self.0.iter().filter(|uri| after.is_none_or(|after| *uri > after));
            let resource = |uri: &Uri| Resource {
                mime: uri.as_str().ends_with('/').then(|| DIRECTORY.to_owned()),
                ..Resource::new(uri.clone(), "x")
            };
            let resources = rest.by_ref().take(limit).map(resource).collect();
            Ok(Page { resources, more: rest.next().is_some(), ..Page::default() })
        }
    }

    fn listing(uris: impl IntoIterator<Item = String>) -> Sorted {
        let mut uris: Vec<_> = uris.into_iter().map(|uri| Uri::parse(&uri).unwrap()).collect();
        uris.sort();
        Sorted(uris, AtomicUsize::new(0))
    }

    fn shown(outline: &Outline) -> Vec<String> {
        outline.groups.iter().map(|group| format!("{} {}", group.prefix, group.counted())).collect()
    }

    #[tokio::test]
    async fn a_large_group_is_skipped() {
        let large = (0..10_000).map(|number| format!("file:///a/{}/f{number}", number % 7));
        let small = ["file:///a/", "file:///b/x", "note:one", "note:two", "weather://stations"];
        let listing = listing(large.chain(small.map(str::to_owned)));
        let request = OutlineRequest { below: None, after: None, groups: 10, resources: 100 };
        let roots = outline(&listing, request).await.unwrap();
        assert_eq!(shown(&roots), ["file:///a/ 100+", "file:///b/ 1", "note: 2", "weather://stations 1"]);
        assert!(roots.groups[0].folder.is_some() && roots.groups[3].as_resource().is_some());
        assert!(listing.1.load(Ordering::Relaxed) <= 3);
        let below = OutlineRequest { below: Some("file:///a/"), resources: 2_000, ..request };
        let folders = outline(&listing, below).await.unwrap();
        assert_eq!(folders.groups.len(), 7);
        assert_eq!(shown(&folders)[0], "file:///a/0/ 1429");
    }

    #[tokio::test]
    async fn groups_come_in_pages() {
        let listing = listing((0..25).map(|number| format!("s://h/{number:02}/x")));
        let mut after = None;
        let mut seen = Vec::new();
        loop {
            let request =
                OutlineRequest { below: Some("s://h/"), after: after.as_ref(), groups: 10, resources: 1 };
            let page = outline(&listing, request).await.unwrap();
            seen.extend(page.groups.into_iter().map(|group| group.prefix));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, (0..25).map(|number| format!("s://h/{number:02}/")).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_scan_that_ends_early_says_where_to_continue() {
        let names = |root: usize| (0..100).map(move |number| format!("s://{root:03}/{number:02}"));
        let listing = listing((0..250).flat_map(names));
        let request = OutlineRequest { below: None, after: None, groups: 1_000, resources: 1_000 };
        let first = outline(&listing, request).await.unwrap();
        assert_eq!((first.groups.len(), first.groups.last().unwrap().is_partial), (200, true));
        let after = first.next.unwrap();
        let rest = outline(&listing, OutlineRequest { after: Some(&after), ..request }).await.unwrap();
        assert_eq!((rest.groups.len(), rest.next), (50, None));
        assert_eq!(rest.groups[0].prefix, "s://200/");
    }

    #[test]
    fn a_prefix_ends_at_a_slash() {
        for (uri, below, prefix) in [
            ("file:///a/b/c.md", Some("file:///a/"), Some("file:///a/b/")),
            ("file:///a/c.md?x=1/2", Some("file:///a/"), Some("file:///a/c.md?x=1/2")),
            ("file:///a/", Some("file:///a/"), None),
            ("file:///b/", Some("file:///a/"), None),
            ("file:///a/b/c.md", None, Some("file:///a/")),
        ] {
            assert_eq!(prefix_of(uri, below), prefix);
        }
    }
}
