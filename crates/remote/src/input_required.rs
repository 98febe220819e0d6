//! Requests in several rounds: passes the input of a client to a server, and the server's requests for input to the client.
//!
//! Only the revisions without `initialize` have requests in several rounds. Libris gives no input itself, so it
//! declares to the server the capabilities of the client that sent the request, and only those for input.

use libris_core::{InputRequired, Meta, RequestInput};
use rmcp::model::{InputResponses, RequestMetaObject};
use serde_json::Value;

use crate::fault::{RemoteFault, quoted};

/// The requests for input that the protocol has, with the capability that a client needs for each.
const INPUT_METHODS: [(&str, &str); 3] =
    [("elicitation/create", "elicitation"), ("sampling/createMessage", "sampling"), ("roots/list", "roots")];

/// The member of `_meta` with the capabilities of a client.
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The maximum number of requests for input in one response.
const MAX_REQUESTS: usize = 64;

/// Whether a result asks for input.
pub(crate) fn is_asked(result: &Value) -> bool {
    result["resultType"] == "input_required"
}

/// The `_meta` that declares the capabilities of a client.
pub(crate) fn metadata(input: &RequestInput) -> RequestMetaObject {
    let mut meta = RequestMetaObject::new();
    meta.0.0.insert(CAPABILITIES.to_owned(), declared(input).into());
    meta
}

/// The capabilities for input that the client declares.
fn declared(input: &RequestInput) -> Meta {
    let mut capabilities: Meta = serde_json::from_str(&input.capabilities).unwrap_or_default();
    capabilities.retain(|name, _| INPUT_METHODS.iter().any(|(_, capability)| capability == name));
    capabilities
}

/// The responses and the state that a client sent.
pub(crate) fn given(input: &RequestInput) -> (Option<InputResponses>, Option<String>) {
    let responses = input.responses.as_ref().and_then(|responses| serde_json::from_str(responses).ok());
    (responses, input.state.as_ref().map(ToString::to_string))
}

/// What a server asks for in the result of `method`. A request that the client cannot fulfil is a fault: the client does
/// not expect it.
pub(crate) fn required(
    method: &'static str,
    mut result: Value,
    input: Option<&RequestInput>,
) -> Result<InputRequired, RemoteFault> {
    let input = input.ok_or(RemoteFault::InputRequired)?;
    let wrong = |cause: &str| RemoteFault::WrongResult { method, cause: cause.to_owned() };
    let requests = match result["inputRequests"].take() {
        Value::Null => None,
        Value::Object(requests) => Some(requests),
        _ => return Err(wrong("`inputRequests` is not an object")),
    };
    let state = match result["requestState"].take() {
        Value::Null => None,
        Value::String(state) => Some(state),
        _ => return Err(wrong("`requestState` is not a string")),
    };
    if requests.is_none() && state.is_none() {
        return Err(wrong("it has neither `inputRequests` nor `requestState`"));
    }
    if requests.as_ref().is_some_and(|requests| requests.len() > MAX_REQUESTS) {
        return Err(wrong("it has too many `inputRequests`"));
    }
    let declared = declared(input);
    for request in requests.iter().flat_map(Meta::values) {
        let asked = request["method"].as_str().unwrap_or_default();
        let capability = INPUT_METHODS.iter().find(|(method, _)| *method == asked);
        if !capability.is_some_and(|(_, capability)| declared.contains_key(*capability)) {
            return Err(RemoteFault::UnsupportedInput(quoted(asked)));
        }
    }
    Ok(InputRequired { requests, state })
}

#[cfg(test)]
mod tests {
    use libris_core::RequestInput;
    use serde_json::{Value, json};

    use super::{RemoteFault, given, metadata, required};

    fn input(capabilities: &Value) -> RequestInput {
        RequestInput { capabilities: capabilities.to_string().into(), ..RequestInput::default() }
    }

    #[test]
    fn only_capabilities_for_input_are_declared() {
        let capabilities = json!({
            "elicitation": { "form": {} },
            "experimental": { "secret": {} },
            "extensions": { "io.modelcontextprotocol/ui": {} },
        });
        let declared = metadata(&input(&capabilities));
        let declared = serde_json::to_value(declared.client_capabilities().unwrap()).unwrap();
        assert_eq!(declared, json!({ "elicitation": { "form": {} } }));
    }

    #[test]
    fn a_client_is_asked_only_for_input_that_it_can_give() {
        let elicitation =
            json!({ "method": "elicitation/create", "params": { "message": "Who?", "odd": 1 } });
        let result = json!({
            "resultType": "input_required",
            "inputRequests": { "who": elicitation },
            "requestState": "opaque \u{1f980}",
        });
        let able = input(&json!({ "elicitation": {} }));
        let asked = required("resources/read", result.clone(), Some(&able)).unwrap();
        assert_eq!(asked.state.as_deref(), Some("opaque \u{1f980}"));
        assert_eq!(Value::from(asked.requests.unwrap()), json!({ "who": elicitation }));
        for unable in [json!({}), json!({ "roots": {} })] {
            let fault = required("resources/read", result.clone(), Some(&input(&unable))).unwrap_err();
            assert_eq!(fault, RemoteFault::UnsupportedInput("elicitation/create".into()));
        }
        let fault = required("resources/read", result, None).unwrap_err();
        assert_eq!(fault, RemoteFault::InputRequired);
        let state = json!({ "resultType": "input_required", "requestState": "later" });
        assert!(required("resources/read", state, Some(&input(&json!({})))).unwrap().requests.is_none());
    }

    #[test]
    fn malformed_requests_for_input_are_refused() {
        for result in [
            json!({}),
            json!({ "inputRequests": [] }),
            json!({ "requestState": 7 }),
            json!({ "inputRequests": { "a": { "method": "ping" } } }),
            json!({ "inputRequests": { "a": 7 } }),
            json!({ "inputRequests": (0..65).map(|n| (n.to_string(), json!({ "method": "roots/list" }))).collect::<serde_json::Map<_, _>>() }),
        ] {
            let able = input(&json!({ "roots": {}, "elicitation": {} }));
            assert!(required("tools/call", result.clone(), Some(&able)).is_err(), "{result}");
        }
    }

    #[test]
    fn input_is_returned_as_it_was_given() {
        let input = RequestInput {
            responses: Some(r#"{"who":{"action":"accept","content":{"name":"ada"}}}"#.into()),
            state: Some("s\n".into()),
            ..RequestInput::default()
        };
        let (responses, state) = given(&input);
        assert_eq!(responses.unwrap()["who"], json!({ "action": "accept", "content": { "name": "ada" } }));
        assert_eq!(state.as_deref(), Some("s\n"));
    }
}
