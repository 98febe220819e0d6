//! Laws about lists and pagination.

use std::collections::BTreeSet;

use super::{Fixture, LawCheck};
use crate::{Resource, Uri};

/// Pages are strictly in URI order and within the limit, and pages of every size list the same resources.
pub async fn pages_are_ordered_and_consistent(fixture: &dyn Fixture) {
    let law = LawCheck::new("pages_are_ordered_and_consistent", fixture);
    let whole = uris(&law.all(None, 1000).await);
    for limit in [1, 2, 3, 7] {
        let paged = uris(&law.all(None, limit).await);
        if let Some(lost) = whole.iter().find(|uri| !paged.contains(uri)) {
            law.fail(format_args!("`{lost}` is lost in pages of {limit}"));
        }
        if let Some(extra) = paged.iter().find(|uri| !whole.contains(uri)) {
            law.fail(format_args!("`{extra}` is only in pages of {limit}"));
        }
    }
}

/// A page without `more` is the last.
pub async fn a_listing_ends(fixture: &dyn Fixture) {
    let law = LawCheck::new("a_listing_ends", fixture);
    for limit in [1, 2, 1000] {
        let all = law.all(None, limit).await;
        let Some(last) = all.last() else { continue };
        let page = law.page(Some(&last.uri), limit).await;
        law.check_page(&page, Some(&last.uri), limit);
        if let Some(next) = page.resources.first() {
            law.fail(format_args!(
                "the page that ends with `{}` has no `more`, but `{}` follows",
                last.uri, next.uri
            ));
        }
    }
}

/// A list can start after any URI, even if there is no resource at that URI.
pub async fn a_listing_continues_after_any_uri(fixture: &dyn Fixture) {
    let law = LawCheck::new("a_listing_continues_after_any_uri", fixture);
    let whole = uris(&law.listed().await);
    // All resources of a small source; a bounded number of a large one.
    let some = whole.iter().take(30).chain(whole.last());
    let mut probes = vec![fixture.unknown(), uri("a:"), uri("zzzz:zzzz")];
    for listed in some {
        let text = listed.as_str();
        let near =
            [format!("{text}!"), format!("{text}~"), format!("{text}/"), text[..text.len() - 1].into()];
        probes.push(listed.clone());
        probes.extend(near.iter().filter_map(|text| Uri::parse(text).ok()));
    }
    for probe in probes {
        let expected: Vec<_> = whole.iter().filter(|uri| **uri > probe).cloned().collect();
        let found = uris(&law.all(Some(&probe), 1000).await);
        if let Some(lost) = expected.iter().find(|uri| !found.contains(uri)) {
            law.fail(format_args!("`{lost}` is not listed after `{probe}`"));
        }
        if let Some(extra) = found.iter().find(|uri| !expected.contains(uri)) {
            law.fail(format_args!("`{extra}` is listed only after `{probe}`"));
        }
    }
}

/// A resource that exists while all pages of a list are requested is listed exactly once, even if other resources are added
/// or removed meanwhile.
pub async fn a_listing_survives_changes(fixture: &dyn Fixture) {
    let law = LawCheck::new("a_listing_survives_changes", fixture);
    let mut added = Vec::new();
    for number in 0..6 {
        let Some(uri) = fixture.add(number).await else { return };
        added.push(uri);
    }
    let before = uris(&law.listed().await);
    let mut doomed: Vec<_> = added.iter().step_by(2).cloned().collect();
    let mut gone = BTreeSet::new();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = law.page(after.as_ref(), 2).await;
        law.check_page(&page, after.as_ref(), 2);
        seen.extend(uris(&page.resources));
        after = seen.last().cloned();
        if !page.more {
            break;
        }
        // Removing listed resources shifts offsets, which breaks sources that paginate by offset.
        match doomed.iter().position(|uri| seen.contains(uri)) {
            Some(passed) => {
                let uri = doomed.swap_remove(passed);
                fixture.remove(&uri).await;
                gone.insert(uri);
            }
            None if added.len() < 12 => added.extend(fixture.add(added.len()).await),
            None => {}
        }
    }
    for uri in added {
        fixture.remove(&uri).await;
    }
    if let Some(lost) = before.iter().find(|uri| !gone.contains(*uri) && !seen.contains(uri)) {
        law.fail(format_args!("`{lost}` existed throughout and was not listed"));
    }
}

fn uris(resources: &[Resource]) -> Vec<Uri> {
    resources.iter().map(|resource| resource.uri.clone()).collect()
}

fn uri(text: &str) -> Uri {
    Uri::parse(text).expect("a constant URI is well-formed")
}
