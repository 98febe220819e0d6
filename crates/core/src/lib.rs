//! What an MCP resource is, and what a place that resources come from must do.
//!
//! A [`Source`] lists [`Resource`]s, reads their [`Content`], offers [`Template`]s and says what
//! [`Change`]d. Everything else in Libris is built on this trait. This crate has no runtime and no
//! network code: it is what authors of sources depend on.

mod budget;
mod change;
mod content;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod error;
mod flights;
mod freshness;
mod proof;
mod resource;
mod source;
mod uri;
pub mod uri_template;

pub use budget::{Budget, Client, Lease};
pub use change::Change;
pub use content::{Body, Content, Contents};
pub use error::{Error, Result};
pub use flights::{Flight, Flights};
pub use freshness::{Freshness, Scope};
pub use proof::Proof;
pub use resource::{Annotations, Audience, DIRECTORY, Icon, Meta, Resource, Template, Theme};
pub use source::{
    Completion, Context, Identity, Memory, Page, Partial, Progress, Source, Templates, Unavailable,
    Visibility,
};
pub use uri::Uri;
pub use uri_template::UriTemplate;
