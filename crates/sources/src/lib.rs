//! The places Libris takes resources from: one module and one cargo feature each.
//!
//! A source depends on the core and on its own driver, never on another source. What several of them
//! need (media types, ranges) stands beside them and is private.

#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "inline")]
pub mod inline;

#[cfg(any(feature = "files", feature = "http", feature = "inline"))]
mod duration;
#[cfg(feature = "media")]
mod media;
#[cfg(feature = "files")]
mod range;

#[cfg(feature = "files")]
pub use files::Files;
#[cfg(feature = "http")]
pub use http::Http;
#[cfg(feature = "inline")]
pub use inline::Inline;
