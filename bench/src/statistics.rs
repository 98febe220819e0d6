//! Medians and percentiles.

use std::time::Duration;

/// A percentile (nearest rank); zero if there are no values.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// The median.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    percentile(&values.into_iter().collect::<Vec<_>>(), 0.5)
}

/// Durations as milliseconds.
pub(crate) fn milliseconds(durations: &[Duration]) -> Vec<f64> {
    durations.iter().map(|duration| duration.as_secs_f64() * 1e3).collect()
}

#[cfg(test)]
mod tests {
    use super::{median, percentile};

    #[test]
    fn ranks_are_those_of_the_nearest_value() {
        let values: Vec<_> = (1..=100).map(f64::from).rev().collect();
        assert_eq!(percentile(&values, 0.5), 50.0);
        assert_eq!(percentile(&values, 0.99), 99.0);
        assert_eq!(percentile(&values, 1.0), 100.0);
        assert_eq!(percentile(&values, 0.0), 1.0);
        assert_eq!(percentile(&[], 0.5), 0.0);
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
    }
}
