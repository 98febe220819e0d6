//! Answers `resources/directory/read`: the direct children of a directory, page by page.

use bytes::Bytes;
use libris_core::{DIRECTORY, Error, Page, Resource, Uri};
use libris_wire::{Answer, Call, Failure, Reply};
use serde::Deserialize;

use crate::caller_view::{CallerView, unavailable_meta, unknown_cursor};
use crate::cursor::{self, ListKind};
use crate::encode::{self, PageWriter};
use crate::params;
use crate::rights::Operation;
use crate::server::to_failure;

/// The name of the method.
pub(crate) const METHOD: &str = "resources/directory/read";

#[derive(Deserialize)]
struct DirectoryParams {
    uri: String,
    #[serde(default)]
    cursor: Option<String>,
}

impl CallerView {
    pub(crate) async fn read_directory(&self, call: &Call, params: &str) -> Answer {
        let params: DirectoryParams = params::parse(params)?;
        let answer = self.directory_page(call, &params).await;
        self.audit(call, "directory", Some(Operation::List), Some(&params.uri), &answer);
        answer
    }

    async fn directory_page(&self, call: &Call, params: &DirectoryParams) -> Answer {
        let (facts, view) = (call.revision.facts(), self.view().snapshot());
        let uri = Uri::parse(&params.uri).map_err(to_failure)?;
        // A cursor is valid for one directory, whether its URI is written with or without the trailing slash.
        let directory = without_slash(uri.as_str());
        let after = match &params.cursor {
            None => None,
            Some(cursor) => {
                let decoded = cursor::decode(ListKind::Children, cursor).ok_or_else(unknown_cursor)?;
                let (of, last) = decoded.split_once('\n').ok_or_else(unknown_cursor)?;
                Some(Uri::parse(last).ok().filter(|_| of == directory).ok_or_else(unknown_cursor)?)
            }
        };
        let context = self.context(call);
        let page = view.directory(&uri, after.as_ref(), self.page_size(), &context).await;
        let Page { mut resources, more, unavailable, .. } = page.map_err(|error| match error {
            // The response has the URI as it was requested, not in its normal form.
            Error::NotFound(_) | Error::Denied(_) => Failure::not_found(&params.uri),
            error => to_failure(error),
        })?;
        let next = resources.last().filter(|_| more);
        let next = next.map(|last| cursor::encode(ListKind::Children, &format!("{directory}\n{}", last.uri)));
        resources.iter_mut().for_each(write_without_slash);
        let mut members =
            PageWriter::new("resources", &resources, |json, child| encode::resource(json, facts, child));
        if let Some(next) = next {
            members = members.text("nextCursor", &next);
        }
        let meta = match unavailable.is_empty() {
            true => Bytes::new(),
            false => unavailable_meta(&view, &unavailable),
        };
        Ok(Reply { members: members.finish(), freshness: None, meta })
    }
}

/// Removes the trailing slash of a directory's URI, because the directory extension writes URIs without it.
fn write_without_slash(child: &mut Resource) {
    if child.mime.as_deref() == Some(DIRECTORY)
        && let Ok(uri) = Uri::parse(without_slash(child.uri.as_str()))
    {
        child.uri = uri;
    }
}

/// A URI without its trailing slash. `file:///` and `a:/`, which have only slashes after the scheme, stay as they are.
fn without_slash(uri: &str) -> &str {
    match uri.strip_suffix('/') {
        Some(rest) if !rest.ends_with(['/', ':']) => rest,
        _ => uri,
    }
}

#[cfg(test)]
mod tests {
    use super::without_slash;

    #[test]
    fn the_root_keeps_its_slash() {
        for (uri, written) in [
            ("file:///docs/guide/", "file:///docs/guide"),
            ("file:///docs/guide", "file:///docs/guide"),
            ("file:///docs/", "file:///docs"),
            ("file:///", "file:///"),
            ("skill://refunds/", "skill://refunds"),
            ("a:/", "a:/"),
        ] {
            assert_eq!(without_slash(uri), written);
        }
    }
}
