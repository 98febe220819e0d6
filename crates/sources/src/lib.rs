//! The places Libris takes resources from: one module and one cargo feature each.
//!
//! A source depends on the core and on its own driver, never on another source. What several of them
//! need (media types, ranges) stands beside them and is private.

#[cfg(all(feature = "command", unix))]
pub mod command;
#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "inline")]
pub mod inline;
#[cfg(feature = "notion")]
pub mod notion;

#[cfg(any(all(feature = "command", unix), feature = "files", feature = "inline", feature = "notion"))]
mod duration;
#[cfg(feature = "media")]
mod media;
#[cfg(any(all(feature = "command", unix), feature = "files"))]
mod range;
#[cfg(any(all(feature = "command", unix), feature = "inline"))]
mod segment;

#[cfg(all(feature = "command", unix))]
pub use command::Commands;
#[cfg(feature = "files")]
pub use files::Files;
#[cfg(feature = "inline")]
pub use inline::Inline;
#[cfg(feature = "notion")]
pub use notion::Notion;
