//! Serve data as MCP resources.
//!
//! A [`Catalog`] joins [`Source`]s into one, and a [`Server`] speaks it over MCP: give it to
//! [`wire::stdio::serve`] or to [`wire::http::Endpoint::new`]. Everything a source needs is re-exported
//! here from `libris-core`.

mod catalog;
mod cursor;
mod encode;
mod functions;
mod kept;
mod live;
mod serve;
mod server;
mod shared;
mod watches;

pub use catalog::Catalog;
pub use functions::{
    Described, Handle, Handler, Instance, IntoCompletion, IntoContents, IntoInstances, Json, Libris,
    Notifier, Request, Variable,
};
pub use libris_core::{
    Annotations, Audience, Body, Cache, Change, Completion, Content, Contents, Context, Error, Icon,
    Identity, Meta, Page, Partial, Progress, Proof, Resource, Result, Scope, Source, Template, Templates,
    Theme, Uri, UriTemplate, uri_template,
};
pub use libris_wire as wire;
pub use live::Live;
pub use serve::{Serve, serve};
pub use server::{Config, Server};

#[cfg(feature = "macros")]
pub use libris_macros::{changes, complete, list, resource, resources};

/// What the code that the attributes write needs, and nobody else.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod __private {
    use std::collections::BTreeMap;

    pub use async_trait::async_trait;
    pub use futures_util::stream::BoxStream;

    pub use crate::functions::Routes;

    /// A variable that may be filled in already, where another one is completed.
    pub fn known<T: crate::Variable>(
        known: &BTreeMap<String, String>,
        name: &str,
    ) -> crate::Result<Option<T>> {
        known.get(name).map(|text| T::read(name, text)).transpose()
    }
}
