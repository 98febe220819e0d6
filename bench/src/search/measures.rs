//! Retrieval measures: Recall at 1, 5 and 10, and nDCG at 10.

use anyhow::Result;

use super::engines::{DEPTH, Engine};
use super::questions::Question;

/// Means over questions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Measures {
    pub(crate) questions: usize,
    pub(crate) recall_at_1: f64,
    pub(crate) recall_at_5: f64,
    pub(crate) recall_at_10: f64,
    pub(crate) ndcg_at_10: f64,
}

impl Measures {
    /// Asks an engine all questions.
    pub(crate) fn of<'q>(engine: &dyn Engine, questions: impl Iterator<Item = &'q Question>) -> Result<Self> {
        let mut sum = Self::default();
        for question in questions {
            let paths = engine.answers(&question.text)?;
            let ranks: Vec<_> =
                paths.iter().map(|path| question.answers.contains(path)).take(DEPTH).collect();
            let wanted = question.answers.len() as f64;
            let recall = |depth: usize| {
                ranks.iter().take(depth).filter(|found| **found).count() as f64 / wanted.min(depth as f64)
            };
            let gain = |rank: usize| 1.0 / (rank as f64 + 2.0).log2();
            let gained: f64 =
                ranks.iter().enumerate().filter(|(_, found)| **found).map(|(rank, _)| gain(rank)).sum();
            let ideal: f64 = (0..question.answers.len().min(DEPTH)).map(gain).sum();
            sum.questions += 1;
            sum.recall_at_1 += recall(1);
            sum.recall_at_5 += recall(5);
            sum.recall_at_10 += recall(10);
            sum.ndcg_at_10 += gained / ideal;
        }
        let count = sum.questions.max(1) as f64;
        let mean = |sum: f64| sum / count;
        Ok(Self {
            questions: sum.questions,
            recall_at_1: mean(sum.recall_at_1),
            recall_at_5: mean(sum.recall_at_5),
            recall_at_10: mean(sum.recall_at_10),
            ndcg_at_10: mean(sum.ndcg_at_10),
        })
    }
}
