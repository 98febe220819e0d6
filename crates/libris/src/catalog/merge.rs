//! Merges the responses of several sources into one.

use libris_core::{Freshness, Page, Proof, Resource, Uri};

/// Combines the freshness of all sources, for a merged list. `proof` is that of the set of sources; with replicas, it
/// also ends when a replica reports a change of the list.
pub(super) fn merged_freshness(parts: Vec<Freshness>, proof: Proof) -> Freshness {
    match parts.into_iter().reduce(Freshness::and) {
        Some(all) => all.or_uncached().and_proof(Some(proof)),
        None => Freshness::proven(proof),
    }
}

/// Merges one page of each source into one page (keyset pagination). All of them begin after the same URI.
pub(super) fn merge(pages: Vec<Page>, limit: usize) -> Page {
    let pages = pages.into_iter().map(|page| (page.resources, page.more)).collect();
    let (resources, more) = merge_sorted(pages, limit, |resource: &Resource| &resource.uri);
    Page { resources, more, ..Page::default() }
}

/// Merges lists in URI order; of items with the same URI, that of the first list stays. The flag of each list, and of
/// the result, is true if there may be more items after the list.
pub(super) fn merge_sorted<T>(
    pages: Vec<(Vec<T>, bool)>,
    limit: usize,
    uri: impl Fn(&T) -> &Uri,
) -> (Vec<T>, bool) {
    // A source with `more` may have items directly after the last item of its page. So the merged page ends with the
    // lowest of the last items of these sources.
    let mut cut = pages.iter().any(|(_, more)| *more);
    let mut merged: Vec<T> = Vec::with_capacity(pages.iter().map(|(items, _)| items.len()).sum());
    let incomplete = pages.iter().filter(|(_, more)| *more);
    let end = incomplete.filter_map(|(items, _)| items.last()).map(|last| uri(last).clone()).min();
    for (items, _) in pages {
        for item in items {
            if end.as_ref().is_some_and(|end| *uri(&item) > *end) {
                cut = true;
                break;
            }
            merged.push(item);
        }
    }
    merged.sort_by(|one, other| uri(one).cmp(uri(other)));
    merged.dedup_by(|one, other| uri(one) == uri(other));
    if merged.len() > limit {
        merged.truncate(limit);
        cut = true;
    }
    (merged, cut)
}

#[cfg(test)]
mod tests {
    use super::merge;
    use libris_core::{Page, Resource, Uri};

    fn page(names: &[&str], more: bool) -> Page {
        let resources = names
            .iter()
            .map(|name| Resource::new(Uri::parse(&format!("a:{name}")).unwrap(), *name))
            .collect();
        Page { resources, more, ..Page::default() }
    }

    fn names(page: &Page) -> Vec<&str> {
        page.resources.iter().map(|resource| &*resource.name).collect()
    }

    #[test]
    fn a_merged_page_ends_where_the_first_incomplete_page_ends() {
        let merged = merge(vec![page(&["b", "c"], true), page(&["a", "d"], false)], 2);
        assert_eq!((names(&merged), merged.more), (vec!["a", "b"], true));

        // A source may return fewer items than `limit`, although it has more.
        let merged = merge(vec![page(&["b"], true), page(&["a", "d"], false)], 9);
        assert_eq!((names(&merged), merged.more), (vec!["a", "b"], true));

        let merged = merge(vec![page(&["b"], true), page(&["c", "d"], true)], 9);
        assert_eq!((names(&merged), merged.more), (vec!["b"], true));

        let merged = merge(vec![page(&["b"], false), page(&["a", "b"], false)], 9);
        assert_eq!((names(&merged), merged.more), (vec!["a", "b"], false));
    }
}
