//! Laws about reads.

use super::{Fixture, LawCheck, is_directory};
use crate::{ContentBody, Context, Error, Uri};

/// The source covers the resources that it lists.
pub async fn listed_resources_are_covered(fixture: &dyn Fixture) {
    let law = LawCheck::new("listed_resources_are_covered", fixture);
    for resource in law.listed().await {
        if law.source.covers(&resource.uri).is_none() {
            law.fail(format_args!("`{}` is listed but not covered", resource.uri));
        }
    }
}

/// Listed resources can be read, unless they are too large, and match their metadata.
pub async fn listed_resources_can_be_read(fixture: &dyn Fixture) {
    let law = LawCheck::new("listed_resources_can_be_read", fixture);
    for resource in law.listed().await {
        let uri = &resource.uri;
        let parts = match law.source.read(uri, &Context::default()).await {
            Err(Error::TooLarge { .. }) => continue,
            other => law.expect_ok(format_args!("reading `{uri}`"), other).parts,
        };
        if parts.is_empty() {
            law.fail(format_args!("reading `{uri}` gave no parts"));
        }
        let [part] = &*parts else { continue };
        if is_directory(&resource) {
            continue;
        }
        if part.uri != *uri {
            law.fail(format_args!("reading `{uri}` gave `{}`", part.uri));
        }
        if let (Some(listed), Some(read)) = (&resource.mime, &part.mime)
            && listed != read
        {
            law.fail(format_args!("`{uri}` is listed as `{listed}` and reads as `{read}`"));
        }
        // Text may have been transcoded, so only the size of binary contents must agree.
        if let (Some(listed), ContentBody::Bytes(bytes)) = (resource.size, &part.body)
            && listed != bytes.len() as u64
        {
            law.fail(format_args!("`{uri}` is listed with {listed} bytes and has {}", bytes.len()));
        }
    }
}

/// Reading a missing resource returns `NotFound` or `Missing`.
pub async fn missing_resources_are_not_found(fixture: &dyn Fixture) {
    let law = LawCheck::new("missing_resources_are_not_found", fixture);
    let uri = fixture.unknown();
    match law.source.read(&uri, &Context::default()).await {
        Err(error) if error.is_not_found() => {}
        other => law.fail(format_args!("reading `{uri}` gave {other:?}")),
    }
}

/// Reading a URI that the source must reject returns `Invalid`, `NotFound` or `Missing`.
pub async fn invalid_uris_are_refused(fixture: &dyn Fixture) {
    let law = LawCheck::new("invalid_uris_are_refused", fixture);
    for uri in fixture.invalid() {
        check_refused(&law, &uri).await;
    }
}

/// Reading a URI that the source does not cover returns `Invalid`, `NotFound` or `Missing`.
pub async fn uncovered_uris_are_refused(fixture: &dyn Fixture) {
    let law = LawCheck::new("uncovered_uris_are_refused", fixture);
    let mut uris = fixture.invalid();
    uris.extend(
        ["libris-contract://nobody/nothing", "libris-contract:"].map(Uri::parse).into_iter().flatten(),
    );
    for uri in uris.iter().filter(|uri| law.source.covers(uri).is_none()) {
        check_refused(&law, uri).await;
    }
}

async fn check_refused(law: &LawCheck<'_>, uri: &Uri) {
    match law.source.read(uri, &Context::default()).await {
        Err(Error::Invalid(_) | Error::NotFound(_) | Error::Missing { .. }) => {}
        other => law.fail(format_args!("reading `{uri}` gave {other:?}")),
    }
}
