//! The requests we know, read from a method and its parameters.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::failure::{ErrorObject, INVALID_PARAMS};
use crate::service::{Completing, Reference};
use crate::{Era, Revision};

/// Everything that a parameter object may hold for us, read in one pass and looked at when needed.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Params<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default)]
    cursor: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "ref")]
    reference: Option<&'a RawValue>,
    #[serde(borrow, default)]
    argument: Option<&'a RawValue>,
    #[serde(borrow, default)]
    context: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "protocolVersion")]
    protocol_version: Option<&'a RawValue>,
    #[serde(borrow, default)]
    notifications: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestId")]
    pub(crate) request_id: Option<&'a RawValue>,
}

/// The metadata of a request.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Meta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    pub(crate) fn parse(raw: Option<&'a RawValue>) -> Result<Self, ErrorObject> {
        match raw {
            None => Ok(Self::default()),
            Some(raw) => serde_json::from_str(raw.get()).map_err(|cause| wrong("params", &cause)),
        }
    }

    pub(crate) fn meta(&self) -> Result<Meta<'a>, ErrorObject> {
        self.meta.map_or_else(|| Ok(Meta::default()), |raw| decode("_meta", raw))
    }

    /// What `Mcp-Name` must repeat for this method: the name or the URI it is about.
    pub(crate) fn subject(&self, method: &str) -> Option<Cow<'a, str>> {
        let raw = match method {
            "resources/read" => self.uri,
            "tools/call" | "prompts/get" => self.name,
            _ => None,
        }?;
        text("name", raw).ok()
    }
}

impl<'a> Meta<'a> {
    /// The revision that the request names, as it names it.
    pub(crate) fn version(&self) -> Result<Option<Cow<'a, str>>, ErrorObject> {
        self.version.map(|raw| text("_meta.io.modelcontextprotocol/protocolVersion", raw)).transpose()
    }

    /// Checks that the request carries what each modern one must.
    pub(crate) fn complete(&self) -> Result<(), ErrorObject> {
        const NAME: &str = "_meta.io.modelcontextprotocol/clientCapabilities";
        match self.capabilities {
            None => Err(missing(NAME)),
            Some(raw) if !raw.get().starts_with('{') => {
                Err(ErrorObject::new(INVALID_PARAMS, format!("`{NAME}` must be an object")))
            }
            Some(_) => Ok(()),
        }
    }

    /// The token under which the caller wants to hear of progress, as JSON.
    pub(crate) fn progress_token(&self) -> Option<&'a str> {
        let token = self.progress_token?.get();
        let first = *token.as_bytes().first()?;
        let fits = token.len() <= 1024 && (first == b'"' || first == b'-' || first.is_ascii_digit());
        fits.then_some(token)
    }
}

/// A request that we know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Initialize { asked: String },
    Discover,
    Ping,
    List { cursor: Option<String> },
    Templates { cursor: Option<String> },
    Read { uri: String },
    Complete(Completing),
    Tools,
    Prompts,
    Subscribe { uri: String },
    Unsubscribe { uri: String },
    Listen(Filter),
}

/// What a client that listens wants to hear of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Filter {
    #[serde(default, rename = "resourcesListChanged")]
    pub(crate) list: bool,
    #[serde(default, rename = "resourceSubscriptions")]
    pub(crate) resources: Vec<String>,
}

impl Request {
    /// Reads a request in the words of `revision`.
    pub(crate) fn parse(revision: Revision, method: &str, params: &Params<'_>) -> Result<Self, ErrorObject> {
        let cursor = || params.cursor.map(|raw| owned("cursor", raw)).transpose();
        let required = |name, raw: Option<&RawValue>| raw.map_or(Err(missing(name)), |raw| owned(name, raw));
        match (method, revision.facts().era) {
            ("initialize", Era::Legacy) => {
                Ok(Self::Initialize { asked: required("protocolVersion", params.protocol_version)? })
            }
            ("ping", Era::Legacy) => Ok(Self::Ping),
            ("server/discover", Era::Modern) => Ok(Self::Discover),
            ("resources/list", _) => Ok(Self::List { cursor: cursor()? }),
            ("resources/templates/list", _) => Ok(Self::Templates { cursor: cursor()? }),
            ("resources/read", _) => Ok(Self::Read { uri: required("uri", params.uri)? }),
            ("completion/complete", _) => Ok(Self::Complete(completing(params)?)),
            ("resources/subscribe", Era::Legacy) => Ok(Self::Subscribe { uri: required("uri", params.uri)? }),
            ("resources/unsubscribe", Era::Legacy) => {
                Ok(Self::Unsubscribe { uri: required("uri", params.uri)? })
            }
            ("subscriptions/listen", Era::Modern) => {
                let filter = params.notifications.ok_or_else(|| missing("notifications"))?;
                Ok(Self::Listen(decode("notifications", filter)?))
            }
            ("tools/list", _) => Ok(Self::Tools),
            ("prompts/list", _) => Ok(Self::Prompts),
            ("tools/call", _) => Err(unknown("tool", &required("name", params.name)?)),
            ("prompts/get", _) => Err(unknown("prompt", &required("name", params.name)?)),
            _ => Err(ErrorObject::method_not_found(method)),
        }
    }
}

fn completing(params: &Params<'_>) -> Result<Completing, ErrorObject> {
    #[derive(Deserialize)]
    struct Ref<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
        #[serde(default)]
        uri: Option<String>,
        #[serde(default)]
        name: Option<String>,
    }
    #[derive(Deserialize)]
    struct Argument {
        name: String,
        value: String,
    }
    #[derive(Default, Deserialize)]
    struct Context {
        #[serde(default)]
        arguments: BTreeMap<String, String>,
    }
    let reference: Ref<'_> = params.reference.map_or(Err(missing("ref")), |raw| decode("ref", raw))?;
    let argument: Argument =
        params.argument.map_or(Err(missing("argument")), |raw| decode("argument", raw))?;
    let context: Context =
        params.context.map_or_else(|| Ok(Context::default()), |raw| decode("context", raw))?;
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
    Ok(Completing { reference, argument: argument.name, typed: argument.value, known: context.arguments })
}

/// Reads an object; a derived reader would take an array for one, field by field.
fn decode<'a, T: Deserialize<'a>>(name: &str, raw: &'a RawValue) -> Result<T, ErrorObject> {
    if !raw.get().starts_with('{') {
        return Err(ErrorObject::new(INVALID_PARAMS, format!("`{name}` must be an object")));
    }
    serde_json::from_str(raw.get()).map_err(|cause| wrong(name, &cause))
}

fn owned(name: &str, raw: &RawValue) -> Result<String, ErrorObject> {
    text(name, raw).map(Cow::into_owned)
}

fn text<'a>(name: &str, raw: &'a RawValue) -> Result<Cow<'a, str>, ErrorObject> {
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'a>>(raw.get())
        .map(|text| text.0)
        .map_err(|_| ErrorObject::new(INVALID_PARAMS, format!("`{name}` must be a string")))
}

pub(crate) fn missing(name: &str) -> ErrorObject {
    ErrorObject::new(INVALID_PARAMS, format!("`{name}` is missing"))
}

fn unknown(what: &str, name: &str) -> ErrorObject {
    let shown: String = name.chars().take(100).collect();
    ErrorObject::new(INVALID_PARAMS, format!("unknown {what} `{shown}`"))
}

fn wrong(name: &str, cause: &serde_json::Error) -> ErrorObject {
    let cause = cause.to_string();
    // The position is one within a part of the message, which would mislead.
    let what = cause.rsplit_once(" at line ").map_or(&*cause, |(what, _)| what);
    ErrorObject::new(INVALID_PARAMS, format!("`{name}`: {what}"))
}

#[cfg(test)]
mod tests {
    use super::{Params, Request};
    use crate::Revision;
    use serde_json::value::RawValue;

    fn parse(method: &str, params: &str) -> Result<Request, String> {
        let raw: &RawValue = serde_json::from_str(params).unwrap();
        let params = Params::parse(Some(raw)).map_err(|error| error.message.into_owned())?;
        Request::parse(Revision::V2025_06_18, method, &params)
            .map_err(|error| format!("{} {}", error.code, error.message))
    }

    #[test]
    fn parameters_that_are_wrong_are_named() {
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
        assert_eq!(parse("tools/call", r#"{"name":"x"}"#).unwrap_err(), "-32602 unknown tool `x`");
        assert_eq!(parse("server/discover", "{}").unwrap_err(), "-32601 unknown method `server/discover`");
    }

    #[test]
    fn escaped_text_is_unescaped() {
        assert_eq!(
            parse("resources/read", r#"{"uri":"a\u003ab"}"#).unwrap(),
            Request::Read { uri: "a:b".into() }
        );
    }
}
