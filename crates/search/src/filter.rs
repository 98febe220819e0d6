//! The filters of a query: source, media type, audience, modification time and the beginning of the URI.

use libris_core::SearchQuery;
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocSet as _, SegmentReader, TERMINATED};

use crate::schema::{Fields, audience_name};
use crate::segment::{ResourceSet, SegmentMap};

/// The filters of a query, applied to a segment.
pub(crate) struct Filter<'f> {
    pub(crate) query: &'f SearchQuery,
    pub(crate) reader: &'f SegmentReader,
    pub(crate) map: &'f SegmentMap,
    pub(crate) fields: &'f Fields,
}

impl Filter<'_> {
    /// Removes from `scope` the resources that do not pass the filters.
    pub(crate) fn apply(&self, scope: &mut ResourceSet) -> tantivy::Result<()> {
        let SearchQuery { sources, mimes, audience, modified_since, uri_prefix, .. } = self.query;
        if !sources.is_empty() {
            scope.intersect(&self.with_terms(self.fields.source, sources)?);
        }
        if !mimes.is_empty() {
            scope.intersect(&self.with_terms(self.fields.mime, mimes)?);
        }
        if let Some(audience) = audience {
            let mut audiences =
                self.with_terms(self.fields.audience, &[audience_name(*audience).to_owned()])?;
            // Resources without an audience are for everybody.
            let given = self.with_terms(self.fields.audience, &["*".to_owned()])?;
            for resource in 0..self.map.heads.len() as u32 {
                if !given.contains(resource) {
                    audiences.insert(resource);
                }
            }
            scope.intersect(&audiences);
        }
        if let Some(prefix) = uri_prefix {
            let mut below = ResourceSet::empty(self.map.heads.len());
            self.map.insert_matching(self.reader, self.fields, Some(prefix), &|_| true, &mut below)?;
            scope.intersect(&below);
        }
        if let Some(since) = modified_since {
            let modified = self.reader.fast_fields().i64("modified")?;
            for (resource, head) in self.map.heads.iter().enumerate() {
                if modified.first(*head).is_none_or(|modified| modified < *since) {
                    scope.remove(resource as u32);
                }
            }
        }
        Ok(())
    }

    /// The resources whose head document has one of these terms in a field. A term that ends with `*` matches all terms
    /// with the text before the `*` as a prefix. Reads the postings of each matching term once.
    fn with_terms(&self, field: Field, terms: &[String]) -> tantivy::Result<ResourceSet> {
        let mut set = ResourceSet::empty(self.map.heads.len());
        let index = self.reader.inverted_index(field)?;
        for TermFilter { text, is_prefix } in disjoint(terms) {
            let mut stream = index.terms().range().ge(text).into_stream()?;
            while let Some((found, info)) = stream.next() {
                let matches = match is_prefix {
                    true => found.starts_with(text.as_bytes()),
                    false => found == text.as_bytes(),
                };
                if !matches {
                    break;
                }
                let mut heads = index.read_postings_from_terminfo(info, IndexRecordOption::Basic)?;
                while heads.doc() != TERMINATED {
                    set.insert(self.map.resource_of[heads.doc() as usize]);
                    heads.advance();
                }
            }
        }
        Ok(set)
    }
}

/// A term, or the beginning of terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TermFilter<'t> {
    text: &'t str,
    is_prefix: bool,
}

/// These terms, without those that another one includes, so that no two match the same term of the index.
fn disjoint(terms: &[String]) -> Vec<TermFilter<'_>> {
    let filters = terms.iter().map(|term| match term.strip_suffix('*') {
        Some(text) => TermFilter { text, is_prefix: true },
        None => TermFilter { text: term, is_prefix: false },
    });
    let mut filters: Vec<_> = filters.collect();
    // In this order, a prefix comes directly before all that it includes.
    filters.sort_unstable_by_key(|filter| (filter.text, !filter.is_prefix));
    filters.dedup_by(|next, kept| *next == *kept || kept.is_prefix && next.text.starts_with(kept.text));
    filters
}

#[cfg(test)]
mod tests {
    use super::{TermFilter, disjoint};

    #[test]
    fn terms_that_others_include_are_left_out() {
        let kept = |terms: &[&str]| {
            let terms: Vec<_> = terms.iter().map(|term| (*term).to_owned()).collect();
            let filters = disjoint(&terms).into_iter();
            let shown =
                |TermFilter { text, is_prefix }| format!("{text}{}", if is_prefix { "*" } else { "" });
            filters.map(shown).collect::<Vec<_>>()
        };
        assert_eq!(kept(&[]), [""; 0]);
        assert_eq!(kept(&["text/plain", "image/png", "text/plain"]), ["image/png", "text/plain"]);
        assert_eq!(
            kept(&["text/plain", "text/*", "text", "textile", "text/p*"]),
            ["text", "text/*", "textile"]
        );
        assert_eq!(kept(&["a", "a*", "ab", "a*"]), ["a*"]);
        assert_eq!(kept(&["a", "ab", "abc"]), ["a", "ab", "abc"]);
        assert_eq!(kept(&["text/*", "*", "image/png", ""]), ["*"]);
        assert_eq!(kept(&vec!["*"; 900_000]), ["*"]);
    }
}
