//! Full-text search over resources: sections, an index, ranking and snippets.
//!
//! This crate knows resources and texts, but neither where they come from nor who searches. The program that uses it
//! feeds a [`SearchIndex`], and passes to each search which resources are visible.

mod analyser;
mod backlog;
mod definitions;
mod embedding;
mod filter;
mod index;
mod language;
mod query;
mod rank;
mod schema;
mod search;
mod sections;
mod segment;
mod semantic;
mod simhash;
mod similar;
mod snippet;
mod sums;
mod tokens;

pub use embedding::{EmbeddingModel, ModelError};
pub use index::{IndexError, IndexUpdater, SearchIndex, uri_hash};
pub use rank::Weights;
pub use schema::{FORMAT, IndexedResource, MAX_TEXT};
pub use search::VisibleResources;
pub use sections::{TextSection, divide};
