//! Why something could not be had.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;

use crate::Uri;

/// The result of asking a source for something.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be had.
///
/// The messages of [`Invalid`](Error::Invalid), [`TooLarge`](Error::TooLarge) and
/// [`Unavailable`](Error::Unavailable) and [`Busy`](Error::Busy) are shown to callers, so they must not name a path, a query or
/// a secret. The cause of [`Failed`](Error::Failed) is logged and never shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing is at this URI.
    #[error("nothing is at `{0}`")]
    NotFound(Uri),
    /// It is there, but not for this caller. Callers cannot tell this from not found.
    #[error("`{0}` is not for this caller")]
    Denied(Uri),
    /// The question makes no sense; the text says why.
    #[error("{0}")]
    Invalid(String),
    /// Nothing can stand below this URI.
    #[error("`{0}` is not a directory")]
    NotDirectory(Uri),
    /// More than may be read at once.
    #[error("`{uri}` has {size} bytes, more than the {limit} that are read at once")]
    TooLarge {
        /// What was read.
        uri: Uri,
        /// Its size in bytes.
        size: u64,
        /// The most that is read at once.
        limit: u64,
        /// How to read a part of it.
        hint: Option<String>,
    },
    /// The source cannot be reached now; the text says what may help.
    #[error("{0}")]
    Unavailable(String),
    /// A limit on requests or memory is reached; the source itself is well, and the same request succeeds later.
    #[error("{0}; try again later")]
    Busy(&'static str),
    /// Something went wrong on our side.
    #[error("could not {doing}")]
    Failed {
        /// What was being done, as in "could not …".
        doing: &'static str,
        /// What went wrong.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    /// The [`Error::Busy`] for contents that the server has no memory for.
    pub const NO_MEMORY: Self = Self::Busy("the server has no memory left for large contents");

    /// An [`Error::Failed`]: `doing` completes the sentence "could not …".
    pub fn failed(doing: &'static str, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed { doing, cause: cause.into() }
    }

    /// An [`Error::Invalid`] with this explanation.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid(why.into())
    }

    /// The same error for one more of those who waited for the same thing.
    pub fn from_shared(error: &Arc<Self>) -> Self {
        match &**error {
            Self::Failed { doing, .. } => Self::failed(doing, SharedCause(error.clone())),
            told => told.public_copy().unwrap_or_else(|| Self::failed("do it", SharedCause(error.clone()))),
        }
    }

    /// The same error, if it is one that callers are told; nothing for [`Error::Failed`].
    pub fn public_copy(&self) -> Option<Self> {
        Some(match self {
            Self::NotFound(uri) => Self::NotFound(uri.clone()),
            Self::Denied(uri) => Self::Denied(uri.clone()),
            Self::Invalid(why) => Self::Invalid(why.clone()),
            Self::NotDirectory(uri) => Self::NotDirectory(uri.clone()),
            Self::TooLarge { uri, size, limit, hint } => {
                Self::TooLarge { uri: uri.clone(), size: *size, limit: *limit, hint: hint.clone() }
            }
            Self::Unavailable(why) => Self::Unavailable(why.clone()),
            Self::Busy(what) => Self::Busy(what),
            Self::Failed { .. } => return None,
        })
    }
}

/// The cause of an error that several callers get.
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
