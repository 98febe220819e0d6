//! The law about searches.

use super::{Fixture, LawCheck};
use crate::{Context, SearchQuery};

/// A source that finds something says that it has a search: a catalog asks only those that do.
pub async fn searches_are_announced(fixture: &dyn Fixture) {
    let law = LawCheck::new("searches_are_announced", fixture);
    if law.source.has_search() {
        return;
    }
    for resource in law.listed().await {
        let query = SearchQuery::new(&resource.name, 10);
        let found = law.source.search(&query, &Context::default()).await;
        if let Some(answer) = law.expect_ok(format_args!("a search for `{}`", resource.name), found) {
            law.fail(format_args!(
                "a search for `{}` found {} resources, but `has_search` is false",
                resource.name,
                answer.hits.len()
            ));
        }
    }
}
