//! The JSON-RPC envelope: parses messages without copying them, and frames responses around encoded members.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use libris_escape::capacity;

use crate::Revision;
use crate::failure::{ErrorObject, Failure, INVALID_REQUEST, PARSE_ERROR};
use crate::json::{self, JsonSyntaxError, Reader, Shape, Text};
use crate::members::{Members, ResponsePieces};
use crate::request::Params;

/// The longest request id that is accepted, in bytes of JSON.
const LONGEST_ID: usize = 1024;

/// A request id, as the JSON that the client sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(Box<str>);

impl Id {
    /// The id, if this JSON is a string or a number of at most `LONGEST_ID` bytes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let first = *text.as_bytes().first()?;
        let fits = text.len() <= LONGEST_ID && (first == b'"' || first == b'-' || first.is_ascii_digit());
        fits.then(|| Self(text.into()))
    }

    /// The id as JSON.
    pub(crate) fn as_json(&self) -> &str {
        &self.0
    }
}

/// One message of a client.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Request {
        id: Id,
        method: Cow<'a, str>,
        params: Params<'a>,
    },
    Notification {
        method: Cow<'a, str>,
        params: Params<'a>,
    },
    /// A response. It is ignored, because the server sends no requests.
    Response,
}

/// The content of one line or one request body.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every message is `One`, and boxing it would cost an allocation per request"
)]
pub(crate) enum Incoming<'a> {
    One(Message<'a>),
    Batch(Vec<&'a str>),
}

/// The error for input that is not a valid message, with the request id if that could be parsed.
#[derive(Debug)]
pub(crate) struct Malformed {
    pub(crate) id: Option<Id>,
    pub(crate) error: ErrorObject,
}

/// The members of a message, before validation.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<Text<'a>>,
    /// `Some` even for an explicit null.
    id: Option<&'a str>,
    method: Option<Text<'a>>,
    params: Option<Shape<Params<'a>>>,
    /// Whether it has a `result` or an `error` other than null, which makes it a response.
    is_response: bool,
    /// Whether a member of the message or of its parameters is repeated.
    has_duplicate: bool,
}

impl<'a> Envelope<'a> {
    fn read(text: &'a str) -> Result<Self, JsonSyntaxError> {
        let mut reader = Reader::new(text);
        let mut envelope = Self::default();
        let mut has_duplicate = false;
        reader.object(|reader, name| {
            has_duplicate |= match name {
                "jsonrpc" => set(&mut envelope.jsonrpc, reader.text()?),
                "id" => set(&mut envelope.id, Some(reader.raw()?)),
                "method" => set(&mut envelope.method, reader.text()?),
                "params" => set(&mut envelope.params, reader.shape(Params::read)?),
                "result" | "error" => {
                    envelope.is_response |= reader.raw()? != "null";
                    false
                }
                _ => reader.skip().map(|()| false)?,
            };
            Ok(())
        })?;
        reader.end()?;
        if let Some(Shape::Valid(params)) = &envelope.params {
            has_duplicate |= params.has_duplicate;
        }
        Ok(Self { has_duplicate, ..envelope })
    }
}

/// Stores the value of a member. Returns whether the member is repeated.
pub(crate) fn set<T>(member: &mut Option<T>, value: Option<T>) -> bool {
    std::mem::replace(member, value).is_some()
}

/// Parses a message or a batch. Of a batch, at most `most + 1` messages are returned, which is enough for the caller to
/// detect that the batch is too large.
pub(crate) fn parse(bytes: &[u8], most: usize) -> Result<Incoming<'_>, Malformed> {
    // UTF-8 is validated once for the whole input, rather than for each string.
    let text = std::str::from_utf8(bytes).map_err(|cause| not_text(bytes, cause.valid_up_to()))?;
    let mut reader = Reader::new(text);
    if reader.peek() != b'[' {
        return message(text).map(Incoming::One);
    }
    let mut batch = Vec::new();
    let read = reader.array(|reader| {
        let message = reader.raw()?;
        if batch.len() <= most {
            batch.push(message);
        }
        Ok(())
    });
    read.and_then(|()| reader.end()).map_err(|broken| not_json(text, broken))?;
    if batch.is_empty() {
        return Err(Malformed {
            id: None,
            error: ErrorObject::new(INVALID_REQUEST, "a batch must not be empty"),
        });
    }
    Ok(Incoming::Batch(batch))
}

/// Parses one message.
pub(crate) fn message(text: &str) -> Result<Message<'_>, Malformed> {
    if Reader::new(text).peek() != b'{' {
        let mut reader = Reader::new(text);
        return Err(match reader.skip().and_then(|()| reader.end()) {
            Ok(()) => invalid(None, "a message must be a JSON object"),
            Err(broken) => not_json(text, broken),
        });
    }
    let envelope = Envelope::read(text).map_err(|broken| not_json(text, broken))?;
    if envelope.has_duplicate {
        return Err(invalid(None, "a member of the message is repeated: send each once"));
    }
    let id = envelope.id.map(|raw| Id::parse(raw).ok_or(raw));
    let known = id.as_ref().and_then(|id| id.as_ref().ok().cloned());
    if envelope.jsonrpc.as_ref().and_then(Text::valid).map(|version| &**version) != Some("2.0") {
        return Err(invalid(known, "`jsonrpc` must be \"2.0\""));
    }
    let Some(method) = envelope.method else {
        if envelope.is_response {
            return Ok(Message::Response);
        }
        return Err(invalid(known, "`method` is missing"));
    };
    let Text::Valid(method) = method else {
        return Err(invalid(known, "`method` must be a string"));
    };
    let params = match envelope.params {
        None => Params::default(),
        Some(Shape::Valid(params)) => params,
        Some(Shape::Invalid) => return Err(invalid(known, "`params` must be an object")),
    };
    match id {
        Some(Ok(id)) => Ok(Message::Request { id, method, params }),
        Some(Err(_)) => Err(invalid(None, "`id` must be a string or a number of at most 1024 characters")),
        None => Ok(Message::Notification { method, params }),
    }
}

fn invalid(id: Option<Id>, why: &'static str) -> Malformed {
    Malformed { id, error: ErrorObject::new(INVALID_REQUEST, why) }
}

fn not_json(text: &str, JsonSyntaxError(at): JsonSyntaxError) -> Malformed {
    let (line, column) = json::line_and_column(text.as_bytes(), at);
    let why = format!("not JSON: line {line}, column {column}");
    Malformed { id: None, error: ErrorObject::new(PARSE_ERROR, why) }
}

fn not_text(bytes: &[u8], good: usize) -> Malformed {
    let (line, column) = json::line_and_column(bytes, good);
    let why = format!("not JSON: line {line}, column {column} is not UTF-8");
    Malformed { id: None, error: ErrorObject::new(PARSE_ERROR, why) }
}

/// An outgoing message. The members of a result are not copied, but stay a separate piece between a head and a tail.
#[derive(Clone, Debug)]
pub(crate) struct Framed {
    pub(crate) head: Bytes,
    pub(crate) members: Members,
    pub(crate) tail: Bytes,
    /// All scopes that the request requires, if this is an error because the caller's token lacks some of them.
    pub(crate) required_scopes: Option<Arc<[Box<str>]>>,
}

impl Framed {
    /// The response to request `id`: a result object with these members, followed by `end`, which begins with a comma
    /// if it has members and closes both objects.
    pub(crate) fn result(id: &Id, members: Members, end: Bytes) -> Self {
        const BEFORE: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":";
        const AFTER: &[u8] = b",\"result\":{";
        let id = id.as_json();
        let mut head = BytesMut::with_capacity(BEFORE.len() + id.len() + AFTER.len());
        head.put_slice(BEFORE);
        head.put_slice(id.as_bytes());
        head.put_slice(AFTER);
        let tail = if members.is_empty() && end.starts_with(b",") { end.slice(1..) } else { end };
        Self { head: head.freeze(), members, tail, required_scopes: None }
    }

    /// The error response for request `id`, or for a message whose id could not be parsed.
    pub(crate) fn error(id: Option<&Id>, error: &ErrorObject) -> Self {
        let id = id.map_or("null", Id::as_json);
        let text = serde_json::to_string(error).unwrap_or_default();
        let framed = Self::whole(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{text}}}"));
        Self { required_scopes: error.required_scopes.clone(), ..framed }
    }

    /// The error response for a request that failed.
    pub(crate) fn failure(id: &Id, failure: Failure, revision: Revision) -> Self {
        match failure {
            // Encoded without `serde_json::Value`, which is faster: this is by far the most frequent error, and any
            // client can cause it.
            Failure::NotFound { uri, hint } => Self::not_found(id, &uri, hint.as_deref(), revision),
            failure => Self::error(Some(id), &failure.object(revision)),
        }
    }

    fn not_found(id: &Id, uri: &str, hint: Option<&str>, revision: Revision) -> Self {
        let texts = capacity(uri.len()) + hint.map_or(0, |hint| capacity(hint.len()));
        let mut json = Vec::with_capacity(128 + id.as_json().len() + texts);
        json.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        json.extend_from_slice(id.as_json().as_bytes());
        json.extend_from_slice(b",\"error\":{\"code\":");
        // Writing to a vector cannot fail.
        let _ = serde_json::to_writer(&mut json, &revision.facts().not_found);
        json.extend_from_slice(b",\"message\":\"resource not found");
        if let Some(hint) = hint {
            json.extend_from_slice(b": ");
            libris_escape::append(&mut json, hint);
        }
        json.extend_from_slice(b"\",\"data\":{\"uri\":\"");
        libris_escape::append(&mut json, uri);
        json.extend_from_slice(b"\"}}}");
        Self::whole(json)
    }

    /// A message that is encoded already.
    pub(crate) fn whole(message: impl Into<Bytes>) -> Self {
        Self { head: message.into(), members: Members::NONE, tail: Bytes::new(), required_scopes: None }
    }

    /// Head, members and tail, if all of them are encoded.
    pub(crate) fn encoded(&self) -> Option<[&Bytes; 3]> {
        Some([&self.head, self.members.encoded()?, &self.tail])
    }

    /// An iterator that encodes the message piece by piece.
    pub(crate) fn pieces(self) -> ResponsePieces {
        ResponsePieces::new(self.head, self.members, self.tail)
    }

    /// The size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.head.len() + self.members.size() + self.tail.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Framed, Id, Incoming, Message, Revision, message, parse};
    use crate::members::Members;
    use bytes::Bytes;

    fn code(text: &str) -> i32 {
        match parse(text.as_bytes(), 64) {
            Ok(_) => 0,
            Err(malformed) => malformed.error.code,
        }
    }

    #[test]
    fn invalid_messages_have_the_right_error_code() {
        assert_eq!(
            parse(b"{\n\"a\":\"\xff\"", 64).unwrap_err().error.message,
            "not JSON: line 2, column 6 is not UTF-8"
        );
        for garbage in ["", "{", "nonsense", "{\"jsonrpc\":\"2.0\"", "\u{1}\u{2}", "[1,"] {
            assert_eq!(code(garbage), -32700, "{garbage:?}");
        }
        for wrong in [
            "1",
            "null",
            "\"text\"",
            "[]",
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#,
            r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
        ] {
            assert_eq!(code(wrong), -32600, "{wrong}");
        }
    }

    #[test]
    fn an_array_is_not_a_message() {
        assert_eq!(message(r#"["2.0",7,"ping"]"#).unwrap_err().error.code, -32600);
    }

    #[test]
    fn the_error_for_a_malformed_request_has_its_id() {
        let malformed = message(r#"{"jsonrpc":"2.0","id":"x","method":7}"#).unwrap_err();
        assert_eq!(malformed.id.as_ref().map(Id::as_json), Some("\"x\""));
    }

    #[test]
    fn ids_are_returned_unchanged() {
        for id in ["1", "-7", "\"a\\u0000b\"", "123456789012345678901234567890", "1.50"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
            let Ok(Incoming::One(Message::Request { id: parsed, .. })) = parse(text.as_bytes(), 64) else {
                panic!("{text}");
            };
            assert_eq!(parsed.as_json(), id);
        }
    }

    #[test]
    fn the_fast_encoding_of_not_found_equals_the_general_one() {
        let id = Id("\"a\"".into());
        for hint in [None, Some("see \"docs\"\n\u{1}é".to_owned())] {
            for revision in Revision::ALL {
                let failure = Failure::NotFound { uri: "file:///a\"b\\ü".into(), hint: hint.clone() };
                let fast = Framed::failure(&id, failure.clone(), revision);
                let slow = Framed::error(Some(&id), &failure.object(revision));
                let value =
                    |framed: Framed| serde_json::from_slice::<serde_json::Value>(&framed.head).unwrap();
                assert_eq!(value(fast), value(slow));
            }
        }
    }

    #[test]
    fn results_of_all_sizes_are_framed_correctly() {
        let id = Id("7".into());
        for size in [0, 16 << 10, (16 << 10) + 1] {
            let members = Bytes::from(format!("\"text\":\"{}\"", "x".repeat(size))).into();
            let framed = Framed::result(&id, members, Bytes::from_static(b",\"more\":true}}"));
            let size_in_memory = framed.size();
            let whole: Vec<u8> = framed.pieces().flatten().collect();
            assert_eq!(whole.len(), size_in_memory);
            let value: serde_json::Value = serde_json::from_slice(&whole).unwrap();
            assert_eq!(value["id"], 7);
            assert_eq!(value["result"]["text"].as_str().unwrap().len(), size);
            assert_eq!(value["result"]["more"], true);
        }
        for (end, expected) in [("}}", "{}"), (",\"a\":1}}", "{\"a\":1}")] {
            let empty = Framed::result(&id, Members::NONE, end.into());
            let whole: Vec<u8> = empty.pieces().flatten().collect();
            let expected = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{expected}}}"#);
            assert_eq!(String::from_utf8(whole).unwrap(), expected);
        }
    }
}
