//! The [`Source`] trait and its types, which authors of sources depend on.
//!
//! A [`Source`] lists [`Resource`]s and [`Template`]s, reads [`Content`] and reports each [`Change`]. The other crates
//! of Libris build on this trait. This crate contains no runtime and no network code.

mod budget;
mod change;
mod content;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod error;
mod freshness;
mod proof;
mod resource;
mod single_flight;
mod source;
mod uri;
pub mod uri_template;

pub use budget::{Budget, Client, Lease};
pub use change::Change;
pub use content::{Body, Content, Contents};
pub use error::{Error, Result};
pub use freshness::{Freshness, Scope};
pub use proof::Proof;
pub use resource::{Annotations, Audience, DIRECTORY, Icon, Meta, Resource, Template, Theme};
pub use single_flight::{Flight, Flights};
pub use source::{
    Completion, Context, Identity, Memory, Page, Partial, Progress, Source, Templates, Unavailable,
    Visibility,
};
pub use uri::Uri;
pub use uri_template::UriTemplate;
