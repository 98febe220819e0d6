//! A persistent sorted list of names, made of immutable chunks: an edited copy shares all chunks that did not change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use libris_core::Uri;

/// The maximum number of names in a chunk. An edit splits a larger one in half.
const CHUNK_SIZE: usize = 1024;

/// Sorted names as URI segments; those of directories end with a slash.
///
/// A depth-first walk in this order visits URIs in ascending order.
#[derive(Debug, Default)]
pub(crate) struct NameList {
    /// The chunks, none of which is empty.
    chunks: Vec<Arc<NameChunk>>,
    /// The number of names before each chunk.
    starts: Vec<usize>,
    len: usize,
    /// The indexes of the names, ordered by [`case_folded`]; computed on first use.
    case_folded_order: OnceLock<Box<[u32]>>,
}

/// Sorted names in one string.
#[derive(Debug, Default)]
struct NameChunk {
    text: Box<str>,
    /// The end of each name in `text`.
    ends: Box<[u32]>,
}

impl NameChunk {
    fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for name in names {
            text.push_str(name);
            // It fits: a chunk has about a thousand names, none longer than a URI.
            ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
        }
        Self { text: text.into(), ends: ends.into() }
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, at: usize) -> Option<&str> {
        let end = *self.ends.get(at)? as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.text.get(start..end)
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    fn partition_point(&self, is_before: impl Fn(&str) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle).is_some_and(&is_before) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

impl NameList {
    fn from_chunks(chunks: Vec<Arc<NameChunk>>) -> Self {
        let mut len = 0;
        let mut starts = Vec::with_capacity(chunks.len());
        for chunk in &chunks {
            starts.push(len);
            len += chunk.len();
        }
        Self { chunks, starts, len, case_folded_order: OnceLock::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, at: usize) -> Option<&str> {
        let chunk = self.chunk_of(at)?;
        self.chunks[chunk].get(at - self.starts[chunk])
    }

    /// The names from an index on.
    pub(crate) fn iter_from(&self, at: usize) -> impl Iterator<Item = &str> {
        let chunk = self.chunk_of(at).unwrap_or(self.chunks.len());
        let skipped = self.starts.get(chunk).map_or(0, |start| at - start);
        self.chunks[chunk..].iter().flat_map(|chunk| chunk.iter()).skip(skipped)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.iter_from(0)
    }

    /// The index of the first name for which the predicate is false, as in [`slice::partition_point`].
    pub(crate) fn partition_point(&self, is_before: impl Fn(&str) -> bool) -> usize {
        let begins_before = |chunk: &Arc<NameChunk>| chunk.get(0).is_some_and(&is_before);
        match self.chunks.partition_point(begins_before).checked_sub(1) {
            Some(chunk) => self.starts[chunk] + self.chunks[chunk].partition_point(is_before),
            None => 0,
        }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.get(self.partition_point(|other| other < name)) == Some(name)
    }

    fn chunk_of(&self, at: usize) -> Option<usize> {
        (at < self.len).then(|| self.starts.partition_point(|start| *start <= at) - 1)
    }

    /// A copy in which each of these names is present (`true`) or absent (`false`).
    pub(super) fn edited(&self, edits: &BTreeMap<String, bool>) -> Self {
        let mut chunks = self.chunks.clone();
        for (name, &there) in edits {
            let after = chunks.partition_point(|chunk| chunk.get(0).is_some_and(|first| first <= &**name));
            let at = after.saturating_sub(1);
            let Some(chunk) = chunks.get(at) else {
                chunks.extend(there.then(|| Arc::new(NameChunk::new([&**name]))));
                continue;
            };
            let position = chunk.partition_point(|other| other < &**name);
            let was_there = chunk.get(position) == Some(name);
            if was_there == there {
                continue;
            }
            let before = chunk.iter().take(position);
            let after = chunk.iter().skip(position + usize::from(was_there));
            let names: Vec<_> = before.chain(there.then_some(&**name)).chain(after).collect();
            let size = if names.len() > CHUNK_SIZE { names.len().div_ceil(2) } else { CHUNK_SIZE };
            let edited: Vec<_> =
                names.chunks(size).map(|names| Arc::new(NameChunk::new(names.iter().copied()))).collect();
            chunks.splice(at..=at, edited);
        }
        Self::from_chunks(chunks)
    }

    /// The indexes of the names, ordered by [`case_folded`]. Concurrent callers wait while they are computed.
    pub(crate) fn case_folded_order(&self) -> &[u32] {
        self.case_folded_order.get_or_init(|| {
            /// Serialises sorting across all lists: the folded names of a large one take several times the memory of
            /// the list itself.
            static ORDERING: Mutex<()> = Mutex::new(());
            let _ordering = ORDERING.lock().unwrap_or_else(PoisonError::into_inner);
            let mut positions: Vec<u32> = (0..u32::try_from(self.len).unwrap_or(u32::MAX)).collect();
            positions
                .sort_by_cached_key(|&position| case_folded(self.get(position as usize).unwrap_or_default()));
            positions.into()
        })
    }
}

/// The form of a name in which completion compares it: decoded, in lower case.
pub(crate) fn case_folded(key: &str) -> String {
    let name = Uri::decode_segment(key).unwrap_or_default();
    String::from_utf8_lossy(&name).to_lowercase()
}

/// Names in the order of `readdir`.
#[derive(Default)]
pub(super) struct UnsortedNames {
    text: String,
    /// The start and end of each name in `text`.
    spans: Vec<(usize, usize)>,
}

impl UnsortedNames {
    pub(super) fn push(&mut self, name: &str) {
        let start = self.text.len();
        self.text.push_str(name);
        self.spans.push((start, self.text.len()));
    }

    pub(super) fn sort(mut self) -> NameList {
        let name = |&(start, end): &(usize, usize)| &self.text[start..end];
        self.spans.sort_unstable_by(|one, other| name(one).cmp(name(other)));
        // Half full, so that most insertions need no split.
        let chunks =
            self.spans.chunks(CHUNK_SIZE / 2).map(|spans| Arc::new(NameChunk::new(spans.iter().map(name))));
        NameList::from_chunks(chunks.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{NameList, UnsortedNames};
    use std::collections::{BTreeMap, BTreeSet};

    fn list<'n>(names: impl IntoIterator<Item = &'n str>) -> NameList {
        let mut unsorted = UnsortedNames::default();
        names.into_iter().for_each(|name| unsorted.push(name));
        unsorted.sort()
    }

    fn assert_same(list: &NameList, expected: &BTreeSet<String>) {
        let expected: Vec<_> = expected.iter().map(|name| &**name).collect();
        assert_eq!(list.len(), expected.len());
        assert!(list.iter().eq(expected.iter().copied()));
        for at in [0, 1, 511, 512, 513, 1023, 1024, 2000, expected.len().saturating_sub(1), expected.len()] {
            assert_eq!(list.get(at), expected.get(at).copied(), "{at}");
            let rest = &expected[at.min(expected.len())..];
            assert!(list.iter_from(at).eq(rest.iter().copied()), "{at}");
        }
        for name in ["", "00500", "00500x", "zzz"] {
            let is_before = |other: &str| other < name;
            let found = list.partition_point(is_before);
            assert_eq!(found, expected.partition_point(|other| is_before(other)), "{name}");
            assert_eq!(list.contains(name), expected.contains(&name), "{name}");
        }
    }

    #[test]
    fn an_edited_list_equals_a_rebuilt_one() {
        let mut expected = BTreeSet::new();
        let mut names = list([]);
        assert_same(&names, &expected);
        let mut state = 7_u64;
        for round in 0..60 {
            let mut edits = BTreeMap::new();
            // Grows to several chunks, then shrinks to none.
            for n in 0..200 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let name = if round < 30 { state >> 50 } else { (round - 30) * 546 + n * 3 };
                edits.insert(format!("{name:05}"), round < 30 && state >> 40 & 3 > 0);
            }
            if round == 59 {
                edits.extend(expected.iter().map(|name: &String| (name.clone(), false)));
            }
            for (name, there) in &edits {
                if *there {
                    expected.insert(name.clone())
                } else {
                    expected.remove(name)
                };
            }
            names = names.edited(&edits);
            assert_same(&names, &expected);
            assert_same(&list(expected.iter().rev().map(|name| &**name)), &expected);
        }
        assert_eq!(names.len(), 0);
    }

    #[test]
    fn an_edited_list_shares_unchanged_chunks() {
        let all: Vec<_> = (0..10_000).map(|n| format!("{n:05}")).collect();
        let names = list(all.iter().map(|name| &**name));
        let edited = names.edited(&BTreeMap::from([("05000x".into(), true), ("05001".into(), false)]));
        let shared = edited
            .chunks
            .iter()
            .filter(|chunk| names.chunks.iter().any(|it| std::sync::Arc::ptr_eq(it, chunk)));
        assert_eq!(shared.count(), names.chunks.len() - 1);
    }

    #[test]
    fn the_order_ignores_case() {
        let names = list(["b", "A", "c", "B%20", "a/"]);
        let ordered: Vec<_> =
            names.case_folded_order().iter().filter_map(|at| names.get(*at as usize)).collect();
        assert_eq!(ordered, ["A", "a/", "b", "B%20", "c"]);
    }
}
