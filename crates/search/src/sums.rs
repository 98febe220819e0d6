//! Sums of the weights of one query word, by the number of a resource or a section.

/// A word with postings for more than one in this many documents is frequent.
const FREQUENT: usize = 16;

/// The sums of a word. The ones of a frequent word are computed and read without any branch. Of other words, the numbers
/// with a sum are listed, so that the others need not be read.
#[derive(Default)]
pub(crate) struct WeightSums {
    sums: Vec<f32>,
    /// The numbers whose sum is not 0, unless the word is frequent.
    touched: Vec<u32>,
    is_frequent: bool,
}

impl WeightSums {
    /// Sums of 0 for the numbers below `count`.
    pub(crate) fn new(count: usize) -> Self {
        Self { sums: vec![0.0; count], ..Self::default() }
    }

    /// Sets all sums to 0, for a word with this many postings among `documents`.
    pub(crate) fn start(&mut self, postings: usize, documents: usize) {
        match self.is_frequent {
            true => self.sums.fill(0.0),
            false => self.touched.drain(..).for_each(|at| self.sums[at as usize] = 0.0),
        }
        self.is_frequent = postings > documents / FREQUENT;
    }

    /// Adds a weight, which is above 0.
    #[inline]
    pub(crate) fn add(&mut self, at: u32, weight: f32) {
        let sum = &mut self.sums[at as usize];
        if !self.is_frequent && *sum == 0.0 {
            self.touched.push(at);
        }
        *sum += weight;
    }

    /// How many sums are not 0.
    pub(crate) fn count(&self) -> usize {
        match self.is_frequent {
            true => self.sums.iter().filter(|sum| **sum != 0.0).count(),
            false => self.touched.len(),
        }
    }

    /// The numbers whose sums are not 0.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        match self.is_frequent {
            true => (0_u32..).zip(&self.sums).filter(|(_, sum)| **sum != 0.0).map(|(at, _)| at).collect(),
            false => self.touched.clone(),
        }
    }

    /// Adds to each score the part of the word with BM25's saturation: at most `rarity * (saturation + 1)`.
    pub(crate) fn add_to(&self, scores: &mut [f32], rarity: f32, saturation: f32) {
        let part = |sum: f32| rarity * sum * (saturation + 1.0) / (saturation + sum);
        match self.is_frequent {
            true => scores.iter_mut().zip(&self.sums).for_each(|(score, sum)| *score += part(*sum)),
            false => self.touched.iter().for_each(|at| scores[*at as usize] += part(self.sums[*at as usize])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WeightSums;

    #[test]
    fn frequent_words_have_the_same_sums() {
        let weights = [(3, 1.0), (7, 0.5), (3, 0.25), (0, 2.0)];
        let mut sums = WeightSums::new(8);
        // Each start forgets the word before it.
        for postings in [1000, 4, 1000, 1000, 4, 4] {
            sums.start(postings, 100);
            weights.into_iter().for_each(|(at, weight)| sums.add(at, weight));
            let mut numbers = sums.numbers();
            numbers.sort_unstable();
            assert_eq!((sums.count(), numbers), (3, vec![0, 3, 7]), "{postings} postings");
            let mut scores = [1.0; 8];
            sums.add_to(&mut scores, 2.0, 1.0);
            let part = |sum: f32| 1.0 + 2.0 * sum * 2.0 / (1.0 + sum);
            assert_eq!(scores, [part(2.0), 1.0, 1.0, part(1.25), 1.0, 1.0, 1.0, part(0.5)]);
        }
    }
}
