//! The parameters of a URI: a range of a file, or a page of a folder's listing.

use libris_core::{Error, Result, Uri};

use crate::folder_listing::{self, FolderQuery};
use crate::range::Range;
use crate::suggest;

/// The parameters of files.
const RANGE_KEYS: [&str; 2] = ["lines", "bytes"];

/// Checks that all parameters of a URI exist. Unknown ones must not be ignored, since the caller expects an effect.
pub(super) fn check_keys(uri: &Uri) -> Result<()> {
    let known = || RANGE_KEYS.into_iter().chain(folder_listing::KEYS);
    let Some(wrong) = keys(uri).find(|key| !known().any(|known| known == *key)) else { return Ok(()) };
    let similar = suggest::did_you_mean(wrong, known());
    Err(Error::missing(
        uri,
        format!(
            "there is no parameter `{wrong}`: files have `lines` and `bytes`, folders have `after`, `match`, \
             `format` and `contents`{similar}"
        ),
    ))
}

/// The range of a file that a URI asks for; `None` for the whole file.
pub(super) fn range(uri: &Uri) -> Result<Option<Range>> {
    let Some(query) = uri.query() else { return Ok(None) };
    if let Some(key) = first_with_value(query, &folder_listing::KEYS) {
        return Err(Error::invalid(format!(
            "`{}` is a file, and `{key}` is a parameter of folders: use `lines` or `bytes`, or read it without `?`",
            uri.without_query()
        )));
    }
    Range::parse(&ranges_of(query))
}

/// The page of a folder's listing that a URI asks for.
pub(super) fn folder(uri: &Uri) -> Result<FolderQuery> {
    let Some(query) = uri.query() else { return Ok(FolderQuery::default()) };
    if first_with_value(query, &RANGE_KEYS).is_some() {
        return Err(Error::invalid(format!(
            "`{}` is a directory, which has no lines or bytes: read it without `?`",
            uri.without_query()
        )));
    }
    FolderQuery::parse(query)
}

/// Whether a URI has no parameter with a value.
pub(super) fn is_whole(uri: &Uri) -> bool {
    uri.query().is_none_or(|query| {
        first_with_value(query, &RANGE_KEYS).is_none()
            && first_with_value(query, &folder_listing::KEYS).is_none()
    })
}

/// The key of the first parameter that is one of these keys and has a value.
fn first_with_value<'a>(query: &'a str, keys: &[&str]) -> Option<&'a str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, value)| keys.contains(key) && !value.is_empty()).map(|(key, _)| key)
}

fn keys(uri: &Uri) -> impl Iterator<Item = &str> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').map_or(pair, |(key, _)| key))
}

/// The parameters of a query that are ranges.
fn ranges_of(query: &str) -> String {
    let is_range = |pair: &&str| RANGE_KEYS.contains(&pair.split_once('=').map_or(*pair, |(key, _)| key));
    query.split('&').filter(is_range).collect::<Vec<_>>().join("&")
}
