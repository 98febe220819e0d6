//! The keys of Libris in the `_meta` of contents and resources.

#![allow(dead_code, reason = "each is used by some sources, which are features")]

use libris_core::Meta;
use serde_json::Value;

/// The URI of the next page, or of the next range of a file.
pub(crate) const NEXT: &str = "dev.libris/next";

/// The number of lines of the whole resource, if the contents are a range of lines.
pub(crate) const TOTAL_LINES: &str = "dev.libris/totalLines";

/// The number of bytes of the whole resource, if the contents are a range.
pub(crate) const TOTAL_BYTES: &str = "dev.libris/totalBytes";

/// The contents are incomplete: `true`, or the number of further entries.
pub(crate) const MORE: &str = "dev.libris/more";

/// The reason why the contents of an entry of a folder are omitted.
pub(crate) const OMITTED: &str = "dev.libris/omitted";

/// The age in seconds of a stale cached response, which is served while the API fails.
pub(crate) const STALE: &str = "dev.libris/stale";

/// The commit of a git submodule.
pub(crate) const SUBMODULE: &str = "dev.libris/submodule";

/// The object that a Git LFS pointer refers to.
pub(crate) const LFS: &str = "dev.libris/lfs";

/// Metadata with one key.
pub(crate) fn with(key: &str, value: impl Into<Value>) -> Meta {
    Meta::from_iter([(key.to_owned(), value.into())])
}
