//! The parameters of a request, parsed in one pass and not yet validated for the method.

use std::sync::Arc;

use libris_core::RequestInput;
use serde::Deserialize;

use super::TOOLS_LIST;
use crate::app;
use crate::envelope::set;
use crate::failure::{ErrorObject, INVALID_PARAMS};
use crate::json::{JsonSyntaxError, Reader, Shape, Text};
use crate::service::CacheableRequest;
use crate::{Era, Revision};

/// The maximum number of characters of the input that an error quotes.
pub(super) const LONGEST_QUOTE: usize = 200;

/// The members of a parameter object that some method uses. All are parsed in one pass; each is validated when it is
/// used.
#[derive(Debug, Default)]
pub(crate) struct Params<'a> {
    pub(super) meta: Option<Shape<RequestMeta<'a>>>,
    pub(super) uri: Option<Text<'a>>,
    pub(super) cursor: Option<Text<'a>>,
    pub(super) name: Option<Text<'a>>,
    pub(super) reference: Option<&'a str>,
    pub(super) argument: Option<&'a str>,
    pub(super) arguments: Option<&'a str>,
    pub(super) context: Option<&'a str>,
    pub(super) protocol_version: Option<Text<'a>>,
    pub(super) notifications: Option<&'a str>,
    pub(super) input_responses: Option<&'a str>,
    pub(super) request_state: Option<Text<'a>>,
    pub(crate) request_id: Option<&'a str>,
    /// The whole object, as JSON.
    pub(super) raw: &'a str,
    /// Whether one of these members is repeated, here or in `_meta`.
    pub(crate) has_duplicate: bool,
}

/// The `_meta` object of a request.
#[derive(Debug, Default)]
pub(crate) struct RequestMeta<'a> {
    version: Option<Text<'a>>,
    capabilities: Option<Shape<&'a str>>,
    progress_token: Option<&'a str>,
}

impl<'a> Params<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, JsonSyntaxError> {
        let mut params = Self::default();
        let mut has_duplicate = false;
        let start = reader.position();
        reader.object(|reader, name| {
            has_duplicate |= match name {
                "_meta" => set(
                    &mut params.meta,
                    reader.shape(|reader| RequestMeta::read(reader, &mut has_duplicate))?,
                ),
                "uri" => set(&mut params.uri, reader.text()?),
                "cursor" => set(&mut params.cursor, reader.text()?),
                "name" => set(&mut params.name, reader.text()?),
                "ref" => set(&mut params.reference, non_null(reader.raw()?)),
                "argument" => set(&mut params.argument, non_null(reader.raw()?)),
                "arguments" => set(&mut params.arguments, non_null(reader.raw()?)),
                "context" => set(&mut params.context, non_null(reader.raw()?)),
                "protocolVersion" => set(&mut params.protocol_version, reader.text()?),
                "notifications" => set(&mut params.notifications, non_null(reader.raw()?)),
                "inputResponses" => set(&mut params.input_responses, non_null(reader.raw()?)),
                "requestState" => set(&mut params.request_state, reader.text()?),
                "requestId" => set(&mut params.request_id, non_null(reader.raw()?)),
                _ => reader.skip().map(|()| false)?,
            };
            Ok(())
        })?;
        Ok(Self { has_duplicate, raw: reader.since(start), ..params })
    }
}

impl<'a> RequestMeta<'a> {
    fn read(reader: &mut Reader<'a>, has_duplicate: &mut bool) -> Result<Self, JsonSyntaxError> {
        let mut meta = Self::default();
        reader.object(|reader, name| {
            *has_duplicate |= match name {
                "io.modelcontextprotocol/protocolVersion" => set(&mut meta.version, reader.text()?),
                "io.modelcontextprotocol/clientCapabilities" => {
                    set(&mut meta.capabilities, reader.shape(Reader::raw)?)
                }
                "progressToken" => set(&mut meta.progress_token, non_null(reader.raw()?)),
                _ => reader.skip().map(|()| false)?,
            };
            Ok(())
        })?;
        Ok(meta)
    }
}

/// The value unless it is `null`, which counts as absent.
fn non_null(raw: &str) -> Option<&str> {
    (raw != "null").then_some(raw)
}

/// The metadata of a request without `_meta`.
const NO_META: RequestMeta<'static> = RequestMeta { version: None, capabilities: None, progress_token: None };

impl<'a> Params<'a> {
    pub(crate) fn meta(&self) -> Result<&RequestMeta<'a>, ErrorObject> {
        match &self.meta {
            None => Ok(&NO_META),
            Some(Shape::Valid(meta)) => Ok(meta),
            Some(Shape::Invalid) => Err(ErrorObject::new(INVALID_PARAMS, "`_meta` must be an object")),
        }
    }

    /// Whether the request declares that its client shows apps. Always `false` for methods other than `tools/list`:
    /// their responses do not depend on it, and decoding the declaration takes time.
    pub(crate) fn shows_apps(&self, method: &str) -> bool {
        method == TOOLS_LIST && app::are_declared(self.raw)
    }

    /// The size of the JSON in bytes.
    pub(crate) fn size(&self) -> usize {
        self.raw.len()
    }

    /// The value that the `Mcp-Name` header must repeat for this method: the name or the URI.
    pub(crate) fn mcp_name(&self, method: &str) -> Option<&str> {
        let name = match method {
            "resources/read" => &self.uri,
            "tools/call" | "prompts/get" => &self.name,
            _ => return None,
        };
        Some(name.as_ref()?.valid()?)
    }

    /// The input capabilities of the client and, if it repeats a request, the input of its user; `None` in revisions in
    /// which a server cannot ask for input.
    pub(super) fn input(&self, revision: Revision) -> Result<Option<Arc<RequestInput>>, ErrorObject> {
        if revision.facts().era == Era::Legacy {
            return Ok(None);
        }
        if self.input_responses.is_some_and(|responses| !responses.starts_with('{')) {
            return Err(ErrorObject::new(INVALID_PARAMS, "`inputResponses` must be an object"));
        }
        let state = self.request_state.as_ref().map(|state| text("requestState", state)).transpose()?;
        let capabilities = self.meta()?.capabilities.as_ref().and_then(Shape::valid).copied();
        Ok(Some(Arc::new(RequestInput {
            capabilities: capabilities.unwrap_or_default().into(),
            responses: self.input_responses.map(Into::into),
            state: state.map(Into::into),
        })))
    }

    /// The cache key of the request; `None` if its method has no cached responses or a parameter is invalid, or if the
    /// request contains input from the user, on which the response depends.
    pub(crate) fn cacheable(&self, method: &str) -> Option<CacheableRequest<'_>> {
        if self.input_responses.is_some() || self.request_state.is_some() {
            return None;
        }
        let cursor = match &self.cursor {
            None => Some(None),
            Some(cursor) => cursor.valid().map(|cursor| Some(&**cursor)),
        };
        match method {
            "resources/read" => Some(CacheableRequest::Read(self.uri.as_ref()?.valid()?)),
            "resources/list" => cursor.map(CacheableRequest::List),
            "resources/templates/list" => cursor.map(CacheableRequest::Templates),
            "completion/complete" => Some(CacheableRequest::Complete {
                reference: self.reference?,
                argument: self.argument?,
                context: self.context.unwrap_or_default(),
            }),
            TOOLS_LIST => cursor.map(CacheableRequest::Tools),
            "tools/call" => Some(CacheableRequest::Tool {
                name: self.name.as_ref()?.valid()?,
                arguments: self.arguments.unwrap_or_default(),
            }),
            _ => None,
        }
    }
}

impl RequestMeta<'_> {
    /// The revision that the request names, unvalidated.
    pub(crate) fn version(&self) -> Result<Option<&str>, ErrorObject> {
        self.version
            .as_ref()
            .map(|version| text("_meta.io.modelcontextprotocol/protocolVersion", version))
            .transpose()
    }

    /// Checks that `_meta` has everything that a modern request must have.
    pub(crate) fn check_complete(&self) -> Result<(), ErrorObject> {
        const NAME: &str = "_meta.io.modelcontextprotocol/clientCapabilities";
        match self.capabilities {
            None => Err(missing(NAME)),
            Some(Shape::Invalid) => {
                Err(ErrorObject::new(INVALID_PARAMS, format!("`{NAME}` must be an object")))
            }
            Some(Shape::Valid(_)) => Ok(()),
        }
    }

    /// The token for progress notifications, as JSON; `None` if it is missing, too long, or not a string or a number.
    pub(crate) fn progress_token(&self) -> Option<&str> {
        let token = self.progress_token?;
        let first = *token.as_bytes().first()?;
        let fits = token.len() <= 1024 && (first == b'"' || first == b'-' || first.is_ascii_digit());
        fits.then_some(token)
    }
}

/// Deserializes an object. Rejects arrays, which a derived `Deserialize` would accept as a sequence of fields.
pub(super) fn decode<'a, T: Deserialize<'a>>(name: &str, raw: &'a str) -> Result<T, ErrorObject> {
    if !raw.starts_with('{') {
        return Err(ErrorObject::new(INVALID_PARAMS, format!("`{name}` must be an object")));
    }
    serde_json::from_str(raw).map_err(|cause| wrong(name, &cause))
}

pub(super) fn owned(name: &str, value: &Text<'_>) -> Result<String, ErrorObject> {
    text(name, value).map(str::to_owned)
}

fn text<'t>(name: &str, value: &'t Text<'_>) -> Result<&'t str, ErrorObject> {
    let wrong = || ErrorObject::new(INVALID_PARAMS, format!("`{name}` must be a string"));
    value.valid().map(|text| &**text).ok_or_else(wrong)
}

pub(crate) fn missing(name: &str) -> ErrorObject {
    ErrorObject::new(INVALID_PARAMS, format!("`{name}` is missing"))
}

fn wrong(name: &str, cause: &serde_json::Error) -> ErrorObject {
    let cause = cause.to_string();
    // The position is removed, because it counts from the start of this member and not of the message.
    let what = cause.rsplit_once(" at line ").map_or(&*cause, |(what, _)| what);
    // Truncated, because the text quotes the input, which may be as large as the request.
    let what: String = what.chars().take(LONGEST_QUOTE).collect();
    ErrorObject::new(INVALID_PARAMS, format!("`{name}`: {what}"))
}
