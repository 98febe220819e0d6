//! Patterns of a configuration, written as in a `.gitignore` file.

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use libris_core::{Error, Result};

/// Compiles patterns of the configuration.
pub(crate) fn patterns(key: &str, lines: &[String]) -> Result<Gitignore> {
    let wrong =
        |cause: ignore::Error| Error::invalid(format!("`{key}` has a pattern that makes no sense: {cause}"));
    let mut builder = GitignoreBuilder::new(".");
    for line in lines {
        builder.add_line(None, line).map_err(wrong)?;
    }
    builder.build().map_err(wrong)
}
