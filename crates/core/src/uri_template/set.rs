//! A set of templates, indexed by literal prefix.

use super::pattern::PatternPart;
use super::{UriTemplate, Variables};
use crate::Uri;

/// A map from templates to values, sorted by the literal prefix of the templates.
///
/// A lookup finds, by binary search, the templates whose literal prefix is a prefix of the URI, and matches the URI
/// only against these.
pub struct TemplateSet<T> {
    entries: Vec<TemplateEntry<T>>,
}

struct TemplateEntry<T> {
    prefix: String,
    /// The index of the nearest preceding entry whose prefix is a prefix of this entry's prefix.
    shorter: Option<usize>,
    template: UriTemplate,
    value: T,
}

impl<T> TemplateSet<T> {
    /// Builds a set. Among equally specific templates, the first takes precedence.
    pub fn new(templates: impl IntoIterator<Item = (UriTemplate, T)>) -> Self {
        let mut entries: Vec<_> = templates
            .into_iter()
            .map(|(template, value)| {
                let prefix = match template.0.pattern.parts.first() {
                    Some(PatternPart::Literal(literal)) => literal.clone(),
                    _ => String::new(),
                };
                TemplateEntry { prefix, shorter: None, template, value }
            })
            .collect();
        entries.sort_by(|one, other| one.prefix.cmp(&other.prefix));
        for at in 1..entries.len() {
            // If the prefix of an earlier entry is a prefix of this entry's prefix, the prefixes of all entries in
            // between begin with it too. So the nearest such entry is the preceding entry, or `shorter` leads from
            // there to it.
            let mut before = Some(at - 1);
            while let Some(other) = before
                && !entries[at].prefix.starts_with(&entries[other].prefix)
            {
                before = entries[other].shorter;
            }
            entries[at].shorter = before;
        }
        Self { entries }
    }

    /// The most specific template that matches a URI, with its value and the values of its variables.
    pub fn closest(&self, uri: &Uri) -> Option<(&UriTemplate, &T, Variables)> {
        let text = uri.as_str();
        let mut next = self.entries.partition_point(|entry| *entry.prefix <= *text).checked_sub(1);
        let mut found: Option<(&TemplateEntry<T>, Variables)> = None;
        while let Some(at) = next {
            let entry = &self.entries[at];
            next = entry.shorter;
            // `>=`, because entries are visited from the last to the first, and among equally specific ones the first takes
            // precedence.
            if text.starts_with(&entry.prefix)
                && found
                    .as_ref()
                    .is_none_or(|(best, _)| entry.template.specificity() >= best.template.specificity())
                && let Some(variables) = entry.template.matches(uri)
            {
                found = Some((entry, variables));
            }
        }
        found.map(|(entry, variables)| (&entry.template, &entry.value, variables))
    }

    /// The value of this template.
    pub fn get(&self, template: &UriTemplate) -> Option<&T> {
        let prefix = match template.0.pattern.parts.first() {
            Some(PatternPart::Literal(literal)) => literal.as_str(),
            _ => "",
        };
        let first = self.entries.partition_point(|entry| *entry.prefix < *prefix);
        let same = self.entries[first..].iter().take_while(|entry| entry.prefix == prefix);
        same.into_iter().find(|entry| entry.template == *template).map(|entry| &entry.value)
    }

    /// All templates and values, sorted by literal prefix.
    pub fn iter(&self) -> impl Iterator<Item = (&UriTemplate, &T)> {
        self.entries.iter().map(|entry| (&entry.template, &entry.value))
    }
}

#[cfg(test)]
mod tests {
    use super::TemplateSet;
    use crate::{Uri, UriTemplate};

    fn set(texts: &[&str]) -> TemplateSet<usize> {
        let parse = |(at, text): (usize, &&str)| (UriTemplate::parse(text).unwrap(), at);
        TemplateSet::new(texts.iter().enumerate().map(parse))
    }

    #[test]
    fn finds_the_same_template_as_a_linear_search() {
        let texts = [
            "db://{table}",
            "db://users/{id}",
            "db://users/{id}/profile",
            "db://users/{+rest}",
            "db://us{rest}",
            "db://users/{name}",
            "{scheme}://users/7",
            "db://zebra/{id}",
            "db://users{?q}",
        ];
        let set = set(&texts);
        let uris = [
            "db://users/7",
            "db://users/7/profile",
            "db://users",
            "db://zebra/1",
            "db://usual",
            "x://users/7",
            "a:b",
        ];
        for uri in uris {
            let uri = Uri::parse(uri).unwrap();
            let tried = texts
                .iter()
                .enumerate()
                .map(|(at, text)| (at, UriTemplate::parse(text).unwrap()))
                .filter(|(_, template)| template.matches(&uri).is_some())
                .max_by_key(|(at, template)| (template.specificity(), std::cmp::Reverse(*at)));
            let found = set.closest(&uri).map(|(template, _, _)| template.clone());
            assert_eq!(
                found.as_ref().map(UriTemplate::specificity),
                tried.as_ref().map(|(_, template)| template.specificity()),
                "{uri}"
            );
        }
        assert_eq!(set.closest(&Uri::parse("db://users/7").unwrap()).map(|(_, at, _)| *at), Some(1));
    }

    #[test]
    fn matches_few_of_many_templates() {
        let texts: Vec<_> = (0..1000).map(|number| format!("db://table{number:04}/{{id}}")).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let set = set(&texts);
        assert!(set.entries.iter().all(|entry| entry.shorter.is_none()));
        let uri = Uri::parse("db://table0500/x").unwrap();
        assert_eq!(set.closest(&uri).map(|(_, at, _)| *at), Some(500));
        assert_eq!(set.get(&UriTemplate::parse("db://table0007/{id}").unwrap()), Some(&7));
        assert_eq!(set.get(&UriTemplate::parse("db://table0007/{no}").unwrap()), None);
        assert_eq!(set.iter().count(), 1000);
    }
}
