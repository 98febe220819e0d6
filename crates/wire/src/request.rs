//! The requests of the protocol, parsed from a method and its parameters.

mod params;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use libris_core::RequestInput;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::app;
use crate::failure::{ErrorObject, INVALID_PARAMS};
use crate::json::{Reader, Text};
use crate::service::{CompletionParams, Reference};
use crate::{Era, Failure, Revision, ServiceView};

use params::{LONGEST_QUOTE, decode, owned};
pub(crate) use params::{Params, RequestMeta, missing};

/// The method that lists tools.
pub(crate) const TOOLS_LIST: &str = "tools/list";

/// The maximum number of resources that one `subscriptions/listen` may name, and the maximum number of arguments in the
/// context of a completion. Unknown resources count too: they cause no subscription, but take time.
const MAX_NAMED: usize = 4_096;

/// The maximum size of the values of a completion with their names, in bytes: those of the completed argument and of the
/// context. A source may process all of them once per value that it offers.
const MAX_COMPLETED_BYTES: usize = 8 << 10;

/// A request with validated parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum McpRequest {
    Initialize {
        /// The protocol version that the client asks for.
        asked: String,
        client: ClientInfo,
        shows_apps: bool,
    },
    Discover {
        client: ClientInfo,
        shows_apps: bool,
    },
    Ping,
    List {
        cursor: Option<String>,
    },
    Templates {
        cursor: Option<String>,
    },
    Read {
        uri: String,
        input: Option<Arc<RequestInput>>,
    },
    Complete(CompletionParams),
    Subscribe {
        uri: String,
    },
    Unsubscribe {
        uri: String,
    },
    Listen(ListenFilter),
    /// A method that only the view knows, with its parameters as JSON.
    Other {
        method: String,
        params: String,
        input: Option<Arc<RequestInput>>,
    },
}

/// The notifications that a `subscriptions/listen` request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct ListenFilter {
    #[serde(default, rename = "resourcesListChanged")]
    pub(crate) list: bool,
    #[serde(default, rename = "promptsListChanged")]
    pub(crate) prompts: bool,
    #[serde(default, rename = "toolsListChanged")]
    pub(crate) tools: bool,
    /// At most `MAX_NAMED + 1` of the URIs, which is enough to detect that there are too many.
    #[serde(default, rename = "resourceSubscriptions", deserialize_with = "first_named")]
    pub(crate) resources: Vec<String>,
}

/// Deserializes the first `MAX_NAMED + 1` strings of a list and skips the rest, so that a list that will be refused
/// takes little memory.
fn first_named<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<String>, D::Error> {
    struct FirstVisitor;
    impl<'de> Visitor<'de> for FirstVisitor {
        type Value = Vec<String>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a list of URIs")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<String>, A::Error> {
            let mut first = Vec::new();
            while first.len() <= MAX_NAMED
                && let Some(text) = list.next_element()?
            {
                first.push(text);
            }
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }
    list.deserialize_seq(FirstVisitor)
}

impl McpRequest {
    /// Whether the request is exempt from the limits on requests in progress, because its response needs no source. (Only
    /// the instructions in the responses to `initialize` and `server/discover` may need one.)
    pub(crate) fn is_exempt(&self) -> bool {
        match self {
            Self::Initialize { .. } | Self::Discover { .. } | Self::Ping => true,
            Self::List { .. }
            | Self::Templates { .. }
            | Self::Read { .. }
            | Self::Complete(_)
            | Self::Subscribe { .. }
            | Self::Unsubscribe { .. }
            | Self::Listen(_)
            | Self::Other { .. } => false,
        }
    }

    /// The method.
    pub(crate) fn method(&self) -> &str {
        match self {
            Self::Initialize { .. } => "initialize",
            Self::Discover { .. } => "server/discover",
            Self::Ping => "ping",
            Self::List { .. } => "resources/list",
            Self::Templates { .. } => "resources/templates/list",
            Self::Read { .. } => "resources/read",
            Self::Complete(_) => "completion/complete",
            Self::Subscribe { .. } => "resources/subscribe",
            Self::Unsubscribe { .. } => "resources/unsubscribe",
            Self::Listen(_) => "subscriptions/listen",
            Self::Other { method, .. } => method,
        }
    }

    /// The URI that the request names.
    pub(crate) fn uri(&self) -> Option<&str> {
        match self {
            Self::Read { uri, .. } | Self::Subscribe { uri } | Self::Unsubscribe { uri } => Some(uri),
            Self::Complete(CompletionParams { reference: Reference::Resource(uri), .. }) => Some(uri),
            _ => None,
        }
    }

    /// Parses a request according to `revision`.
    pub(crate) fn parse(
        revision: Revision,
        view: &dyn ServiceView,
        method: &str,
        params: &Params<'_>,
    ) -> Result<Self, ErrorObject> {
        let cursor = || params.cursor.as_ref().map(|value| owned("cursor", value)).transpose();
        let required = |name, value: &Option<Text<'_>>| match value {
            None => Err(missing(name)),
            Some(value) => owned(name, value),
        };
        match (method, revision.facts().era) {
            ("initialize", Era::Legacy) => Ok(Self::Initialize {
                asked: required("protocolVersion", &params.protocol_version)?,
                client: ClientInfo::of_initialize(params),
                shows_apps: app::are_declared(params.raw),
            }),
            ("ping", Era::Legacy) => Ok(Self::Ping),
            ("server/discover", Era::Modern) => {
                let shows_apps = app::are_declared(params.raw);
                Ok(Self::Discover { client: ClientInfo::of_discover(params), shows_apps })
            }
            ("resources/list", _) => Ok(Self::List { cursor: cursor()? }),
            ("resources/templates/list", _) => Ok(Self::Templates { cursor: cursor()? }),
            ("resources/read", _) => {
                Ok(Self::Read { uri: required("uri", &params.uri)?, input: params.input(revision)? })
            }
            ("completion/complete", _) => Ok(Self::Complete(completion_params(params)?)),
            ("resources/subscribe", Era::Legacy) => {
                Ok(Self::Subscribe { uri: required("uri", &params.uri)? })
            }
            ("resources/unsubscribe", Era::Legacy) => {
                Ok(Self::Unsubscribe { uri: required("uri", &params.uri)? })
            }
            ("subscriptions/listen", Era::Modern) => {
                let filter = params.notifications.ok_or_else(|| missing("notifications"))?;
                let filter: ListenFilter = decode("notifications", filter)?;
                if filter.resources.len() > MAX_NAMED {
                    let why = format!("`resourceSubscriptions` may name {MAX_NAMED} resources at most");
                    return Err(ErrorObject::new(INVALID_PARAMS, why));
                }
                Ok(Self::Listen(filter))
            }
            _ if view.answers(revision, method) => {
                let input = match method {
                    "prompts/get" | "tools/call" => params.input(revision)?,
                    _ => None,
                };
                let params = if params.raw.is_empty() { "{}" } else { params.raw };
                Ok(Self::Other { method: method.to_owned(), params: params.to_owned(), input })
            }
            _ => Err(ErrorObject::method_not_found(method)),
        }
    }
}

/// The name and version of a client, for the log. Both are empty if they are missing or malformed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct ClientInfo {
    pub(crate) name: String,
    pub(crate) version: String,
}

impl ClientInfo {
    // These two functions decode the parameters a second time, so that requests of all other methods, which are far more
    // frequent, do not decode the member.

    fn of_initialize(params: &Params<'_>) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct InitializeParams {
            #[serde(rename = "clientInfo")]
            client: ClientInfo,
        }
        serde_json::from_str::<InitializeParams>(params.raw).unwrap_or_default().client.truncated()
    }

    fn of_discover(params: &Params<'_>) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct DiscoverParams {
            #[serde(rename = "_meta")]
            meta: DiscoverMeta,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct DiscoverMeta {
            #[serde(rename = "io.modelcontextprotocol/clientInfo")]
            client: ClientInfo,
        }
        serde_json::from_str::<DiscoverParams>(params.raw).unwrap_or_default().meta.client.truncated()
    }

    fn truncated(self) -> Self {
        let truncated = |text: String| text.chars().take(LONGEST_QUOTE).collect();
        Self { name: truncated(self.name), version: truncated(self.version) }
    }
}

impl CompletionParams {
    /// Parses the parameters of `completion/complete`, which are a JSON object.
    pub fn parse(params: &str) -> Result<Self, Failure> {
        let params = Params::read(&mut Reader::new(params))
            .map_err(|_| Failure::invalid("the parameters must be an object"))?;
        completion_params(&params).map_err(|error| Failure::invalid(error.message))
    }
}

fn completion_params(params: &Params<'_>) -> Result<CompletionParams, ErrorObject> {
    #[derive(Deserialize)]
    struct CompletionRef<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
        #[serde(default)]
        uri: Option<String>,
        #[serde(default)]
        name: Option<String>,
    }
    #[derive(Deserialize)]
    struct CompletionArgument {
        name: String,
        value: String,
    }
    #[derive(Default, Deserialize)]
    struct CompletionContext {
        #[serde(default)]
        arguments: BTreeMap<String, String>,
    }
    let reference: CompletionRef<'_> =
        params.reference.map_or(Err(missing("ref")), |raw| decode("ref", raw))?;
    let argument: CompletionArgument =
        params.argument.map_or(Err(missing("argument")), |raw| decode("argument", raw))?;
    let context: CompletionContext =
        params.context.map_or_else(|| Ok(CompletionContext::default()), |raw| decode("context", raw))?;
    if context.arguments.len() > MAX_NAMED {
        let why = format!("`context` may have {MAX_NAMED} arguments at most");
        return Err(ErrorObject::new(INVALID_PARAMS, why));
    }
    let known: usize = context.arguments.iter().map(|(name, value)| name.len() + value.len()).sum();
    if argument.name.len() + argument.value.len() + known > MAX_COMPLETED_BYTES {
        return Err(ErrorObject::new(
            INVALID_PARAMS,
            format!(
                "the names and values of a completion must have at most {MAX_COMPLETED_BYTES} bytes together"
            ),
        ));
    }
    let reference = match (&*reference.kind, reference.uri, reference.name) {
        ("ref/resource", Some(uri), _) => Reference::Resource(uri),
        ("ref/resource", None, _) => return Err(missing("ref.uri")),
        ("ref/prompt", _, Some(name)) => Reference::Prompt(name),
        ("ref/prompt", _, None) => return Err(missing("ref.name")),
        _ => {
            let why = "`ref.type` must be \"ref/resource\" or \"ref/prompt\"";
            return Err(ErrorObject::new(INVALID_PARAMS, why));
        }
    };
    Ok(CompletionParams {
        reference,
        argument: argument.name,
        typed: argument.value,
        known: context.arguments,
        sent: [params.reference, params.argument, params.context].map(|sent| sent.unwrap_or_default().into()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{CompletionParams, ListenFilter, MAX_COMPLETED_BYTES, MAX_NAMED, McpRequest, Params, Reader};
    use crate::Revision;
    use crate::empty::Empty;

    fn parse(method: &str, params: &str) -> Result<McpRequest, String> {
        let params = Params::read(&mut Reader::new(params)).unwrap();
        McpRequest::parse(Revision::V2025_06_18, &Empty, method, &params)
            .map_err(|error| format!("{} {}", error.code, error.message))
    }

    #[test]
    fn decoding_stops_after_the_first_excess_uri() {
        let list =
            |count| format!("{{\"resourceSubscriptions\":[{}\"toy:a\"]}}", "\"toy:a\",".repeat(count - 1));
        for (count, decoded) in [(1, 1), (MAX_NAMED, MAX_NAMED), (1 << 18, MAX_NAMED + 1)] {
            let filter: ListenFilter = serde_json::from_str(&list(count)).unwrap();
            assert_eq!(filter.resources.len(), decoded, "{count}");
        }
        assert!(serde_json::from_str::<ListenFilter>("{\"resourceSubscriptions\":[1]}").is_err());
    }

    #[test]
    fn errors_name_the_invalid_parameter() {
        let read = |params| parse("resources/read", params).unwrap_err();
        assert_eq!(read("{}"), "-32602 `uri` is missing");
        assert_eq!(read(r#"{"uri":null}"#), "-32602 `uri` is missing");
        assert_eq!(read(r#"{"uri":7}"#), "-32602 `uri` must be a string");
        assert_eq!(
            parse("resources/list", r#"{"cursor":[]}"#).unwrap_err(),
            "-32602 `cursor` must be a string"
        );
        assert_eq!(
            parse("completion/complete", r#"{"ref":{"type":"ref/resource","uri":"a"},"argument":{}}"#)
                .unwrap_err(),
            "-32602 `argument`: missing field `name`"
        );
        assert_eq!(
            parse("completion/complete", r#"{"ref":["ref/resource","a"],"argument":{}}"#).unwrap_err(),
            "-32602 `ref` must be an object"
        );
        assert_eq!(parse("tools/list", "{}").unwrap_err(), "-32601 unknown method `tools/list`");
        assert_eq!(parse("server/discover", "{}").unwrap_err(), "-32601 unknown method `server/discover`");
    }

    /// The error for a request of the newest revision.
    fn refused(method: &str, params: &str) -> String {
        let params = Params::read(&mut Reader::new(params)).unwrap();
        McpRequest::parse(Revision::V2026_07_28, &Empty, method, &params).unwrap_err().message.into_owned()
    }

    #[test]
    fn errors_are_short_however_much_was_sent() {
        let long = "\u{200b}".repeat(100_000);
        let params = format!(r#"{{"notifications":{{"resourcesListChanged":"{long}"}}}}"#);
        let why = refused("subscriptions/listen", &params);
        assert!(why.starts_with("`notifications`: invalid type") && why.chars().count() < 300, "{why}");
    }

    #[test]
    fn lists_of_names_are_bounded() {
        let names = |count| vec![r#""a:b""#; count].join(",");
        let listen = |count| {
            let params = format!(r#"{{"notifications":{{"resourceSubscriptions":[{}]}}}}"#, names(count));
            let params = Params::read(&mut Reader::new(&params)).unwrap();
            McpRequest::parse(Revision::V2026_07_28, &Empty, "subscriptions/listen", &params).is_ok()
        };
        assert!(listen(super::MAX_NAMED) && !listen(super::MAX_NAMED + 1));
        let arguments: Vec<_> = (0..=super::MAX_NAMED).map(|n| format!(r#""{n}":"""#)).collect();
        let why = refused(
            "completion/complete",
            &format!(
                r#"{{"ref":{{"type":"ref/resource","uri":"a"}},"argument":{{"name":"a","value":""}},"context":{{"arguments":{{{}}}}}}}"#,
                arguments.join(",")
            ),
        );
        assert!(why.starts_with("`context` may have"), "{why}");
    }

    #[test]
    fn values_of_completions_are_bounded() {
        // Each size is that of the value, of one known value, and of the name of another argument.
        let complete = |[typed, known, name]: [usize; 3]| {
            let params = json!({
                "ref": { "type": "ref/resource", "uri": "a:{b}" },
                "argument": { "name": "b", "value": "/".repeat(typed) },
                "context": { "arguments": { "c": "x".repeat(known), "d".repeat(name): "" } },
            });
            let params = params.to_string();
            let parsed = |revision| {
                let params = Params::read(&mut Reader::new(&params)).unwrap();
                McpRequest::parse(revision, &Empty, "completion/complete", &params).is_ok()
            };
            let (legacy, modern) = (parsed(Revision::V2025_06_18), parsed(Revision::V2026_07_28));
            let of_picker = CompletionParams::parse(&params).is_ok();
            assert_eq!([legacy, modern], [of_picker; 2], "{typed} {known} {name}");
            of_picker
        };
        // The names `b` and `c` count too.
        let rest = MAX_COMPLETED_BYTES - 2;
        assert!(complete([rest - 1, 0, 1]) && complete([0, rest - 1, 1]) && complete([rest - 200, 100, 100]));
        for excess in [[rest, 0, 1], [0, rest, 1], [0, 0, rest + 1], [rest - 100, 100, 1], [1 << 20, 0, 1]] {
            assert!(!complete(excess), "{excess:?}");
        }
        let long = "/".repeat(1 << 20);
        let params = format!(
            r#"{{"ref":{{"type":"ref/prompt","name":"p"}},"argument":{{"name":"a","value":"{long}"}}}}"#
        );
        assert_eq!(
            refused("completion/complete", &params),
            "the names and values of a completion must have at most 8192 bytes together"
        );
    }

    #[test]
    fn escaped_text_is_unescaped() {
        assert_eq!(
            parse("resources/read", r#"{"uri":"a\u003ab"}"#).unwrap(),
            McpRequest::Read { uri: "a:b".into(), input: None }
        );
    }
}
