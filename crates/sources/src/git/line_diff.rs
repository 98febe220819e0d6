//! Line diffs in bounded time.
//!
//! The diff library cannot be interrupted and takes quadratic time for some inputs. So each call gets at most
//! about [`MAX_DIFF_LINES`] lines. Larger inputs are first split into sections at *anchors*: lines that occur
//! exactly once in each file, if the common beginning and the common end of the files are not counted.

use std::ops::Range;

use imara_diff::{Algorithm, Diff, Hunk, IndentHeuristic, IndentLevel, InternedInput, Token};
use libris_core::Result;

use super::repo::Deadline;

/// The maximum number of lines of one file in one call of the diff library, besides the common lines before and after
/// them (see [`COMMON_MARGIN_LINES`]). The worst input of this size takes less than a second.
const MAX_DIFF_LINES: usize = 16_384;

/// How many lines of the common prefix and of the common suffix are included in the diff. A change among repeated
/// lines can be placed at several positions, and these lines let the library choose the best one.
const COMMON_MARGIN_LINES: usize = 1_000;

/// The number of lines processed between two checks of the deadline.
const DEADLINE_CHECK_LINES: usize = 65_536;

/// The width of a tab when indentations are compared, as in git.
const TAB_WIDTH: u8 = 8;

/// The hunks between two files, in order. A section that is too large and has no anchors becomes one hunk, even if it
/// contains lines that are in both files.
pub(super) fn hunks(input: &InternedInput<&[u8]>, deadline: &Deadline) -> Result<Vec<Hunk>> {
    let mut compare = LineComparison { input, deadline, hunks: Vec::new() };
    for section in sections(&input.before, &input.after, deadline)? {
        compare.section(section)?;
    }
    Ok(compare.hunks)
}

/// A range of lines in each of two files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LinePair {
    before: Range<usize>,
    after: Range<usize>,
}

impl LinePair {
    fn is_small(&self) -> bool {
        self.before.len() <= MAX_DIFF_LINES && self.after.len() <= MAX_DIFF_LINES
    }

    /// Whether the pair is small, apart from a margin of common lines before and after the changed lines.
    fn is_small_without_margins(&self) -> bool {
        self.before.len().max(self.after.len()) <= MAX_DIFF_LINES + 2 * COMMON_MARGIN_LINES
    }

    /// The pair without its common prefix and suffix.
    fn stripped(&self, before: &[Token], after: &[Token]) -> Self {
        let (old, new) = (&before[self.before.clone()], &after[self.after.clone()]);
        let start = old.iter().zip(new).take_while(|(one, other)| one == other).count();
        let (old, new) = (&old[start..], &new[start..]);
        let end = old.iter().rev().zip(new.iter().rev()).take_while(|(one, other)| one == other).count();
        Self {
            before: self.before.start + start..self.before.end - end,
            after: self.after.start + start..self.after.end - end,
        }
    }
}

/// Splits two files into sections to compare; the lines between the sections are equal. Only a section without
/// anchors to split at exceeds the size limit.
fn sections(before: &[Token], after: &[Token], deadline: &Deadline) -> Result<Vec<LinePair>> {
    let whole = LinePair { before: 0..before.len(), after: 0..after.len() };
    let changed = whole.stripped(before, after);
    if changed.is_small() {
        let lead = changed.before.start.min(COMMON_MARGIN_LINES);
        let trail = (before.len() - changed.before.end).min(COMMON_MARGIN_LINES);
        return Ok(vec![LinePair {
            before: changed.before.start - lead..changed.before.end + trail,
            after: changed.after.start - lead..changed.after.end + trail,
        }]);
    }
    let anchors = anchors(&changed, before, after, deadline)?;
    let mut sections = Vec::new();
    let mut section = LinePair {
        before: changed.before.start..changed.before.start,
        after: changed.after.start..changed.after.start,
    };
    let ends = anchors.into_iter().chain([(changed.before.end, changed.after.end)]);
    for (old, new) in ends {
        let longer = LinePair { before: section.before.start..old, after: section.after.start..new };
        if longer.is_small() {
            section = longer;
            continue;
        }
        let rest = LinePair { before: section.before.end..old, after: section.after.end..new };
        sections.push(section);
        match rest.is_small() {
            true => section = rest,
            false => {
                sections.push(rest);
                section = LinePair { before: old..old, after: new..new };
            }
        }
    }
    sections.push(section);
    Ok(sections)
}

/// A longest common subsequence of the lines that occur exactly once in each of the two ranges of `changed`, as pairs
/// of line indexes.
fn anchors(
    changed: &LinePair,
    before: &[Token],
    after: &[Token],
    deadline: &Deadline,
) -> Result<Vec<(usize, usize)>> {
    const ABSENT: u32 = u32::MAX;
    const REPEATED: u32 = u32::MAX - 1;
    let positions = |tokens: &[Token], range: &Range<usize>| {
        let most = tokens[range.clone()].iter().map(|token| token.0 as usize + 1).max().unwrap_or_default();
        let mut positions = vec![ABSENT; most];
        for at in range.clone() {
            let position = &mut positions[tokens[at].0 as usize];
            *position = if *position == ABSENT { at as u32 } else { REPEATED };
        }
        positions
    };
    let (old, new) = (positions(before, &changed.before), positions(after, &changed.after));
    deadline.check()?;
    // Patience sorting over the pairs in the order of the first file: `ends[n]` is the pair with the lowest position
    // in the second file that ends an increasing sequence of length `n + 1`; `previous` links each pair to its
    // predecessor.
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    let mut previous: Vec<u32> = Vec::new();
    let mut ends: Vec<u32> = Vec::new();
    for (count, at) in changed.before.clone().enumerate() {
        if count % DEADLINE_CHECK_LINES == 0 {
            deadline.check()?;
        }
        let token = before[at].0 as usize;
        let position = new.get(token).copied().unwrap_or(ABSENT);
        if old[token] >= REPEATED || position >= REPEATED {
            continue;
        }
        let length = ends.partition_point(|end| pairs[*end as usize].1 < position);
        previous.push(length.checked_sub(1).map_or(ABSENT, |shorter| ends[shorter]));
        let pair = pairs.len() as u32;
        pairs.push((at as u32, position));
        match ends.get_mut(length) {
            Some(end) => *end = pair,
            None => ends.push(pair),
        }
    }
    let mut found = Vec::with_capacity(ends.len());
    let mut next = ends.last().copied().unwrap_or(ABSENT);
    while next != ABSENT {
        let (old, new) = pairs[next as usize];
        found.push((old as usize, new as usize));
        next = previous[next as usize];
    }
    found.reverse();
    Ok(found)
}

/// Collects the hunks of all sections.
struct LineComparison<'a, 'd> {
    input: &'a InternedInput<&'d [u8]>,
    deadline: &'a Deadline,
    hunks: Vec<Hunk>,
}

impl LineComparison<'_, '_> {
    /// Adds the hunks of one section.
    fn section(&mut self, section: LinePair) -> Result<()> {
        self.deadline.check()?;
        let section = match section.is_small_without_margins() {
            true => section,
            false => section.stripped(&self.input.before, &self.input.after),
        };
        let fits = section.is_small_without_margins();
        let LinePair { before, after } = section;
        let at = (before.start as u32, after.start as u32);
        if !fits {
            self.push(at, Hunk { before: 0..before.len() as u32, after: 0..after.len() as u32 });
            return Ok(());
        }
        let (before, after) = (&self.input.before[before], &self.input.after[after]);
        let interner = &self.input.interner;
        let mut diff = Diff::default();
        diff.compute_with(Algorithm::Myers, before, after, interner.num_tokens());
        let indent = |token: Token| IndentLevel::for_ascii_line(interner[token].iter().copied(), TAB_WIDTH);
        diff.postprocess_with(before, after, IndentHeuristic::new(indent));
        for hunk in diff.hunks() {
            self.push(at, hunk);
        }
        Ok(())
    }

    /// Adds a hunk, offset by the start of its section. A hunk adjacent to the last one is merged into it.
    fn push(&mut self, (before, after): (u32, u32), hunk: Hunk) {
        let hunk = Hunk {
            before: hunk.before.start + before..hunk.before.end + before,
            after: hunk.after.start + after..hunk.after.end + after,
        };
        match self.hunks.last_mut() {
            Some(last) if last.before.end == hunk.before.start && last.after.end == hunk.after.start => {
                (last.before.end, last.after.end) = (hunk.before.end, hunk.after.end);
            }
            _ => self.hunks.push(hunk),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{COMMON_MARGIN_LINES, Deadline, MAX_DIFF_LINES, hunks, sections};
    use imara_diff::{Algorithm, Diff, InternedInput, sources::byte_lines};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    fn deadline() -> Deadline {
        Deadline::new(Instant::now(), Duration::from_secs(600), Arc::default())
    }

    /// Pseudorandom numbers below `different`, from a linear congruential generator.
    fn lines(count: usize, different: u64, seed: u64) -> Vec<u64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        (0..count).map(|_| next() % different).collect()
    }

    fn text(lines: &[u64]) -> Vec<u8> {
        lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()
    }

    /// Asserts that the hunks transform the first file into the second, and that all other lines are equal.
    fn check(old: &[u8], new: &[u8]) {
        let input = InternedInput::new(byte_lines(old), byte_lines(new));
        let (mut before, mut after) = (0, 0);
        for hunk in hunks(&input, &deadline()).unwrap() {
            let (start, end) = (hunk.before.start as usize, hunk.after.start as usize);
            assert!(before <= start && after <= end);
            assert!(input.before[before..start] == input.after[after..end]);
            (before, after) = (hunk.before.end as usize, hunk.after.end as usize);
        }
        assert!(input.before[before..] == input.after[after..]);
    }

    #[test]
    fn hunks_lead_from_one_file_to_the_other() {
        for (count, different) in [(10, 3), (1000, 2), (1000, 900), (60_000, 1 << 40), (60_000, 40_000)] {
            let old = lines(count, different, 1);
            let mut new = old.clone();
            new.rotate_left(count / 3);
            new.truncate(count - count / 7);
            new.splice(count / 2..count / 2, lines(count / 9, different, 2));
            check(&text(&old), &text(&new));
            check(&text(&old), &text(&lines(count, different, 3)));
            check(&text(&old), &[]);
            check(&[], &text(&old));
        }
    }

    #[test]
    fn small_files_are_compared_as_a_whole() {
        let old = lines(1500, 700, 1);
        let mut new = old.clone();
        new.rotate_left(40);
        new.splice(600..620, [1, 2, 3]);
        let (old, new) = (text(&old), text(&new));
        let input = InternedInput::new(byte_lines(&old), byte_lines(&new));
        let mut diff = Diff::compute(Algorithm::Myers, &input);
        diff.postprocess_lines(&input);
        assert_eq!(hunks(&input, &deadline()).unwrap(), diff.hunks().collect::<Vec<_>>());
    }

    #[test]
    fn large_files_are_split_where_they_have_lines_in_common() {
        // Each line is unique; every thousandth line differs.
        let old: Vec<_> = (0..200_000).collect();
        let new: Vec<_> =
            old.iter().map(|line| if line % 1000 == 0 { line + (1 << 30) } else { *line }).collect();
        let (old, new) = (text(&old), text(&new));
        let input = InternedInput::new(byte_lines(&old), byte_lines(&new));
        let sections = sections(&input.before, &input.after, &deadline()).unwrap();
        assert!(sections.len() > 10 && sections.iter().all(|section| section.is_small()), "{sections:?}");
        let found = hunks(&input, &deadline()).unwrap();
        assert!(
            found.len() == 200 && found.iter().all(|hunk| hunk.before.len() == 1 && hunk.after.len() == 1)
        );
    }

    #[test]
    fn lines_without_a_counterpart_are_not_searched_for_one() {
        let (old, new) = (text(&lines(4 * MAX_DIFF_LINES, 2, 1)), text(&lines(4 * MAX_DIFF_LINES, 3, 2)));
        let input = InternedInput::new(byte_lines(&old), byte_lines(&new));
        let found = hunks(&input, &deadline()).unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].before.len() > MAX_DIFF_LINES + 2 * COMMON_MARGIN_LINES);
    }

    #[test]
    fn it_ends_when_the_caller_is_gone() {
        let gone = Arc::new(true.into());
        let deadline = Deadline::new(Instant::now(), Duration::from_secs(600), gone);
        let input = InternedInput::new(byte_lines(&b"a\n"[..]), byte_lines(&b"b\n"[..]));
        assert!(hunks(&input, &deadline).is_err());
    }
}
