//! The [`Source`] trait and its types, for authors of sources.
//!
//! A [`Source`] lists [`Resource`]s and [`Template`]s, reads [`Content`] and reports each [`Change`]. The other crates
//! of Libris build on this trait. This crate contains no runtime and no network code.

pub mod address;
mod budget;
mod change;
mod client;
mod content;
mod context;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod error;
mod file_version;
mod freshness;
mod identity;
mod input;
mod prompt;
mod proof;
pub mod regular_file;
mod resource;
mod search;
mod single_flight;
mod skill;
mod source;
pub mod suggest;
mod tool;
mod uri;
mod uri_span;
pub mod uri_template;
pub mod wrong_uri;

pub use budget::{Budget, Lease};
pub use change::Change;
pub use client::Client;
pub use content::{Content, ContentBody, Contents};
pub use context::{ContentMemory, Context, Progress, Visibility};
pub use error::{Error, Result};
pub use file_version::{FileVersion, FileVersionStamp};
pub use freshness::{CacheScope, Freshness};
pub use identity::{Authentication, Identity};
pub use input::{InputRequired, RequestInput};
pub use prompt::{
    Prompt, PromptArgument, PromptCompletion, PromptContent, PromptMessage, PromptRole, Prompts,
};
pub use proof::Proof;
pub use resource::{Annotations, Audience, DIRECTORY, Icon, Meta, Resource, Template, Theme};
pub use search::{HitSection, IndexingProgress, SearchAnswer, SearchHit, SearchQuery, SnippetLine};
pub use single_flight::{Flight, Flights};
pub use skill::{Sha256Digest, Skill, SkillFile, SkillPage, SkillResources};
pub use source::{
    Completion, CompletionRequest, Package, Page, ReplicaKey, Source, Templates, UnavailableSource,
};
pub use tool::{SourceTool, SourceToolResult, SourceTools, ToolContent};
pub use uri::Uri;
pub use uri_span::UriSpan;
pub use uri_template::UriTemplate;
