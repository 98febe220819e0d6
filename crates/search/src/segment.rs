//! Data that the ranking needs about each segment of the index. The contents of a segment are immutable, so this data
//! is computed once and cached.

use std::sync::{Arc, Mutex, PoisonError};

use tantivy::columnar::Column;
use tantivy::schema::IndexRecordOption;
use tantivy::{DocSet as _, SegmentReader, TERMINATED};

use crate::embedding::SIGN_WORDS;
use crate::language::{Language, Languages};
use crate::schema::{Fields, SIGN_COLUMNS};

/// The largest number of sets of visible resources that are cached per segment, before and after removing deleted
/// resources.
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

/// Statistics of visible resources.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Statistics {
    pub(crate) resources: u64,
    /// The number of resources in each language, by its index in [`Language::ALL`].
    languages: [u64; Language::ALL.len()],
}

impl Statistics {
    fn count(&mut self, language: u8) {
        self.resources += 1;
        if let Some(count) = self.languages.get_mut(usize::from(language)) {
            *count += 1;
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.resources += other.resources;
        self.languages.iter_mut().zip(other.languages).for_each(|(count, other)| *count += other);
    }

    /// The languages of at least one resource in a hundred. The language of a text is not always detected correctly.
    pub(crate) fn languages(&self) -> Languages {
        let is_usual = |at: &usize| self.languages[*at] * 100 >= self.resources.max(1);
        Languages::from_indices((0..Language::ALL.len()).filter(is_usual))
    }
}

/// The resources of a segment that a rights class (callers with equal rights) may see, without deleted ones.
#[derive(Debug, Default)]
pub(crate) struct VisibleSet {
    pub(crate) resources: ResourceSet,
    pub(crate) statistics: Statistics,
}

/// Columns of the documents: of heads, except `signs`. Opening a column looks up its name and reads its header.
pub(crate) struct Columns {
    pub(crate) order: Column<u64>,
    pub(crate) simhash: Column<u64>,
    pub(crate) priority: Column<u64>,
    pub(crate) modified: Column<i64>,
    pub(crate) signs: [Column<u64>; SIGN_WORDS],
}

/// The factors of the length normalisation for two weights.
struct LengthFactors {
    strength: f32,
    usual: f32,
    factors: Arc<[f32]>,
}

/// Maps between the documents and the resources of a segment. The documents of a resource are consecutive.
pub(crate) struct SegmentMap {
    /// The ordinal of the resource of each document.
    pub(crate) resource_of: Vec<u32>,
    /// The head document of each resource.
    pub(crate) heads: Vec<u32>,
    pub(crate) columns: Columns,
    /// The number of body tokens of each resource.
    lengths: Vec<u32>,
    /// The language of each resource, by its index in [`Language::ALL`].
    languages: Vec<u8>,
    /// The cache of the method `length_factors`.
    length_factors: Mutex<Option<LengthFactors>>,
    /// The cache of the method `seen`: the resources that the callers of a rights class may see, including deleted ones,
    /// with the number of the class; the oldest first.
    seen: Mutex<Vec<(u64, Arc<ResourceSet>)>>,
    /// The cache of the method `visible`, by the class and the number of deleted documents; the oldest first.
    visible: Mutex<Vec<(VisibleKey, Arc<VisibleSet>)>>,
}

/// A rights class, or `None` for callers who may see everything; and the number of deleted documents of the segment, which
/// only grows.
type VisibleKey = (Option<u64>, u32);

/// A rights class: its number, and the test which URIs its callers may see. Equal numbers mean equal tests.
#[derive(Clone, Copy)]
pub(crate) struct CallerClass<'t> {
    pub(crate) number: u64,
    pub(crate) sees: &'t dyn Fn(&str) -> bool,
}

/// The value for a key in a cache of [`MAX_CACHED_SETS`] entries, computed if it is missing.
fn cached<K: PartialEq, V: Clone>(
    cache: &Mutex<Vec<(K, V)>>,
    key: K,
    compute: impl FnOnce() -> tantivy::Result<V>,
) -> tantivy::Result<V> {
    let lock = || cache.lock().unwrap_or_else(PoisonError::into_inner);
    let known = lock().iter().find(|(known, _)| *known == key).map(|(_, value)| value.clone());
    if let Some(value) = known {
        return Ok(value);
    }
    let value = compute()?;
    let mut entries = lock();
    if entries.len() >= MAX_CACHED_SETS {
        entries.remove(0);
    }
    entries.push((key, value.clone()));
    Ok(value)
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
        let fast = segment.fast_fields();
        let [first, second, third, fourth] = SIGN_COLUMNS.map(|name| fast.u64(name));
        let columns = Columns {
            signs: [first?, second?, third?, fourth?],
            order: fast.u64("order")?,
            simhash: fast.u64("simhash")?,
            priority: fast.u64("priority")?,
            modified: fast.i64("modified")?,
        };
        Ok(Self {
            resource_of,
            heads,
            columns,
            lengths,
            languages,
            length_factors: Mutex::default(),
            seen: Mutex::default(),
            visible: Mutex::default(),
        })
    }

    /// The factor of the length normalisation of each resource: `1 / (1 - strength + strength * length / usual)`.
    pub(crate) fn length_factors(&self, strength: f32, usual: f32) -> Arc<[f32]> {
        let mut cached = self.length_factors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) =
            cached.as_ref().filter(|known| (known.strength, known.usual) == (strength, usual))
        {
            return known.factors.clone();
        }
        let factor = |length: &u32| 1.0 / (1.0 - strength + strength * *length as f32 / usual);
        let factors: Arc<[f32]> = self.lengths.iter().map(factor).collect();
        *cached = Some(LengthFactors { strength, usual, factors: factors.clone() });
        factors
    }

    /// The documents of a resource, the head first.
    #[inline]
    pub(crate) fn documents(&self, resource: u32) -> std::ops::Range<u32> {
        let start = self.heads[resource as usize];
        let end = self.heads.get(resource as usize + 1).copied();
        start..end.unwrap_or(self.resource_of.len() as u32)
    }

    /// The resources that are not deleted and that the callers of a rights class may see; `None`: all callers.
    pub(crate) fn visible(
        &self,
        segment: &SegmentReader,
        fields: &Fields,
        class: Option<CallerClass<'_>>,
    ) -> tantivy::Result<Arc<VisibleSet>> {
        let key = (class.map(|class| class.number), segment.num_deleted_docs());
        cached(&self.visible, key, || {
            let seen = class.map(|class| self.seen(segment, fields, class)).transpose()?;
            let mut set =
                VisibleSet { resources: ResourceSet::empty(self.heads.len()), ..VisibleSet::default() };
            for (at, head) in self.heads.iter().enumerate() {
                let is_seen = seen.as_ref().is_none_or(|seen| seen.contains(at as u32));
                if is_seen && !segment.is_deleted(*head) {
                    set.resources.insert(at as u32);
                    set.statistics.count(self.languages[at]);
                }
            }
            Ok(Arc::new(set))
        })
    }

    /// The resources that the callers of a rights class may see, including deleted ones.
    fn seen(
        &self,
        segment: &SegmentReader,
        fields: &Fields,
        class: CallerClass<'_>,
    ) -> tantivy::Result<Arc<ResourceSet>> {
        cached(&self.seen, class.number, || {
            let mut set = ResourceSet::empty(self.heads.len());
            self.insert_matching(segment, fields, None, class.sees, &mut set)?;
            Ok(Arc::new(set))
        })
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
