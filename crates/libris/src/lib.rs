//! Serve data as MCP resources.
//!
//! A [`Catalog`] joins [`Source`]s into one, and a [`Server`] speaks it over MCP: give it to
//! [`wire::stdio::serve`] or to [`wire::http::Endpoint::new`]. Everything a source needs is re-exported
//! here from `libris-core`.

mod catalog;
mod cursor;
mod encode;
mod kept;
mod live;
mod server;
mod watches;

pub use catalog::Catalog;
pub use libris_core::{
    Annotations, Audience, Body, Cache, Change, Completion, Content, Contents, Context, Error, Icon, Meta,
    Page, Partial, Progress, Proof, Resource, Result, Scope, Source, Template, Templates, Theme, Uri,
    UriTemplate, uri_template,
};
pub use libris_wire as wire;
pub use live::Live;
pub use server::{Config, Server};
