//! Answers that were encoded before and are still right.
//!
//! None is handed out unless its [`Proof`] holds at that moment, so being kept never shows.

use std::hash::{Hash, Hasher};

use libris_core::Proof;
use libris_wire::{Reply, Revision};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, Equivalent, OptionsBuilder, Weighter};

/// How many answers of usual size there is room for, before any is kept.
const EXPECTED: usize = 64;

/// What an answer costs beside its bytes.
const OVERHEAD: usize = 256;

/// Each part has a lock and a share of the bytes, which no answer may exceed.
const PARTS: usize = 8;

/// Kept answers, within a number of bytes.
pub(crate) struct Kept {
    answers: Cache<Key, Answer, Bytes>,
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    List,
    Templates,
    Read,
}

/// A question: the same words in another revision may be answered otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked<'a> {
    pub(crate) revision: Revision,
    pub(crate) kind: Kind,
    /// The cursor or the URI, as it was sent.
    pub(crate) text: &'a str,
}

#[derive(Clone)]
struct Key {
    revision: Revision,
    kind: Kind,
    text: Box<str>,
}

impl Key {
    fn asked(&self) -> Asked<'_> {
        Asked { revision: self.revision, kind: self.kind, text: &self.text }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.asked().hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.asked() == other.asked()
    }
}

impl Eq for Key {}

impl Equivalent<Key> for Asked<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self == key.asked()
    }
}

#[derive(Clone)]
struct Answer {
    reply: Reply,
    proof: Proof,
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Answer> for Bytes {
    fn weight(&self, key: &Key, answer: &Answer) -> u64 {
        (key.text.len() + answer.reply.members.len() + OVERHEAD) as u64
    }
}

impl Kept {
    /// Room for so many bytes of answers.
    pub(crate) fn new(bytes: u64) -> Self {
        let options = OptionsBuilder::new()
            .shards(PARTS)
            .estimated_items_capacity(EXPECTED)
            .weight_capacity(bytes)
            .build()
            .expect("both capacities are given");
        let answers =
            Cache::with_options(options, Bytes, DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self { answers }
    }

    /// The answer to a question, if one is kept that is still right.
    pub(crate) fn find(&self, asked: Asked<'_>) -> Option<Reply> {
        let answer = self.answers.get(&asked)?;
        if answer.proof.holds() {
            return Some(answer.reply);
        }
        self.answers.remove(&asked);
        None
    }

    /// Keeps an answer for as long as its proof holds and there is room.
    pub(crate) fn keep(&self, asked: Asked<'_>, reply: &Reply, proof: Option<Proof>) {
        if let Some(proof) = proof {
            let key = Key { revision: asked.revision, kind: asked.kind, text: asked.text.into() };
            self.answers.insert(key, Answer { reply: reply.clone(), proof });
        }
    }

    /// How many bytes are kept.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.answers.weight()).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Kept, Kind};
    use libris_core::Proof;
    use libris_wire::{Reply, Revision};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn asked(text: &str) -> Asked<'_> {
        Asked { revision: Revision::V2026_07_28, kind: Kind::Read, text }
    }

    fn reply(size: usize) -> Reply {
        Reply { members: vec![b'x'; size].into(), keep: None }
    }

    #[test]
    fn an_answer_is_handed_out_only_while_its_proof_holds() {
        let kept = Kept::new(1 << 20);
        let right = Arc::new(AtomicBool::new(true));
        let watched = right.clone();
        let proof = Proof::new(move || watched.load(Ordering::Relaxed));
        kept.keep(asked("a"), &reply(10), Some(proof));
        kept.keep(asked("b"), &reply(10), None);
        assert_eq!(kept.find(asked("a")).unwrap().members.len(), 10);
        assert!(kept.find(asked("b")).is_none());
        assert!(kept.find(Asked { revision: Revision::V2025_06_18, ..asked("a") }).is_none());
        assert!(kept.find(Asked { kind: Kind::List, ..asked("a") }).is_none());
        right.store(false, Ordering::Relaxed);
        assert!(kept.find(asked("a")).is_none());
        right.store(true, Ordering::Relaxed);
        assert!(kept.find(asked("a")).is_none());
        assert_eq!(kept.bytes(), 0);
    }

    #[test]
    fn room_is_bounded() {
        let kept = Kept::new(1 << 20);
        for number in 0..1000 {
            kept.keep(asked(&number.to_string()), &reply(10_000), Some(Proof::always()));
        }
        kept.keep(asked("huge"), &reply(2 << 20), Some(Proof::always()));
        assert!(kept.bytes() <= 1 << 20 && kept.bytes() > 1 << 19, "{}", kept.bytes());
    }
}
