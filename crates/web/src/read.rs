//! Reads resources through the caller's view, and parses the results.

use std::time::Instant;

use libris_wire::{CacheableRequest, Call, Failure, Members};
use serde::de::DeserializeOwned;

/// A read takes this many times the size of the result in memory, for its encoded and parsed forms, in addition to the
/// contents, for which the view has reserved memory.
pub(crate) const COPIES: usize = 3;

/// Reads a resource, from the response cache if possible. `T` has the members of the `resources/read` result that are
/// needed.
pub(crate) async fn read<T: DeserializeOwned>(call: &Call, uri: &str) -> Result<T, Failure> {
    let view = call.view();
    let cached = view.cached(call.revision, CacheableRequest::Read(uri), Instant::now());
    let reply = match cached {
        Some(answer) => answer,
        None => view.read(call, uri).await,
    }?;
    if !call.reserve_loaded(reply.members.size().saturating_mul(COPIES)) {
        return Err(Failure::Busy {
            message: "the memory for contents is used up; try again later".to_owned(),
        });
    }
    parse(&reply.members)
        .ok_or_else(|| Failure::Internal { message: "the resource could not be read".to_owned(), data: None })
}

/// Parses the members of a result; `None` if they are not of the form `T`.
pub(crate) fn parse<T: DeserializeOwned>(members: &Members) -> Option<T> {
    serde_json::from_slice(&object(members.encode().encoded()?)).ok()
}

/// The JSON object with these encoded members: puts braces around them.
pub(crate) fn object(members: &[u8]) -> Vec<u8> {
    let mut object = Vec::with_capacity(members.len() + 2);
    object.push(b'{');
    object.extend_from_slice(members);
    object.push(b'}');
    object
}
