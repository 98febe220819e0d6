//! Serve data as MCP resources.
//!
//! Functions become resources, and [`serve`] serves them over MCP:
//!
//! ```no_run
//! struct Notes(Vec<String>);
//!
//! #[libris::resources]
//! impl Notes {
//!     /// One note, by its number.
//!     #[resource("notes://{number}", title = "Note", mime = "text/markdown")]
//!     async fn note(&self, number: usize) -> Option<String> {
//!         self.0.get(number).cloned()
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> libris::Result<()> {
//!     libris::serve(Notes(vec!["# Milk".into()])).await
//! }
//! ```
//!
//! - [`resources`](macro@resources) implements [`Source`] for an `impl` block. [`FunctionSource`] is a source of
//!   closures, which can be added and removed at run time.
//! - [`Serve::and`] or a [`Catalog`] combines several sources, for example those of the crate `libris-sources`.
//! - A [`Server`] implements the MCP service of [`wire`], for programs with their own transport.

/// Compiles the examples of docs/library.md.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../docs/library.md")]
struct Guide;

/// Compiles the example of docs/client.md.
#[cfg(all(doctest, feature = "remote"))]
#[doc = include_str!("../../../docs/client.md")]
struct ClientGuide;

mod audit;
#[cfg(feature = "auth")]
mod authenticated;
mod bundle;
mod caller_instructions;
mod caller_tools;
mod caller_view;
pub mod catalog;
mod catalog_search;
mod catalog_watch;
pub mod cluster;
mod cursor;
mod directory;
mod document_text;
mod encode;
mod functions;
mod gate;
mod health;
mod last_known;
mod library_index;
mod list_cache;
mod lock;
mod outline;
mod page_query;
mod params;
mod path_note;
mod prefixes;
mod prompts;
mod query;
mod read_memory;
mod response_cache;
mod rights;
mod routing;
pub mod rules;
#[cfg(feature = "search")]
mod search;
mod serve;
mod server;
mod shared_reads;
mod skills;
mod status;
mod subscriptions;
mod tools;
mod unserved;
mod view;

pub use audit::{AuditDecision, AuditLog, AuditRecord};
#[cfg(feature = "auth")]
pub use authenticated::AuthenticatedCallers;
pub use bundle::{Bundle, BundleFormat, BundlePassage, BundleRequest, count_tokens};
pub use catalog::Catalog;
pub use cluster::{ChangeBus, ClusterEvent};
pub use functions::{
    FromVariable, FunctionSource, FunctionSourceHandle, Handler, Instance, IntoCompletion, IntoContents,
    IntoInstances, IntoPromptMessages, Json, Notifier, Request, ResourceSpec,
};
#[cfg(feature = "auth")]
pub use libris_auth as auth;
pub use libris_core::{
    Annotations, Audience, Authentication, CacheScope, Change, Completion, CompletionRequest, Content,
    ContentBody, ContentMemory, Contents, Context, DIRECTORY, Error, FileVersion, FileVersionStamp,
    Freshness, HitSection, Icon, Identity, IndexingProgress, InputRequired, Meta, Package, Page, Progress,
    Prompt, PromptArgument, PromptCompletion, PromptContent, PromptMessage, PromptRole, Prompts, Proof,
    ReplicaKey, RequestInput, Resource, Result, SearchAnswer, SearchHit, SearchQuery, Sha256Digest, Skill,
    SkillFile, SkillPage, SkillResources, SnippetLine, Source, SourceTool, SourceToolResult, SourceTools,
    Template, Templates, Theme, ToolContent, UnavailableSource, Uri, UriSpan, UriTemplate, uri_template,
};
#[cfg(feature = "remote")]
pub use libris_remote as remote;
#[cfg(feature = "remote")]
pub use libris_remote::{ParsedContent, Remote, ResourceClient};
#[cfg(feature = "search")]
pub use libris_search::FORMAT as SEARCH_INDEX_FORMAT;
pub use libris_wire as wire;
pub use path_note::PathNote;
pub use rights::{Authenticate, Decision, Identified, Operation, Policy, Rights, Rules};
#[cfg(feature = "search")]
pub use search::SearchConfig;
pub use serve::{Serve, interrupted, serve};
pub use server::{Config, PolicyHandle, Server};
pub use subscriptions::SubscriptionConfig;
pub use tools::ToolsConfig;
pub use view::{View, ViewSnapshot};

#[cfg(feature = "macros")]
pub use libris_macros::{changes, complete, list, prompt, resource, resources};

/// Items for the code that the attribute macros generate; not public API.
#[doc(hidden)]
pub mod __private {
    use std::collections::BTreeMap;

    pub use async_trait::async_trait;
    pub use futures_util::stream::BoxStream;

    pub use crate::functions::{LIST_TTL, Routes};
    use libris_core::{Error, Icon, Package, Result};

    /// The package of the crate that uses the macro. In a binary, the name is that of the binary. `None` if the name or
    /// the version is not set.
    pub const fn package(
        binary: Option<&'static str>,
        name: Option<&'static str>,
        version: Option<&'static str>,
    ) -> Option<Package> {
        match (binary, name, version) {
            (Some(name), _, Some(version)) | (None, Some(name), Some(version)) => {
                Some(Package { name, version })
            }
            _ => None,
        }
    }

    /// The value of an argument of a prompt.
    pub fn argument<T: crate::FromVariable>(arguments: &BTreeMap<String, String>, name: &str) -> Result<T> {
        let missing = || Error::invalid(format!("the argument `{name}` is missing"));
        arguments.get(name).ok_or_else(missing).and_then(|text| T::read(name, text))
    }

    /// The value of an optional argument of a prompt. An empty argument counts as missing.
    pub fn optional_argument<T: crate::FromVariable>(
        arguments: &BTreeMap<String, String>,
        name: &str,
    ) -> Result<Option<T>> {
        let text = arguments.get(name).filter(|text| !text.is_empty());
        text.map(|text| T::read(name, text)).transpose()
    }

    /// An icon of which only the location is set.
    pub fn icon(src: &str) -> Icon {
        Icon { src: src.to_owned(), mime: None, sizes: Vec::new(), theme: None }
    }

    /// The value of another variable during a completion; `None` if it is missing or does not parse.
    pub fn known<T: crate::FromVariable>(known: &BTreeMap<String, String>, name: &str) -> Option<T> {
        known.get(name).and_then(|text| T::read(name, text).ok())
    }
}
