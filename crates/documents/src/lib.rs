//! A layer over any source that serves documents as text, and pages of PDF files as images.
//!
//! [`Documents`] wraps a [`Source`](libris_core::Source). Reading a document with `?as=text` gives its text as
//! Markdown, `?as=image` gives pages of a PDF as PNG, and the members of an archive are resources below its URI.
//! [`DocumentReader`] runs extractions in child processes with limits on memory, time and output ([`child`]), and caches
//! the results by the digest of the document. [`extract`](mod@extract) and [`archive`] are pure functions of the bytes of
//! a document; only a child process calls them.

pub mod archive;
mod cache;
pub mod child;
#[cfg(any(feature = "archive", feature = "html", feature = "office"))]
mod decompress;
mod disk_cache;
pub mod extract;
mod extracted;
mod format;
mod layer;
mod limits;
mod reader;
mod render;

pub use extracted::{DocumentSection, ExtractedText, SectionUnit};
pub use format::{ArchiveFormat, Format};
pub use layer::{Documents, PlainRead};
pub use limits::ExtractionLimits;
pub use reader::{DocumentReader, ExtractionError, ReaderConfig};
pub use render::{PageImage, PageRendering};
