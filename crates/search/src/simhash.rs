//! Near-duplicate detection with SimHash: the fingerprints of texts that differ in few words differ in few bits.
//!
//! An author can craft a text with the fingerprint of another one. Therefore a search also compares the passages that
//! it would show, with [`is_same_passage`].

use std::collections::HashSet;

/// The largest number of bits in which the fingerprints of near-duplicates differ.
pub(crate) const MAX_DISTANCE: u32 = 3;

/// Texts with fewer words have no fingerprint: short texts are similar by chance.
const MIN_WORDS: usize = 20;

/// The fingerprint of a text; 0 for a text that is too short.
pub(crate) fn of(text: &str) -> u64 {
    let mut counters = BitCounters::default();
    let mut shingle = [0_u64; 3];
    let mut words = 0;
    for_each_word_hash(text, &mut |hash| {
        shingle.rotate_left(1);
        shingle[2] = hash;
        words += 1;
        if words >= 3 {
            counters.add(mixed(shingle[0] ^ mixed(shingle[1] ^ mixed(shingle[2]))));
        }
    });
    if words < MIN_WORDS { 0 } else { counters.majority() }
}

/// Counts for each of 64 bits in how many numbers it is set. The counters are bit-sliced: bit `n` of `planes[k]` is bit `k`
/// of the counter of bit `n`, so that one addition changes all counters.
#[derive(Default)]
struct BitCounters {
    planes: [u64; 32],
    numbers: u32,
}

impl BitCounters {
    fn add(&mut self, number: u64) {
        self.numbers += 1;
        let mut carry = number;
        for plane in &mut self.planes {
            (*plane, carry) = (*plane ^ carry, *plane & carry);
            if carry == 0 {
                break;
            }
        }
    }

    /// The bits that are set in more than half of the numbers.
    fn majority(&self) -> u64 {
        let count = |bit: usize| {
            let planes = self.planes.iter().enumerate();
            planes.fold(0_u32, |count, (at, plane)| count | ((plane >> bit & 1) as u32) << at)
        };
        (0..64).fold(0, |set, bit| set | u64::from(count(bit) > self.numbers / 2) << bit)
    }
}

/// Calls `each` with the hash of each word (FNV-1a, which is fast for short words).
fn for_each_word_hash(text: &str, each: &mut dyn FnMut(u64)) {
    const EMPTY: u64 = 0xcbf2_9ce4_8422_2325;
    let mut hash = EMPTY;
    let mut is_word = false;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let is_letter = match byte.is_ascii() {
            true => byte.is_ascii_alphanumeric(),
            false => text[at..].starts_with(char::is_alphanumeric),
        };
        if is_letter {
            hash = step(hash, byte);
        } else if is_word {
            each(std::mem::replace(&mut hash, EMPTY));
        }
        if !byte.is_ascii() {
            let length = text[at..].chars().next().map_or(1, char::len_utf8);
            for (_, byte) in bytes.by_ref().take(length - 1) {
                hash = if is_letter { step(hash, byte) } else { hash };
            }
        }
        is_word = is_letter;
    }
    if is_word {
        each(hash);
    }
}

/// The last step of SplitMix64, in which every input bit affects all output bits.
fn mixed(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

/// Whether two fingerprints are those of near-duplicates.
pub(crate) fn is_duplicate(one: u64, other: u64) -> bool {
    one != 0 && other != 0 && (one ^ other).count_ones() <= MAX_DISTANCE
}

/// Whether at least nine tenths of the distinct words of two passages are in both.
pub(crate) fn is_same_passage(one: &str, other: &str) -> bool {
    let words = |text| -> HashSet<&str> { str::split_whitespace(text).collect() };
    let (one, other) = (words(one), words(other));
    let common = one.intersection(&other).count();
    common * 10 >= (one.len() + other.len() - common) * 9
}

#[cfg(test)]
mod tests {
    use super::{is_duplicate, is_same_passage, mixed, of};

    /// The definition: each bit is that of most hashes of three consecutive words.
    #[test]
    fn the_fingerprint_has_the_bits_of_most_words() {
        let fnv = |word: &str| {
            word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
        };
        // Of many lengths, so that some bits are in exactly half of the hashes.
        let lengths = (20..80)
            .map(|length| (0..length).map(|word| format!("word{} ", word * length)).collect::<String>());
        let letters = "Über größe—naïve, “words” 使用Python编程 and _under_scores_ — in 3.11 é".repeat(5);
        let texts: Vec<String> = lengths.chain([letters]).collect();
        for text in texts {
            let words: Vec<_> = text
                .split(|letter: char| !letter.is_alphanumeric())
                .filter(|word| !word.is_empty())
                .map(fnv)
                .collect();
            let mut weights = [0_i32; 64];
            for words in words.windows(3) {
                let hash = mixed(words[0] ^ mixed(words[1] ^ mixed(words[2])));
                for (bit, weight) in weights.iter_mut().enumerate() {
                    *weight += if hash >> bit & 1 == 1 { 1 } else { -1 };
                }
            }
            let expected = (0..64).fold(0, |set, bit| set | u64::from(weights[bit] > 0) << bit);
            assert_eq!(of(&text), expected, "{text}");
        }
    }

    #[test]
    fn passages_with_other_words_are_not_the_same() {
        let words: Vec<_> = (0..40).map(|number| format!("word{number}")).collect();
        let text = words.join(" ");
        assert!(is_same_passage(&text, &text.replace("word7 ", "other ")));
        assert!(!is_same_passage(&text, &text.replace("word1", "other1")));
    }

    #[test]
    fn the_end_of_a_long_text_counts() {
        let start = (0..5000).map(|number| format!("word{number} ")).collect::<String>();
        let stuffed = start.clone() + &(0..5000).map(|number| format!("other{number} ")).collect::<String>();
        assert!(!is_duplicate(of(&start), of(&stuffed)));
    }

    #[test]
    fn a_changed_word_is_a_near_duplicate_and_another_text_is_not() {
        let words: Vec<_> = (0..400).map(|number| format!("word{number}")).collect();
        let text = words.join(" ");
        let changed = text.replace("word77 ", "other ");
        let another: Vec<_> = (0..400).map(|number| format!("text{number}")).collect();
        assert!(is_duplicate(of(&text), of(&changed)));
        assert!(!is_duplicate(of(&text), of(&another.join(" "))));
        assert!(!is_duplicate(of("too short"), of("too short")));
    }
}
