//! Documents as text, as a layer over any source of bytes.
//!
//! [`Documents`] wraps a [`Source`](libris_core::Source). It adds `?as=text` to documents, which gives Markdown, and
//! the members of archives below the archive. [`DocumentReader`] runs the extraction in child processes with limits of
//! memory, time and output ([`child`]), and caches the results by the digest of the document. [`extract`](mod@extract)
//! and [`archive`] are pure: bytes in, text out; only a child process calls them.

pub mod archive;
mod cache;
pub mod child;
mod disk_cache;
pub mod extract;
mod extracted;
mod format;
mod layer;
mod limits;
mod reader;

pub use extracted::{DocumentSection, ExtractedText, SectionUnit};
pub use format::{ArchiveFormat, Format};
pub use layer::{Documents, PlainRead};
pub use limits::ExtractionLimits;
pub use reader::{DocumentReader, ExtractionError, ReaderConfig};
