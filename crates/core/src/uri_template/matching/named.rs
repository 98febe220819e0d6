//! Expressions whose values have names, in any order.

use super::binding::Bindings;
use super::text::{Text, Window};
use super::{Row, filled, work};
use crate::uri_template::parse::Operator;
use crate::uri_template::pattern::{Place, Places};

pub(super) struct Named<'a> {
    places: &'a Places,
    /// For each place, what a value that begins here leads to.
    values: Vec<Row>,
    /// What the rest of a foreign name leads to, for the place that takes those.
    names: Row,
    /// What can be had from here if no parameter has been read yet.
    fresh: Row,
    /// The same if one has.
    going: Row,
}

/// How a parameter can be read.
enum Parameter {
    /// The name of a place, `=`, and a value that begins here.
    Value(usize, usize),
    /// The name of a place that ends here, and no value.
    Bare(usize, usize),
    /// A name that no place has.
    Foreign(usize),
}

impl<'a> Named<'a> {
    pub(super) fn new(places: &'a Places, text: &Text<'_>, next: &Row) -> Self {
        let count = places.places.len();
        let mut plan = Self {
            places,
            values: vec![vec![0; next.len()]; count],
            names: vec![0; next.len()],
            fresh: next.clone(),
            going: next.clone(),
        };
        let mut windows: Vec<_> = places.places.iter().map(Window::new).collect();
        for at in text.boundaries().rev() {
            if text.is(at, places.operator.separator()) {
                plan.going[at] = plan.going[at].max(plan.best(text, at + 1));
            }
            if places.operator.first().is_some_and(|mark| text.is(at, mark)) {
                plan.fresh[at] = plan.fresh[at].max(plan.best(text, at + 1));
            }
            for ((place, row), window) in places.places.iter().zip(&mut plan.values).zip(&mut windows) {
                row[at] = window.push(plan.going[at], text.after(at, place.span).is_some());
            }
            if let Some(foreign) = plan.foreign() {
                let more = match text.after(at, places.places[foreign].span) {
                    Some(after) if text.is(at, b'=') => plan.values[foreign][after],
                    Some(after) => plan.names[after],
                    None => 0,
                };
                plan.names[at] = more.max(plan.going[at]);
            }
        }
        plan
    }

    pub(super) fn entry(&self) -> &Row {
        &self.fresh
    }

    /// The place that takes names no place has: the first with `*`.
    fn foreign(&self) -> Option<usize> {
        self.places.places.iter().position(|place| place.explode)
    }

    /// The ways to read a parameter that begins here, the preferred first, with what each leads to.
    fn readings(&self, text: &Text<'_>, at: usize) -> impl Iterator<Item = (Parameter, u16)> {
        let named = self.places.places.iter().enumerate().flat_map(move |(index, place)| {
            work::count(place.key.len());
            let end = text.has(at, &place.key).then_some(at + place.key.len());
            let value = end
                .filter(|&end| text.is(end, b'='))
                .map(|end| (Parameter::Value(index, end + 1), self.values[index][end + 1]));
            let bare = end
                .filter(|&end| self.may_be_bare(text, end))
                .map(|end| (Parameter::Bare(index, end), self.going[end]));
            [value, bare].into_iter().flatten()
        });
        let foreign = self.foreign().map(|index| (Parameter::Foreign(index), self.names[at]));
        named.chain(foreign)
    }

    /// Whether a name without a value may end here. Only `{;var}` makes such names; in a query they are
    /// accepted where nothing else can be meant, so that `a` is never seen in `ab=1`.
    fn may_be_bare(&self, text: &Text<'_>, end: usize) -> bool {
        self.places.operator == Operator::Parameter
            || end == text.len()
            || text.is(end, b'#')
            || text.is(end, self.places.operator.separator())
    }

    fn best(&self, text: &Text<'_>, at: usize) -> u16 {
        self.readings(text, at).map(|(_, score)| filled(score)).max().unwrap_or(0)
    }

    pub(super) fn walk(
        &self,
        text: &Text<'_>,
        next: &Row,
        mut at: usize,
        bindings: &mut Bindings,
    ) -> Option<usize> {
        let mut mark = self.places.operator.first()?;
        let mut score = self.fresh[at];
        let mut pairs = vec![Vec::new(); self.places.places.len()];
        while text.is(at, mark) {
            let Some((reading, rest)) =
                self.readings(text, at + 1).find(|&(_, rest)| rest > 0 && filled(rest) == score)
            else {
                break;
            };
            let (index, name, value);
            (index, name, value, at) = match reading {
                Parameter::Value(index, start) => {
                    let end = text.longest(&self.places.places[index], start, &self.going, rest)?;
                    (index, text.slice(at + 1, start - 1), text.slice(start, end), end)
                }
                Parameter::Bare(index, end) => (index, text.slice(at + 1, end), "", end),
                Parameter::Foreign(index) => {
                    let (name, value, end) = self.walk_foreign(index, text, at + 1, rest)?;
                    (index, name, value, end)
                }
            };
            pairs[index].push((name, value));
            mark = self.places.operator.separator();
            score = rest;
        }
        debug_assert_eq!(next[at], score);
        for (place, pairs) in self.places.places.iter().zip(pairs) {
            bind(place, &pairs, bindings)?;
        }
        Some(at)
    }

    /// The name, the value and the end of a parameter with a name that no place has.
    fn walk_foreign<'t>(
        &self,
        index: usize,
        text: &Text<'t>,
        start: usize,
        score: u16,
    ) -> Option<(&'t str, &'t str, usize)> {
        let place = &self.places.places[index];
        let mut at = start;
        while let Some(after) = text.after(at, place.span) {
            work::count(1);
            if text.is(at, b'=') {
                if self.values[index][after] != score {
                    break;
                }
                let end = text.longest(place, after, &self.going, score)?;
                return Some((text.slice(start, at), text.slice(after, end), end));
            }
            if self.names[after] != score {
                break;
            }
            at = after;
        }
        Some((text.slice(start, at), "", at))
    }
}

fn bind(place: &Place, pairs: &[(&str, &str)], bindings: &mut Bindings) -> Option<()> {
    if !place.explode {
        return pairs.iter().try_for_each(|(_, value)| bindings.text(place, value));
    }
    if pairs.is_empty() {
        Some(())
    } else if pairs.iter().all(|(name, _)| *name == place.key) {
        bindings.list(place, pairs.iter().map(|(_, value)| *value))
    } else {
        bindings.map(place, pairs)
    }
}
