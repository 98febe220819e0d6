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
    let mut weights = [0_i32; 64];
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut shingle = [0_u64; 3];
    let mut count = 0;
    for word in words {
        shingle.rotate_left(1);
        shingle[2] = hash(word);
        count += 1;
        if count < 3 {
            continue;
        }
        let hash = mixed(shingle[0] ^ mixed(shingle[1] ^ mixed(shingle[2])));
        for (bit, weight) in weights.iter_mut().enumerate() {
            *weight += if hash >> bit & 1 == 1 { 1 } else { -1 };
        }
    }
    if count < MIN_WORDS {
        return 0;
    }
    weights.iter().enumerate().fold(0, |hash, (bit, weight)| hash | u64::from(*weight > 0) << bit)
}

/// FNV-1a, which is fast for short words.
fn hash(word: &str) -> u64 {
    word.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
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
    use super::{is_duplicate, is_same_passage, of};

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
