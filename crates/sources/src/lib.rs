//! The sources of Libris: one module and one cargo feature each. [`registry`] has the table of them.
//!
//! A source depends on the core and on its own driver, never on another source. Code that several sources
//! share (settings, media types, ranges, directory trees) is in separate modules.

#[cfg(feature = "command")]
pub mod command;
#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "git")]
pub mod git;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "inline")]
pub mod inline;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(feature = "notion")]
pub mod notion;
#[cfg(feature = "prompts")]
pub mod prompts;
pub use libris_core::regular_file;
pub mod registry;
pub mod settings;
#[cfg(feature = "skills")]
pub mod skills;
#[cfg(feature = "database")]
pub mod sql;

#[cfg(any(feature = "command", feature = "http", feature = "inline"))]
mod descriptive;
#[cfg(any(feature = "files", feature = "git", feature = "skills"))]
mod folder_listing;
#[cfg(any(feature = "command", feature = "git", feature = "http", feature = "database"))]
mod followed;
#[cfg(any(feature = "files", feature = "git"))]
mod front_matter;
#[cfg(any(feature = "files", feature = "git"))]
mod head_metadata;
#[cfg(any(feature = "http", feature = "notion"))]
mod http_client;
#[cfg(any(feature = "files", feature = "git", feature = "skills"))]
mod ignore_patterns;
#[cfg(any(feature = "files", feature = "git"))]
mod line_starts;
#[cfg(feature = "media")]
mod media;
#[cfg(any(
    feature = "command",
    feature = "files",
    feature = "git",
    feature = "http",
    feature = "notion",
    feature = "database",
    feature = "skills"
))]
mod meta;
#[cfg(any(feature = "files", feature = "git"))]
mod path;
#[cfg(any(feature = "files", feature = "git", feature = "skills"))]
mod patterns;
#[cfg(any(feature = "git", feature = "database"))]
mod proven;
#[cfg(any(feature = "command", feature = "files", feature = "git"))]
mod range;
#[cfg(any(feature = "files", feature = "git"))]
mod range_bounds;
#[cfg(all(
    target_os = "linux",
    any(feature = "files", feature = "git", feature = "skills", feature = "sqlite")
))]
mod remote;
#[cfg(any(feature = "files", feature = "git", feature = "skills"))]
mod root_path;
#[cfg(any(feature = "command", feature = "http", feature = "inline"))]
mod segment;
#[cfg(feature = "skills")]
mod skill_tree;
#[cfg(any(feature = "files", feature = "git", feature = "skills"))]
#[cfg_attr(
    not(feature = "files"),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "git only watches trees, and skills have no proofs of files"
    )
)]
mod tree;
#[cfg(any(feature = "files", feature = "git", feature = "skills"))]
mod wildmatch;

#[allow(unused_imports, reason = "used by some sources, which are features")]
use libris_core::{suggest, wrong_uri};

#[cfg(feature = "command")]
pub use command::Commands;
#[cfg(feature = "files")]
pub use files::Files;
#[cfg(feature = "git")]
pub use git::Git;
#[cfg(feature = "http")]
pub use http::Http;
#[cfg(feature = "inline")]
pub use inline::Inline;
#[cfg(feature = "notion")]
pub use notion::Notion;
#[cfg(feature = "prompts")]
pub use prompts::ConfiguredPrompts;
#[cfg(feature = "skills")]
pub use skills::Skills;
#[cfg(feature = "database")]
pub use sql::Sql;
