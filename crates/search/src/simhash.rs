//! Near-duplicate detection: texts that differ in few words have fingerprints that differ in few bits.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// How many words of a text the fingerprint covers.
const MAX_WORDS: usize = 4000;

/// The most bits in which the fingerprints of near-duplicates differ.
pub(crate) const MAX_DISTANCE: u32 = 3;

/// The shortest text in words that counts: short texts look alike by chance.
const MIN_WORDS: usize = 20;

/// The fingerprint of a text; 0 for a text that is too short.
pub(crate) fn of(text: &str) -> u64 {
    let mut weights = [0_i32; 64];
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut shingle: [&str; 3] = [""; 3];
    let mut count = 0;
    for word in words.take(MAX_WORDS) {
        shingle.rotate_left(1);
        shingle[2] = word;
        count += 1;
        if count < 3 {
            continue;
        }
        let mut hasher = DefaultHasher::new();
        shingle.hash(&mut hasher);
        let hash = hasher.finish();
        for (bit, weight) in weights.iter_mut().enumerate() {
            *weight += if hash >> bit & 1 == 1 { 1 } else { -1 };
        }
    }
    if count < MIN_WORDS {
        return 0;
    }
    weights.iter().enumerate().fold(0, |hash, (bit, weight)| hash | u64::from(*weight > 0) << bit)
}

/// Whether two fingerprints are those of near-duplicates.
pub(crate) fn is_duplicate(one: u64, other: u64) -> bool {
    one != 0 && other != 0 && (one ^ other).count_ones() <= MAX_DISTANCE
}

#[cfg(test)]
mod tests {
    use super::{is_duplicate, of};

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
