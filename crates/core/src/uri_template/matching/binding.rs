//! The variables bound during a match.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::uri::percent;
use crate::uri_template::pattern::VariableSlot;
use crate::uri_template::variables::{VariableValue, Variables};

/// The variables bound so far. `text`, `list` and `map` bind one more, and return `None` if its value is not UTF-8 or
/// contradicts an earlier binding.
#[derive(Default)]
pub(super) struct Bindings(BTreeMap<String, BoundVariable>);

struct BoundVariable {
    value: VariableValue,
    /// Whether the value comes from an occurrence with a prefix modifier, so that the whole value may be longer.
    prefix: bool,
}

impl Bindings {
    pub(super) fn text(&mut self, slot: &VariableSlot, raw: &str) -> Option<()> {
        let value = VariableValue::Text(percent::decode(raw)?);
        self.bind(&slot.name, BoundVariable { value, prefix: slot.limit.is_some() })
    }

    pub(super) fn list<'a>(&mut self, slot: &VariableSlot, raw: impl Iterator<Item = &'a str>) -> Option<()> {
        let value = VariableValue::List(raw.map(percent::decode).collect::<Option<_>>()?);
        self.bind(&slot.name, BoundVariable { value, prefix: false })
    }

    pub(super) fn map(&mut self, slot: &VariableSlot, raw: &[(&str, &str)]) -> Option<()> {
        let pair = |&(name, value): &(&str, &str)| Some((percent::decode(name)?, percent::decode(value)?));
        let value = VariableValue::Map(raw.iter().map(pair).collect::<Option<_>>()?);
        self.bind(&slot.name, BoundVariable { value, prefix: false })
    }

    fn bind(&mut self, name: &str, new: BoundVariable) -> Option<()> {
        match self.0.entry(name.into()) {
            Entry::Vacant(entry) => {
                entry.insert(new);
            }
            Entry::Occupied(mut entry) => {
                let old = entry.get_mut();
                if old.prefix && new.extends(old) {
                    *old = new;
                } else if old.value != new.value && !(new.prefix && old.extends(&new)) {
                    return None;
                }
            }
        }
        Some(())
    }

    pub(super) fn into_variables(self) -> Variables {
        self.0.into_iter().map(|(name, bound)| (name, bound.value)).collect()
    }
}

impl BoundVariable {
    fn extends(&self, prefix: &Self) -> bool {
        match (&self.value, &prefix.value) {
            (VariableValue::Text(text), VariableValue::Text(prefix)) => text.starts_with(prefix.as_str()),
            _ => false,
        }
    }
}
