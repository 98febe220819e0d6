//! Answers that were encoded before and are still right.
//!
//! None is handed out unless its [`Proof`] holds at that moment, so being kept never shows.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use libris_core::Proof;
use libris_wire::{Question, Reply, Revision};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, Equivalent, OptionsBuilder, Weighter};

/// How many answers of usual size there is room for, before any is kept: 32 for each part, or the cache makes
/// fewer parts.
const EXPECTED: usize = 32 * PARTS;

/// What an answer costs beside its bytes.
const OVERHEAD: usize = 256;

/// Each part has a lock and a share of the bytes, which no answer may exceed.
const PARTS: usize = 2;

/// Kept answers, within a number of bytes.
pub(crate) struct Kept {
    answers: Cache<Key, Arc<Answer>, Bytes>,
    /// What an answer may weigh.
    heaviest: u64,
    /// What times are counted from.
    began: Instant,
}

/// The same question in another revision, or of callers with other rights, may be answered otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked<'a> {
    class: u64,
    revision: Revision,
    question: Question<'a>,
}

/// A question that is remembered.
#[derive(Clone)]
struct Key {
    class: u64,
    revision: Revision,
    kind: Kind,
    text: Option<Box<str>>,
}

#[derive(Clone, Copy)]
enum Kind {
    List,
    Templates,
    Read,
}

impl Key {
    fn new(asked: Asked<'_>) -> Self {
        let (kind, text) = match asked.question {
            Question::List(cursor) => (Kind::List, cursor),
            Question::Templates(cursor) => (Kind::Templates, cursor),
            Question::Read(uri) => (Kind::Read, Some(uri)),
        };
        Self { class: asked.class, revision: asked.revision, kind, text: text.map(Box::from) }
    }

    fn asked(&self) -> Asked<'_> {
        let text = self.text.as_deref();
        let question = match self.kind {
            Kind::List => Question::List(text),
            Kind::Templates => Question::Templates(text),
            Kind::Read => Question::Read(text.unwrap_or_default()),
        };
        Asked { class: self.class, revision: self.revision, question }
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

struct Answer {
    /// `None` for a large one that was asked for once.
    reply: Option<Reply>,
    proof: Proof,
    /// When the proof was last seen to hold, in nanoseconds.
    proven: AtomicU64,
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Key, Arc<Answer>> for Bytes {
    fn weight(&self, key: &Key, answer: &Arc<Answer>) -> u64 {
        let members = answer.reply.as_ref().map_or(0, |reply| reply.members.size());
        (key.text.as_ref().map_or(0, |text| text.len()) + members + OVERHEAD) as u64
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
        // The cache itself takes a little less than the whole share.
        let heaviest = bytes / PARTS as u64 / 10 * 9;
        Self { answers, heaviest, began: Instant::now() }
    }

    /// The answer to a question, if one is kept that was right at `since` or later. So questions that have
    /// arrived together need one proof.
    pub(crate) fn find(
        &self,
        class: u64,
        revision: Revision,
        question: Question<'_>,
        since: Instant,
    ) -> Option<Reply> {
        let asked = Asked { class, revision, question };
        let answer = self.answers.get(&asked)?;
        if answer.proven.load(Ordering::Acquire) > self.nanoseconds(since) {
            return answer.reply.clone();
        }
        let now = self.nanoseconds(Instant::now());
        if answer.proof.holds() {
            answer.proven.fetch_max(now, Ordering::Release);
            return answer.reply.clone();
        }
        self.answers.remove(&asked);
        None
    }

    fn nanoseconds(&self, time: Instant) -> u64 {
        time.saturating_duration_since(self.began).as_nanos() as u64
    }

    /// Keeps an answer for as long as its proof holds and there is room, and gives what to send.
    ///
    /// A large one is not encoded before it is sent, and not to be kept until it is asked for again while
    /// it is right: many are not, because they change or because somebody reads everything once.
    pub(crate) fn keep(
        &self,
        class: u64,
        revision: Revision,
        question: Question<'_>,
        mut reply: Reply,
        proof: Option<Proof>,
    ) -> Reply {
        let Some(proof) = proof else { return reply };
        let asked = Asked { class, revision, question };
        let size = reply.members.size() as u64;
        if reply.members.encoded().is_none()
            && size + size / 3 <= self.heaviest
            && self.answers.peek(&asked).is_some_and(|seen| seen.proof.holds())
        {
            let encoded = reply.members.encode();
            // Text full of characters to escape is not kept: in memory it would be six times as large.
            if (encoded.size() as u64) <= size + size / 3 + OVERHEAD as u64 {
                reply.members = encoded;
            }
        }
        let kept = reply.members.encoded().map(|_| reply.clone());
        let (key, answer) = (Key::new(asked), Answer { reply: kept, proof, proven: AtomicU64::new(0) });
        let answer = Arc::new(answer);
        if Bytes.weight(&key, &answer) <= self.heaviest {
            self.answers.insert(key, answer);
        }
        reply
    }

    /// How many bytes are kept.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.answers.weight()).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{Kept, OVERHEAD};
    use libris_core::Proof;
    use libris_wire::{Question, Reply, Revision, Writer};
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::{Arc, OnceLock};
    use std::time::Instant;

    const NOW: Revision = Revision::V2026_07_28;

    fn find(kept: &Kept, revision: Revision, question: Question<'_>) -> Option<Reply> {
        kept.find(0, revision, question, Instant::now())
    }

    fn reply(size: usize) -> Reply {
        Reply { members: vec![b'x'; size].into(), freshness: None, meta: bytes::Bytes::new() }
    }

    fn large() -> Reply {
        let mut out = Writer::default();
        out.text("x".repeat(100_000));
        Reply { members: out.finish(), freshness: None, meta: bytes::Bytes::new() }
    }

    #[test]
    fn an_answer_is_handed_out_only_while_its_proof_holds() {
        let kept = Kept::new(1 << 20);
        let right = Arc::new(AtomicBool::new(true));
        let watched = right.clone();
        let proof = Proof::new(move || watched.load(Ordering::Relaxed));
        let (a, b) = (Question::Read("a"), Question::Read("b"));
        let _ = kept.keep(0, NOW, a, reply(10), Some(proof));
        let _ = kept.keep(0, NOW, b, reply(10), None);
        assert_eq!(find(&kept, NOW, a).unwrap().members.size(), 10);
        assert!(find(&kept, NOW, b).is_none());
        assert!(find(&kept, Revision::V2025_06_18, a).is_none());
        assert!(find(&kept, NOW, Question::List(Some("a"))).is_none());
        assert!(find(&kept, NOW, Question::List(None)).is_none());
        assert!(kept.find(1, NOW, a, Instant::now()).is_none(), "callers with other rights");
        right.store(false, Ordering::Relaxed);
        assert!(find(&kept, NOW, a).is_none());
        right.store(true, Ordering::Relaxed);
        assert!(find(&kept, NOW, a).is_none());
        assert_eq!(kept.bytes(), 0);
    }

    #[test]
    fn an_answer_is_for_callers_with_the_same_rights() {
        let kept = Kept::new(1 << 20);
        let a = Question::Read("a");
        for class in 1..=2 {
            let _ = kept.keep(class, NOW, a, reply(class as usize), Some(Proof::always()));
        }
        let size = |class| kept.find(class, NOW, a, Instant::now()).map(|reply| reply.members.size());
        assert_eq!([0, 1, 2, 3].map(size), [None, Some(1), Some(2), None]);
    }

    #[test]
    fn an_answer_is_for_its_own_question() {
        let kept = Kept::new(1 << 20);
        let _ = kept.keep(0, NOW, Question::Read("a?lines=1"), reply(1), Some(Proof::always()));
        assert!(find(&kept, NOW, Question::Read("a?lines=1")).is_some());
        assert!(find(&kept, NOW, Question::Read("a")).is_none());
    }

    #[test]
    fn a_question_from_before_the_cache_needs_a_proof() {
        let before = Instant::now();
        let kept = Kept::new(1 << 20);
        let a = Question::Read("a");
        let _ = kept.keep(0, NOW, a, reply(1), Some(Proof::new(|| false)));
        assert!(kept.find(0, NOW, a, before).is_none());
    }

    #[test]
    fn questions_that_arrived_together_need_one_proof() {
        let kept = Kept::new(1 << 20);
        let proofs = Arc::new(AtomicU32::new(0));
        let counted = proofs.clone();
        let proof = Proof::new(move || counted.fetch_add(1, Ordering::Relaxed) < 2);
        let a = Question::Read("a");
        let _ = kept.keep(0, NOW, a, reply(10), Some(proof));
        let since = Instant::now();
        for _ in 0..10 {
            assert!(kept.find(0, NOW, a, since).is_some());
        }
        assert_eq!(proofs.load(Ordering::Relaxed), 1);
        assert!(find(&kept, NOW, a).is_some());
        assert_eq!(proofs.load(Ordering::Relaxed), 2);
        assert!(find(&kept, NOW, a).is_none());
    }

    #[test]
    fn a_large_answer_is_kept_once_it_is_asked_for_again() {
        let kept = Kept::new(8 << 20);
        let right = Arc::new(AtomicBool::new(true));
        let proof = || {
            let watched = right.clone();
            Some(Proof::new(move || watched.load(Ordering::Relaxed)))
        };
        let a = Question::Read("a");
        let asked = || {
            let found = find(&kept, NOW, a);
            let held = found.is_some();
            let reply = found.unwrap_or_else(|| kept.keep(0, NOW, a, large(), proof()));
            (held, reply.members.encoded().is_some())
        };
        assert_eq!([asked(), asked(), asked()], [(false, false), (false, true), (true, true)]);
        // What changes each time is never encoded but to be sent.
        for _ in 0..3 {
            right.store(false, Ordering::Relaxed);
            assert!(find(&kept, NOW, a).is_none());
            right.store(true, Ordering::Relaxed);
            assert_eq!(asked(), (false, false));
        }
        assert!(kept.bytes() < 1000);
        // Nor is what was outdated when it was asked for again.
        right.store(false, Ordering::Relaxed);
        for _ in 0..3 {
            assert!(kept.keep(0, NOW, a, large(), proof()).members.encoded().is_none());
        }
        right.store(true, Ordering::Relaxed);
        // What there would be no room for is not encoded in vain, and what there is room for is kept.
        for (bytes, kept) in [(160_000, false), (260_000, false), (320_000, true)] {
            let small = Kept::new(bytes);
            for _ in 0..3 {
                let reply = small.keep(0, NOW, a, large(), proof());
                assert_eq!(reply.members.encoded().is_some(), find(&small, NOW, a).is_some());
            }
            assert_eq!(find(&small, NOW, a).is_some(), kept, "{bytes}");
        }
    }

    #[test]
    fn a_proof_holds_for_questions_that_arrived_before_it_was_checked() {
        let kept = Kept::new(1 << 20);
        let (proofs, during) = (Arc::new(AtomicU32::new(0)), Arc::new(OnceLock::new()));
        let (counted, asked) = (proofs.clone(), during.clone());
        let proof = Proof::new(move || {
            asked.get_or_init(Instant::now);
            counted.fetch_add(1, Ordering::Relaxed) < 1
        });
        let a = Question::Read("a");
        let _ = kept.keep(0, NOW, a, reply(10), Some(proof));
        assert!(find(&kept, NOW, a).is_some());
        // What the first check looked at may have changed before this question arrived.
        assert!(kept.find(0, NOW, a, *during.get().unwrap()).is_none());
        assert_eq!(proofs.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn text_that_escapes_make_much_longer_is_not_kept() {
        let kept = Kept::new(8 << 20);
        for (character, is_kept) in ["\u{1}", "x"].into_iter().zip([false, true]) {
            let question = Question::Read(character);
            for _ in 0..3 {
                let mut out = Writer::default();
                out.text(character.repeat(100_000));
                let reply = Reply { members: out.finish(), freshness: None, meta: bytes::Bytes::new() };
                let _ = kept.keep(0, NOW, question, reply, Some(Proof::always()));
            }
            assert_eq!(find(&kept, NOW, question).is_some(), is_kept, "{character:?}");
        }
    }

    #[test]
    fn the_text_of_a_question_takes_room() {
        let kept = Kept::new(1 << 20);
        kept.keep(0, NOW, Question::Read(&"x".repeat(8_000)), reply(1), Some(Proof::always()));
        assert!(kept.bytes() > 8_000, "{}", kept.bytes());
    }

    #[test]
    fn an_answer_that_would_take_the_share_of_a_part_is_not_kept() {
        let kept = Kept::new(1 << 20);
        let largest = kept.heaviest as usize - OVERHEAD - 1;
        for (uri, size, is_kept) in [("a", largest, true), ("b", largest + 1, false)] {
            let _ = kept.keep(0, NOW, Question::Read(uri), reply(size), Some(Proof::always()));
            assert_eq!(find(&kept, NOW, Question::Read(uri)).is_some(), is_kept, "{size}");
        }
    }

    #[test]
    fn room_is_bounded() {
        let kept = Kept::new(1 << 20);
        for number in 0..1000 {
            let uri = number.to_string();
            kept.keep(0, NOW, Question::Read(&uri), reply(10_000), Some(Proof::always()));
        }
        kept.keep(0, NOW, Question::Read("huge"), reply(2 << 20), Some(Proof::always()));
        assert!(kept.bytes() <= 1 << 20 && kept.bytes() > 1 << 19, "{}", kept.bytes());
        let none = Kept::new(0);
        none.keep(0, NOW, Question::Read("a"), reply(1), Some(Proof::always()));
        assert!(find(&none, NOW, Question::Read("a")).is_none());
    }
}
