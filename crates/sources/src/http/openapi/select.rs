//! Selects operations of an OpenAPI document by `include`, `exclude` and `tags`.

use std::collections::BTreeSet;

use libris_core::{Error, Result};

use super::Config;
use super::operation::OpenApiOperation;
use crate::suggest;

/// The operations that the configuration selects. A pattern or tag without an operation is an error: it is probably
/// misspelt.
pub(super) fn selected<'a>(
    config: &Config,
    operations: Vec<OpenApiOperation<'a>>,
) -> Result<Vec<OpenApiOperation<'a>>> {
    for (key, patterns) in [("include", &config.include), ("exclude", &config.exclude)] {
        let is_unused = |pattern: &&String| !operations.iter().any(|operation| is_named(operation, pattern));
        if let Some(pattern) = patterns.iter().find(is_unused) {
            let names = operations.iter().map(|operation| match pattern.starts_with('/') {
                true => operation.path,
                false => operation.id().unwrap_or_default(),
            });
            let meant = suggest::did_you_mean(pattern, names);
            let hint = if meant.is_empty() {
                "; a path pattern begins with `/` and an operation ID does not; `*` stands for a part of a segment, `**` for anything"
            } else {
                &meant
            };
            return Err(Error::invalid(format!("`{key}`: no operation matches `{pattern}`{hint}")));
        }
    }
    let tags: BTreeSet<&str> = operations.iter().flat_map(OpenApiOperation::tags).collect();
    if let Some(unknown) = config.tags.iter().find(|tag| !tags.contains(tag.as_str())) {
        let meant = suggest::did_you_mean(unknown, tags);
        return Err(Error::invalid(format!("`tags`: no operation has the tag `{unknown}`{meant}")));
    }
    let is_selected = |operation: &OpenApiOperation<'_>| {
        let included =
            config.include.is_empty() || config.include.iter().any(|pattern| is_named(operation, pattern));
        let tagged = config.tags.is_empty()
            || operation.tags().any(|tag| config.tags.iter().any(|selected| selected == tag));
        included && tagged && !config.exclude.iter().any(|pattern| is_named(operation, pattern))
    };
    let known = operations.len();
    let selected: Vec<_> = operations.into_iter().filter(is_selected).collect();
    if selected.is_empty() && known > 0 {
        return Err(Error::invalid(format!(
            "`include`, `exclude` and `tags` together select none of the {known} operations; hint: \
             remove one of them"
        )));
    }
    Ok(selected)
}

/// Whether a pattern matches the path or the ID of an operation.
fn is_named(operation: &OpenApiOperation<'_>, pattern: &str) -> bool {
    match pattern.starts_with('/') {
        true => matches(pattern, operation.path),
        false => operation.id().is_some_and(|id| matches(pattern, id)),
    }
}

/// Whether a pattern matches a text: `*` stands for any characters but `/`, `**` for any characters. Braces are
/// literal, because paths contain them.
fn matches(pattern: &str, text: &str) -> bool {
    // For each position in the text: whether the part of the pattern that was processed so far can end there.
    let text = text.as_bytes();
    let mut ends = vec![false; text.len() + 1];
    ends[0] = true;
    let mut rest = pattern.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let any = rest.starts_with(b"**");
        rest = if any { &rest[2..] } else { after };
        if first == b'*' {
            for at in 1..ends.len() {
                ends[at] |= ends[at - 1] && (any || text[at - 1] != b'/');
            }
        } else {
            for at in (1..ends.len()).rev() {
                ends[at] = ends[at - 1] && text[at - 1] == first;
            }
            ends[0] = false;
        }
    }
    ends[text.len()]
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_paths() {
        for (pattern, text) in [
            ("/books", "/books"),
            ("/books/*", "/books/{book-id}"),
            ("/books/**", "/books/{book-id}/text"),
            ("/books/{book-id}", "/books/{book-id}"),
            ("**/text", "/books/{book-id}/text"),
            ("list*", "listBooks"),
            ("*Books*", "listBooks"),
            ("/b*k*", "/books"),
            ("**", ""),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("/books", "/books/x"),
            ("/books/*", "/books/{book-id}/text"),
            ("/books/*", "/books"),
            ("book", "/books"),
            ("/b", "/a"),
            ("", "x"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
