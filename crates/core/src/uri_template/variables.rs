//! The values of template variables.

use std::collections::BTreeMap;

/// The values of template variables, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, VariableValue>);

impl Variables {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// The value of a variable, if it is a string.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            VariableValue::Text(text) => Some(text),
            VariableValue::List(_) | VariableValue::Map(_) => None,
        }
    }

    /// The value of a variable.
    pub fn value(&self, name: &str) -> Option<&VariableValue> {
        self.0.get(name)
    }

    /// Sets a value; returns the replaced one.
    pub fn insert(
        &mut self,
        name: impl Into<String>,
        value: impl Into<VariableValue>,
    ) -> Option<VariableValue> {
        self.0.insert(name.into(), value.into())
    }

    /// The names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &VariableValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// How many variables have a value.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no variable has a value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<String>, V: Into<VariableValue>> FromIterator<(N, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(values: I) -> Self {
        Self(values.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl<N: Into<String>, V: Into<VariableValue>> Extend<(N, V)> for Variables {
    fn extend<I: IntoIterator<Item = (N, V)>>(&mut self, values: I) {
        self.0.extend(values.into_iter().map(|(name, value)| (name.into(), value.into())));
    }
}

impl IntoIterator for Variables {
    type Item = (String, VariableValue);
    type IntoIter = std::collections::btree_map::IntoIter<String, VariableValue>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VariableValue {
    /// A string.
    Text(String),
    /// A list of strings. An empty list counts as undefined.
    List(Vec<String>),
    /// A map, in insertion order. An empty map counts as undefined.
    Map(Vec<(String, String)>),
}

impl From<&str> for VariableValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<&String> for VariableValue {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<String> for VariableValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<String>> for VariableValue {
    fn from(list: Vec<String>) -> Self {
        Self::List(list)
    }
}

impl From<Vec<(String, String)>> for VariableValue {
    fn from(map: Vec<(String, String)>) -> Self {
        Self::Map(map)
    }
}
