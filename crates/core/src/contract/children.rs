//! Laws about directories.

use super::{Fixture, LawCheck, is_directory};
use crate::{Context, Error, Uri};

/// The children of a directory are the listed resources directly below it. They are paginated like a list.
pub async fn children_are_the_resources_directly_below(fixture: &dyn Fixture) {
    let law = LawCheck::new("children_are_the_resources_directly_below", fixture);
    let listed = law.listed().await;
    for directory in listed.iter().filter(|resource| is_directory(resource)) {
        let expected: Vec<_> =
            listed.iter().map(|resource| &resource.uri).filter(|uri| is_child(uri, &directory.uri)).collect();
        for limit in [1, 2, 1000] {
            let found = all(&law, &directory.uri, limit).await;
            if let Some(lost) = expected.iter().find(|uri| !found.contains(uri)) {
                law.fail(format_args!("`{lost}` is not among the children of `{}`", directory.uri));
            }
            if let Some(extra) = found.iter().find(|uri| !expected.contains(uri)) {
                law.fail(format_args!(
                    "`{extra}` is a child of `{}` but not listed directly below it",
                    directory.uri
                ));
            }
        }
    }
}

/// `children` of a resource that is not a directory is an error.
pub async fn only_directories_have_children(fixture: &dyn Fixture) {
    let law = LawCheck::new("only_directories_have_children", fixture);
    let listed = law.listed().await;
    let others = listed.into_iter().filter(|resource| !is_directory(resource)).map(|resource| resource.uri);
    for uri in others.chain([fixture.unknown()]) {
        match law.source.children(&uri, None, 10, &Context::default()).await {
            Err(Error::NotDirectory(_) | Error::NotFound(_) | Error::Missing { .. }) => {}
            other => law.fail(format_args!("the children of `{uri}` were {other:?}")),
        }
    }
}

async fn all(law: &LawCheck<'_>, directory: &Uri, limit: usize) -> Vec<Uri> {
    let mut all: Vec<Uri> = Vec::new();
    loop {
        let after = all.last();
        let page = law.source.children(directory, after, limit, &Context::default()).await;
        let page = law.expect_ok(format_args!("listing the children of `{directory}`"), page);
        law.check_page(&page, after, limit);
        all.extend(page.resources.into_iter().map(|resource| resource.uri));
        if !page.more {
            return all;
        }
    }
}

fn is_child(uri: &Uri, directory: &Uri) -> bool {
    let directory = directory.as_str();
    let directory = directory.strip_suffix('/').unwrap_or(directory);
    let below = uri.as_str().strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
    below.is_some_and(|name| !name.is_empty() && !name.trim_end_matches('/').contains('/'))
}
