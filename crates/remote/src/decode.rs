//! Decodes the messages of a server. A malformed response fails the request that it answers; malformed entries of a list
//! are left out.
//!
//! rmcp recognises a result by its shape, because it does not know which method the result belongs to. So a list with
//! one malformed entry would be taken for another kind of result. Therefore the transports of this crate record the
//! method of each request, and this module decodes the result by its method.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ClientJsonRpcMessage, CompleteResult, CustomResult, GetPromptResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, Prompt, ReadResourceResult, RequestId,
    Resource, ResourceTemplate, ServerJsonRpcMessage, ServerResult, Tool,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::fault::{RemoteFault, quoted};
use crate::{directory, input_required, json_weight, skill_list, tool_list};

/// The methods whose results are decoded here.
pub(crate) const METHODS: [&str; 11] = [
    "resources/list",
    "resources/templates/list",
    "resources/read",
    directory::METHOD,
    "completion/complete",
    "prompts/list",
    "prompts/get",
    "tools/list",
    tool_list::CALL,
    skill_list::LIST,
    skill_list::GET,
];

/// The id of the request is searched for in this many bytes at each end of a dropped message.
const ID_WINDOW: usize = 256;

/// The maximum number of unanswered requests whose methods are remembered. If there are more, all are forgotten, and
/// rmcp recognises the results by their shape.
const MAX_PENDING: usize = 1024;

/// The methods of the requests that are not answered yet.
#[derive(Clone, Default)]
pub(crate) struct PendingMethods(Arc<Mutex<HashMap<RequestId, &'static str>>>);

impl PendingMethods {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, &'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the method of a request before it is sent.
    pub(crate) fn record(&self, message: &ClientJsonRpcMessage) {
        if let ClientJsonRpcMessage::Request(request) = message
            && let Some(method) = METHODS.into_iter().find(|method| *method == request.request.method())
        {
            let mut pending = self.lock();
            // Requests that are never answered must not accumulate.
            if pending.len() >= MAX_PENDING {
                pending.clear();
            }
            pending.insert(request.id.clone(), method);
        }
    }

    fn take(&self, id: &RequestId) -> Option<&'static str> {
        self.lock().remove(id)
    }
}

/// Why a message was not decoded.
#[derive(Debug)]
pub(crate) enum DecodeFailure {
    /// The message is not JSON-RPC.
    NotMessage,
    /// The message is a malformed response to this request.
    Response(RequestId, RemoteFault),
    /// The message is malformed, and it is unknown which request it answers.
    Unknown(RemoteFault),
}

impl DecodeFailure {
    fn new(id: Option<RequestId>, fault: RemoteFault) -> Self {
        match id {
            Some(id) => Self::Response(id, fault),
            None => Self::Unknown(fault),
        }
    }
}

/// The members of a message that decide how it is decoded.
#[derive(Deserialize)]
struct ResponseEnvelope<'a> {
    id: Option<RequestId>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

/// Decodes a message. The result of a response is decoded by the method in `pending`, which forgets the request. A message
/// whose decoded form would take too much memory for the size limit `max_message` is refused.
pub(crate) fn message(
    bytes: &[u8],
    pending: &PendingMethods,
    max_message: usize,
) -> Result<ServerJsonRpcMessage, DecodeFailure> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => {
            let id = id_within(bytes, bytes);
            return Err(DecodeFailure::new(id, RemoteFault::NotUtf8));
        }
    };
    if let Err(limit) = json_weight::check(bytes, max_message) {
        return Err(DecodeFailure::new(id_within(bytes, bytes), RemoteFault::TooComplex { limit }));
    }
    let Ok(ResponseEnvelope { id, result }) = serde_json::from_str(text) else {
        return Err(DecodeFailure::NotMessage);
    };
    let method = id.as_ref().filter(|_| result.is_some()).and_then(|id| pending.take(id));
    match (id, result, method) {
        (Some(id), Some(result), Some(method)) => match result_of(method, result) {
            Ok(result) => Ok(ServerJsonRpcMessage::response(result, id)),
            Err(cause) => {
                let cause = quoted(&cause.to_string());
                Err(DecodeFailure::Response(id, RemoteFault::WrongResult { method, cause }))
            }
        },
        _ => serde_json::from_str(text).map_err(|_| DecodeFailure::NotMessage),
    }
}

/// Decodes the result of a method.
pub(crate) fn result_of(method: &str, result: &RawValue) -> serde_json::Result<ServerResult> {
    let text = result.get();
    Ok(match method {
        "resources/list" => {
            list_without_malformed::<ListResourcesResult, Resource>(text, "resources")?.into()
        }
        "resources/templates/list" => {
            list_without_malformed::<ListResourceTemplatesResult, ResourceTemplate>(
                text,
                "resourceTemplates",
            )?
            .into()
        }
        "resources/read" => match serde_json::from_str::<ReadResourceResult>(text) {
            Ok(read) => read.into(),
            Err(cause) => input_requests(text).ok_or(cause)?,
        },
        "completion/complete" => serde_json::from_str::<CompleteResult>(text)?.into(),
        "prompts/list" => list_without_malformed::<ListPromptsResult, Prompt>(text, "prompts")?.into(),
        "prompts/get" => match serde_json::from_str::<GetPromptResult>(text) {
            Ok(prompt) => prompt.into(),
            Err(cause) => input_requests(text).ok_or(cause)?,
        },
        "tools/list" => list_without_malformed::<ListToolsResult, Tool>(text, "tools")?.into(),
        // The result is passed on as it is: the types of rmcp lack members that it may have.
        tool_list::CALL => CustomResult::new(serde_json::from_str(text)?).into(),
        // rmcp has no types for extensions.
        directory::METHOD | skill_list::LIST | skill_list::GET => {
            CustomResult::new(serde_json::from_str(text)?).into()
        }
        _ => serde_json::from_str(text)?,
    })
}

/// A result that asks for input; `None` for any other. It is passed on as it is: the types of rmcp lack members that the
/// requests may have.
fn input_requests(text: &str) -> Option<ServerResult> {
    let result: serde_json::Value = serde_json::from_str(text).ok()?;
    input_required::is_asked(&result).then(|| CustomResult::new(result).into())
}

/// Decodes a list. If an entry is malformed, the list is decoded without it.
fn list_without_malformed<L: DeserializeOwned, T: DeserializeOwned>(
    text: &str,
    key: &str,
) -> serde_json::Result<L> {
    let cause = match serde_json::from_str(text) {
        Ok(list) => return Ok(list),
        Err(cause) => cause,
    };
    let mut list: serde_json::Value = serde_json::from_str(text)?;
    let Some(entries) = list.get_mut(key).and_then(serde_json::Value::as_array_mut) else {
        return Err(cause);
    };
    let before = entries.len();
    entries.retain(|entry| T::deserialize(entry).is_ok());
    let dropped = before - entries.len();
    if dropped > 0 {
        tracing::warn!(dropped, "an MCP server sent malformed entries in `{key}`, which are left out");
    }
    serde_json::from_value(list)
}

/// The error response to a request whose response could not be decoded.
pub(crate) fn substitute(id: RequestId, fault: &RemoteFault) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(fault.substitute(), Some(id))
}

/// Searches for the id of the request in the first and the last bytes of a response: servers write it before or after
/// the result. Only numeric ids are found; rmcp sends no others.
pub(crate) fn id_within(head: &[u8], tail: &[u8]) -> Option<RequestId> {
    let head = &head[..head.len().min(ID_WINDOW)];
    let tail = &tail[tail.len().saturating_sub(ID_WINDOW)..];
    let head = String::from_utf8_lossy(head);
    let tail = String::from_utf8_lossy(tail);
    let before_result = head.find("\"result\"").map_or(&*head, |end| &head[..end]);
    let first = before_result.find("\"id\"").and_then(|at| number_after_id(&before_result[at..]));
    let last = || tail.rfind("\"id\"").and_then(|at| number_after_id(&tail[at..]));
    first.or_else(last).map(RequestId::Number)
}

fn number_after_id(text: &str) -> Option<i64> {
    let rest = text.strip_prefix("\"id\"")?.trim_start().strip_prefix(':')?.trim_start();
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Keeps the first and the last bytes of a message that is too large, while the rest is discarded.
#[derive(Default)]
pub(crate) struct DroppedMessage {
    head: Vec<u8>,
    tail: Vec<u8>,
    len: usize,
}

impl DroppedMessage {
    /// The number of received bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds received bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        let missing = ID_WINDOW.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..missing]);
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(ID_WINDOW)..]);
        let excess = self.tail.len().saturating_sub(ID_WINDOW);
        self.tail.drain(..excess);
    }

    /// The id of the request that the message answers.
    pub(crate) fn id(&self) -> Option<RequestId> {
        id_within(&self.head, &self.tail)
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage, ServerResult};
    use rmcp::model::{
        ClientRequest, ListResourcesRequest, NumberOrString, ReadResourceRequest, ReadResourceRequestParams,
    };

    use super::{DecodeFailure, DroppedMessage, PendingMethods, id_within, message};
    use crate::fault::RemoteFault;

    const MAX: usize = 1 << 20;

    fn pending() -> PendingMethods {
        let pending = PendingMethods::default();
        let list = ClientRequest::ListResourcesRequest(ListResourcesRequest::default());
        pending.record(&ClientJsonRpcMessage::request(list, NumberOrString::Number(1)));
        let read = ReadResourceRequest::new(ReadResourceRequestParams::new("a:1"));
        pending.record(&ClientJsonRpcMessage::request(
            ClientRequest::ReadResourceRequest(read),
            NumberOrString::Number(2),
        ));
        pending
    }

    #[test]
    fn malformed_entries_are_left_out() {
        let text = r#"{"jsonrpc":"2.0","id":1,"result":{"resources":[{"uri":"a:1","name":"one"},{"uri":7},{"name":"x"}]}}"#;
        let Ok(ServerJsonRpcMessage::Response(response)) = message(text.as_bytes(), &pending(), MAX) else {
            panic!()
        };
        let ServerResult::ListResourcesResult(list) = response.result else { panic!() };
        assert_eq!(list.resources.iter().map(|one| &*one.uri).collect::<Vec<_>>(), ["a:1"]);
    }

    #[test]
    fn a_malformed_response_fails_its_request() {
        for text in [
            &br#"{"jsonrpc":"2.0","id":2,"result":{"contents":"no"}}"#[..],
            br#"{"jsonrpc":"2.0","result":{"resources":[]},"id":2}"#,
            b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"contents\":[{\"uri\":\"a:1\",\"text\":\"\xff\"}]}}",
        ] {
            let failure = message(text, &pending(), MAX).unwrap_err();
            let DecodeFailure::Response(id, fault) = failure else { panic!("{failure:?}") };
            assert_eq!(id, NumberOrString::Number(2));
            assert!(matches!(
                fault,
                RemoteFault::WrongResult { method: "resources/read", .. } | RemoteFault::NotUtf8
            ));
        }
        assert!(matches!(message(b"Listening on port 3", &pending(), MAX), Err(DecodeFailure::NotMessage)));
        assert!(matches!(message(b"[]", &pending(), MAX), Err(DecodeFailure::NotMessage)));
    }

    #[test]
    fn a_response_of_very_many_values_fails_its_request() {
        let values = "{\"\":0},".repeat(100_000);
        let text = format!(r#"{{"jsonrpc":"2.0","id":2,"result":{{"contents":[{values}0]}}}}"#);
        let failure = message(text.as_bytes(), &pending(), MAX).unwrap_err();
        let DecodeFailure::Response(id, fault) = failure else { panic!("{failure:?}") };
        assert_eq!((id, fault), (NumberOrString::Number(2), RemoteFault::TooComplex { limit: 8 * MAX }));
    }

    #[test]
    fn the_id_of_a_dropped_message_is_found_at_either_end() {
        let long = "x".repeat(10_000);
        for text in [
            format!(r#"{{"jsonrpc":"2.0","id": 42,"result":{{"id":1,"text":"{long}"}}}}"#),
            format!(r#"{{"result":{{"text":"{long}","id":9}},"jsonrpc":"2.0","id":42}}"#),
        ] {
            let mut dropped = DroppedMessage::default();
            text.as_bytes().chunks(100).for_each(|chunk| dropped.add(chunk));
            assert_eq!(dropped.id(), Some(NumberOrString::Number(42)), "{}", &text[..30]);
        }
        assert_eq!(id_within(b"{\"method\":\"x\"}", b""), None);
    }
}
