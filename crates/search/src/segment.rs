//! Data that the ranking needs about each segment of the index. The contents of a segment are immutable, so this data
//! is computed once and cached.

use std::sync::{Arc, Mutex, PoisonError};

use tantivy::columnar::Column;
use tantivy::schema::IndexRecordOption;
use tantivy::{DocSet as _, SegmentReader, TERMINATED};

use crate::schema::Fields;

/// The largest number of sets of visible resources that are cached per segment.
const MAX_CACHED_SETS: usize = 32;

/// A set of resources of a segment: a bit set by ordinal.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResourceSet(Vec<u64>);

impl ResourceSet {
    /// An empty set for a segment with `count` resources.
    pub(crate) fn empty(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    pub(crate) fn insert(&mut self, at: u32) {
        self.0[at as usize / 64] |= 1 << (at % 64);
    }

    pub(crate) fn remove(&mut self, at: u32) {
        self.0[at as usize / 64] &= !(1 << (at % 64));
    }

    #[inline]
    pub(crate) fn contains(&self, at: u32) -> bool {
        self.0[at as usize / 64] >> (at % 64) & 1 == 1
    }

    pub(crate) fn intersect(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one &= other);
    }
}

/// Maps between the documents and the resources of a segment. The documents of a resource are consecutive.
pub(crate) struct SegmentMap {
    /// The ordinal of the resource of each document.
    pub(crate) resource_of: Vec<u32>,
    /// The head document of each resource.
    pub(crate) heads: Vec<u32>,
    /// The number of body tokens of each resource.
    pub(crate) lengths: Vec<u32>,
    /// The language of each resource, by its index in [`Language::ALL`](crate::language::Language::ALL).
    pub(crate) languages: Vec<u8>,
    /// The cache of the method `visible`: the resources that the callers of a rights class may see, with the number of
    /// the class; the oldest first.
    visible: Mutex<Vec<(u64, Arc<ResourceSet>)>>,
}

impl SegmentMap {
    /// Reads the map of a segment. A document with section number 0 is the head of a resource.
    pub(crate) fn read(segment: &SegmentReader, fields: &Fields) -> tantivy::Result<Self> {
        let sections: Column<u64> = segment.fast_fields().u64("section")?;
        let languages: Column<u64> = segment.fast_fields().u64("language")?;
        let norms = segment.get_fieldnorms_reader(fields.body)?;
        let mut resource_of = Vec::with_capacity(segment.max_doc() as usize);
        let (mut heads, mut lengths) = (Vec::new(), Vec::new());
        for document in 0..segment.max_doc() {
            if sections.first(document) == Some(0) || heads.is_empty() {
                heads.push(document);
                lengths.push(0);
            }
            resource_of.push(heads.len() as u32 - 1);
            if let Some(length) = lengths.last_mut() {
                *length += norms.fieldnorm(document);
            }
        }
        let language = |head: &u32| languages.first(*head).unwrap_or_default() as u8;
        let languages = heads.iter().map(language).collect();
        Ok(Self { resource_of, heads, lengths, languages, visible: Mutex::default() })
    }

    /// The documents of a resource, the head first.
    #[inline]
    pub(crate) fn documents(&self, resource: u32) -> std::ops::Range<u32> {
        let start = self.heads[resource as usize];
        let end = self.heads.get(resource as usize + 1).copied();
        start..end.unwrap_or(self.resource_of.len() as u32)
    }

    /// The resources that are not deleted.
    pub(crate) fn alive(&self, segment: &SegmentReader) -> ResourceSet {
        let mut alive = ResourceSet::empty(self.heads.len());
        for (at, head) in self.heads.iter().enumerate() {
            if !segment.is_deleted(*head) {
                alive.insert(at as u32);
            }
        }
        alive
    }

    /// The resources that the callers of a rights class (callers with equal rights) may see, including deleted ones.
    /// The result is cached by `class`, so `sees` must be the same for the same class.
    pub(crate) fn visible(
        &self,
        segment: &SegmentReader,
        fields: &Fields,
        class: u64,
        sees: &dyn Fn(&str) -> bool,
    ) -> tantivy::Result<Arc<ResourceSet>> {
        let cached = |sets: &Vec<(u64, Arc<ResourceSet>)>| {
            sets.iter().find(|(known, _)| *known == class).map(|(_, set)| set.clone())
        };
        if let Some(set) = cached(&self.visible.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(set);
        }
        let mut set = ResourceSet::empty(self.heads.len());
        self.insert_matching(segment, fields, None, sees, &mut set)?;
        let set = Arc::new(set);
        let mut sets = self.visible.lock().unwrap_or_else(PoisonError::into_inner);
        if sets.len() >= MAX_CACHED_SETS {
            sets.remove(0);
        }
        sets.push((class, set.clone()));
        Ok(set)
    }

    /// Adds the resources whose URIs begin with `prefix` and pass the test.
    pub(crate) fn insert_matching(
        &self,
        segment: &SegmentReader,
        fields: &Fields,
        prefix: Option<&str>,
        test: &dyn Fn(&str) -> bool,
        set: &mut ResourceSet,
    ) -> tantivy::Result<()> {
        let index = segment.inverted_index(fields.uri)?;
        let mut uris = match prefix {
            Some(prefix) => index.terms().range().ge(prefix).into_stream()?,
            None => index.terms().stream()?,
        };
        while let Some((uri, info)) = uris.next() {
            let Ok(uri) = std::str::from_utf8(uri) else { continue };
            if prefix.is_some_and(|prefix| !uri.starts_with(prefix)) {
                break;
            }
            if !test(uri) {
                continue;
            }
            let mut documents = index.read_postings_from_terminfo(info, IndexRecordOption::Basic)?;
            // A segment may contain an old, deleted version of a resource and a new one.
            while documents.doc() != TERMINATED {
                let resource = self.resource_of[documents.doc() as usize];
                set.insert(resource);
                let next = self.documents(resource).end;
                if documents.seek(next) == TERMINATED {
                    break;
                }
            }
        }
        Ok(())
    }
}
