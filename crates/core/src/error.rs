//! The error type of sources.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;

use crate::{InputRequired, Proof, Uri};

/// The result of a call to a source.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a source.
///
/// The messages of [`Invalid`](Error::Invalid), [`Missing`](Error::Missing), [`TooLarge`](Error::TooLarge),
/// [`Unavailable`](Error::Unavailable) and [`Busy`](Error::Busy) are sent to callers, so they must not contain a path, a
/// query or a secret. The cause of [`Failed`](Error::Failed) is logged and never sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no resource at this URI.
    #[error("no resource at `{0}`")]
    NotFound(Uri),
    /// There is no resource at this URI, and the source has a hint: see [`Error::missing`]. Callers with restricted
    /// rights get the same response as for [`NotFound`](Self::NotFound), because a hint may name hidden resources.
    #[error("no resource at `{uri}`: {hint}")]
    Missing {
        /// The requested URI.
        uri: Uri,
        /// What is wrong with the URI, and what to request instead.
        hint: String,
        /// Checks whether there is still no such resource. Without a proof, the server does not cache the error.
        proof: Option<Proof>,
    },
    /// The caller has no right to access this resource. Callers get the same response as for
    /// [`NotFound`](Self::NotFound).
    #[error("access to `{0}` is denied")]
    Denied(Uri),
    /// The resource is visible to the caller, but the caller's access token lacks scopes for this operation. The response
    /// names the scopes to request.
    #[error("access to `{uri}` requires the scope `{}`", scopes.join(" "))]
    ScopeRequired {
        /// The requested URI.
        uri: Uri,
        /// All scopes that the operation requires.
        scopes: Arc<[Box<str>]>,
    },
    /// The request is invalid; the text explains why.
    #[error("{0}")]
    Invalid(String),
    /// The resource at this URI cannot have children.
    #[error("`{0}` is not a directory")]
    NotDirectory(Uri),
    /// The contents exceed the size limit.
    #[error("`{uri}` has {size} bytes, more than the limit of {limit}")]
    TooLarge {
        /// The requested URI.
        uri: Uri,
        /// Its size in bytes.
        size: u64,
        /// The size limit in bytes.
        limit: u64,
        /// How to read a part of the resource.
        hint: Option<String>,
    },
    /// The source is unavailable; the text explains why and what to do.
    #[error("{0}")]
    Unavailable(String),
    /// A limit on requests or memory is reached. The source works; the request can be retried later.
    #[error("{0}; try again later")]
    Busy(&'static str),
    /// The source needs input from the user. Only a request whose context has an [input](crate::Context::input) gets
    /// this error; the client then repeats the request with the input.
    #[error("the source needs input of the user")]
    InputRequired(Box<InputRequired>),
    /// An internal failure.
    #[error("could not {doing}")]
    Failed {
        /// The operation: completes "could not …".
        doing: &'static str,
        /// The cause, which is logged and never sent.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// The [`Error::Busy`] of a failed memory reservation.
    pub const NO_MEMORY: Self = Self::Busy("the server has no memory left for large contents");

    /// An [`Error::Failed`]; `doing` completes "could not …".
    pub fn failed(doing: &'static str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed { doing, cause: cause.into() }
    }

    /// An [`Error::Missing`]; the hint says what is wrong with the URI and what to request instead, in lower case, such
    /// as "there is no branch `mian`; did you mean `main`?".
    pub fn missing(uri: &Uri, hint: impl Into<String>) -> Self {
        Self::Missing { uri: uri.clone(), hint: hint.into(), proof: None }
    }

    /// The same error with this proof, if it is an [`Error::Missing`].
    pub fn with_proof(self, proof: Option<Proof>) -> Self {
        match self {
            Self::Missing { uri, hint, .. } => Self::Missing { uri, hint, proof },
            error => error,
        }
    }

    /// The proof of an [`Error::Missing`].
    pub fn proof(&self) -> Option<&Proof> {
        match self {
            Self::Missing { proof, .. } => proof.as_ref(),
            _ => None,
        }
    }

    /// Whether there is no resource at the URI, with or without a hint.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound(_) | Self::Missing { .. })
    }

    /// An [`Error::Invalid`] with this explanation.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid(why.into())
    }

    /// A copy of an error for one of several callers that shared the failed work (single-flight).
    pub fn from_shared(error: &Arc<Self>) -> Self {
        match &**error {
            Self::Failed { doing, .. } => Self::failed(doing, SharedCause(error.clone())),
            // The fallback is unreachable: only `Failed` has no public copy.
            public => {
                public.public_copy().unwrap_or_else(|| Self::failed("do it", SharedCause(error.clone())))
            }
        }
    }

    /// A copy of this error; `None` for [`Error::Failed`], whose cause cannot be copied.
    pub fn public_copy(&self) -> Option<Self> {
        Some(match self {
            Self::NotFound(uri) => Self::NotFound(uri.clone()),
            Self::Missing { uri, hint, proof } => Self::missing(uri, hint.clone()).with_proof(proof.clone()),
            Self::Denied(uri) => Self::Denied(uri.clone()),
            Self::ScopeRequired { uri, scopes } => {
                Self::ScopeRequired { uri: uri.clone(), scopes: scopes.clone() }
            }
            Self::Invalid(why) => Self::Invalid(why.clone()),
            Self::NotDirectory(uri) => Self::NotDirectory(uri.clone()),
            Self::TooLarge { uri, size, limit, hint } => {
                Self::TooLarge { uri: uri.clone(), size: *size, limit: *limit, hint: hint.clone() }
            }
            Self::Unavailable(why) => Self::Unavailable(why.clone()),
            Self::Busy(what) => Self::Busy(what),
            Self::InputRequired(required) => Self::InputRequired(required.clone()),
            Self::Failed { .. } => return None,
        })
    }
}

/// The cause of an error that several callers share.
#[derive(Debug)]
struct SharedCause(Arc<Error>);

impl fmt::Display for SharedCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.source() {
            Some(cause) => write!(f, "{cause}"),
            None => write!(f, "{}", self.0),
        }
    }
}

impl std::error::Error for SharedCause {}
