//! Reads with the view of a caller, and parses the results.

use std::time::Instant;

use libris_wire::{CacheableRequest, Call, Failure, Members};
use serde::de::DeserializeOwned;

/// What a read takes in memory, beside the contents that the view has reserved: the encoded and the parsed result.
const COPIES: usize = 3;

/// Reads a resource. `T` is the part of the result of `resources/read` that is of interest.
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

/// Parses the members of a result.
pub(crate) fn parse<T: DeserializeOwned>(members: &Members) -> Option<T> {
    serde_json::from_slice(&object(members.encode().encoded()?)).ok()
}

/// An object with these encoded members.
pub(crate) fn object(members: &[u8]) -> Vec<u8> {
    let mut object = Vec::with_capacity(members.len() + 2);
    object.push(b'{');
    object.extend_from_slice(members);
    object.push(b'}');
    object
}
