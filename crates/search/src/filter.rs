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
    /// with the text before the `*` as a prefix.
    fn with_terms(&self, field: Field, terms: &[String]) -> tantivy::Result<ResourceSet> {
        let mut set = ResourceSet::empty(self.map.heads.len());
        let index = self.reader.inverted_index(field)?;
        for term in terms {
            let prefix = term.strip_suffix('*');
            let mut stream = index.terms().range().ge(prefix.unwrap_or(term)).into_stream()?;
            while let Some((found, info)) = stream.next() {
                let matches = match prefix {
                    Some(prefix) => found.starts_with(prefix.as_bytes()),
                    None => found == term.as_bytes(),
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
