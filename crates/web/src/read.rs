//! Reads resources through the caller's view, and parses the results.

use std::time::Instant;

use libris_wire::{CacheableRequest, Call, Failure, Members, Reply};
use serde::de::DeserializeOwned;

/// A read takes this many times the size of the result in memory, for its encoded and parsed forms, in addition to the
/// contents, for which the view has reserved memory.
pub(crate) const COPIES: usize = 3;

/// Reads a resource, from the response cache if possible. If memory is short, waits for it, so the request must not hold
/// any other contents. `T` has the members of the `resources/read` result that are needed.
pub(crate) async fn read<T: DeserializeOwned>(call: &Call, uri: &str) -> Result<T, Failure> {
    read_to_render(call, uri, |_| 0).await
}

/// Like [`read`], and reserves memory for what is made of the result. `output` returns its maximum size for a result of
/// a given size.
pub(crate) async fn read_to_render<T: DeserializeOwned>(
    call: &Call,
    uri: &str,
    output: impl Fn(usize) -> usize,
) -> Result<T, Failure> {
    loop {
        let reply = load(call, uri).await?;
        let size = reply.members.size();
        if call.reserve_total(size.saturating_mul(COPIES).saturating_add(output(size))) {
            return parsed(&reply.members);
        }
        // The result must not be in memory without counting.
        drop(reply);
        if !call.memory_is_free().await {
            return busy();
        }
    }
}

/// Like [`read`], for a request that holds other contents and therefore does not wait for memory.
pub(crate) async fn read_more<T: DeserializeOwned>(call: &Call, uri: &str) -> Result<T, Failure> {
    let reply = load(call, uri).await?;
    if !call.reserve_loaded(reply.members.size().saturating_mul(COPIES)) {
        return busy();
    }
    parsed(&reply.members)
}

/// Reserves memory, and waits for it if it is short. The request must not hold any contents.
pub(crate) async fn reserve(call: &Call, bytes: usize) -> Result<(), Failure> {
    while !call.reserve(bytes) {
        if !call.memory_is_free().await {
            return busy();
        }
    }
    Ok(())
}

async fn load(call: &Call, uri: &str) -> Result<Reply, Failure> {
    let view = call.view();
    let cached = view.cached(call.revision, CacheableRequest::Read(uri), Instant::now());
    match cached {
        Some(answer) => answer,
        None => view.read(call, uri).await,
    }
}

fn busy<T>() -> Result<T, Failure> {
    Err(Failure::Busy { message: "the memory for contents is used up; try again later".to_owned() })
}

fn parsed<T: DeserializeOwned>(members: &Members) -> Result<T, Failure> {
    parse(members)
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
