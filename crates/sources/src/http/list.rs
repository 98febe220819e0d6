//! Lists in the JSON of an answer: resources to list, and values to offer.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libris_core::uri_template::Variables;
use libris_core::{Completion, Resource, Template, Uri};
use serde_json::{Value, json};

use super::answer::Answer;
use super::config::{Choice, Listing};
use super::endpoint::Endpoint;
use super::fault::Fault;

/// How many items of one list are taken.
const ITEMS: usize = 10_000;

/// For how long the pages after the first are those of the list that the first was made of.
const PAGING: Duration = Duration::from_secs(30);

/// Where a list is.
pub(super) enum Place {
    /// What an endpoint answers.
    Endpoint(Arc<Endpoint>),
    /// What a resource of the same source holds.
    From(libris_core::UriTemplate),
}

/// The resources of a template that are listed.
pub(super) struct Instances {
    pub(super) place: Place,
    listing: Listing,
    made: Mutex<Option<Made>>,
}

/// What was made of the last answer.
struct Made {
    answer: Arc<Answer>,
    listed: Listed,
    /// When it was last asked for.
    at: Instant,
}

/// The resources of a list by their URIs.
pub(super) type Listed = Arc<BTreeMap<Uri, Instance>>;

/// A resource of a list.
pub(super) struct Instance {
    pub(super) resource: Resource,
    /// The values that its template has for it.
    pub(super) values: BTreeMap<String, String>,
}

impl Instances {
    pub(super) fn new(place: Place, listing: Listing) -> Self {
        Self { place, listing, made: Mutex::default() }
    }

    /// The resources that an answer lists.
    pub(super) fn of(
        &self,
        answer: &Arc<Answer>,
        template: &Template,
        endpoint: &Endpoint,
    ) -> Result<Listed, Fault> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let at = Instant::now();
        if let Some(made) = &mut *made
            && Arc::ptr_eq(&made.answer, answer)
        {
            made.at = at;
            return Ok(made.listed.clone());
        }
        let items = items(answer.json()?, &self.listing.items)?;
        let instances = items.iter().filter_map(|item| self.instance(item, template, endpoint));
        let listed: Listed = Arc::new(instances.collect());
        *made = Some(Made { answer: answer.clone(), listed: listed.clone(), at });
        Ok(listed)
    }

    /// What was made a short while ago. All callers are given the same.
    pub(super) fn recent(&self) -> Option<Listed> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.as_ref().filter(|made| made.at.elapsed() < PAGING).map(|made| made.listed.clone())
    }

    fn instance(&self, item: &Value, template: &Template, endpoint: &Endpoint) -> Option<(Uri, Instance)> {
        let Listing { values, name, title, description, .. } = &self.listing;
        let values: Option<BTreeMap<String, String>> =
            values.iter().map(|(name, pointer)| Some((name.clone(), text(item, pointer)?))).collect();
        let values = values?;
        let uri = Uri::parse(&template.uri.expand(&values.iter().collect::<Variables>())).ok()?;
        // Values such as `..` make a URI that stands for something else, or for nothing.
        endpoint.url(template.uri.matches(&uri)?).ok()?;
        let at = |pointer: &Option<String>| pointer.as_ref().and_then(|pointer| text(item, pointer));
        let resource = Resource {
            name: at(name).filter(|name| !name.is_empty()).unwrap_or_else(|| crate::segment::last(&uri)),
            title: at(title),
            description: at(description),
            mime: template.mime.clone(),
            icons: template.icons.clone(),
            annotations: template.annotations.clone(),
            ..Resource::new(uri.clone(), "")
        };
        Some((uri, Instance { resource, values }))
    }

    /// Whether it tells the values of this variable.
    pub(super) fn tells(&self, variable: &str) -> bool {
        self.listing.values.contains_key(variable)
    }
}

/// The items at a place in JSON: the elements of an array, or the pairs of an object, each with its `key` and
/// its `value`.
pub(super) fn items<'a>(json: &'a Value, pointer: &str) -> Result<Vec<Cow<'a, Value>>, Fault> {
    let (count, items): (_, Vec<_>) = match json.pointer(pointer) {
        Some(Value::Array(array)) => (array.len(), array.iter().take(ITEMS).map(Cow::Borrowed).collect()),
        Some(Value::Object(object)) => {
            let pair = |(key, value): (&String, &Value)| Cow::Owned(json!({ "key": key, "value": value }));
            (object.len(), object.iter().take(ITEMS).map(pair).collect())
        }
        _ => {
            tracing::warn!(pointer, "an answer has no list where the configuration says there is one");
            return Err(Fault::Failed);
        }
    };
    if count > ITEMS {
        tracing::warn!(count, "only the first {ITEMS} items of a list are taken");
    }
    Ok(items)
}

/// What is at a place in an item, as text.
pub(super) fn text(item: &Value, pointer: &str) -> Option<String> {
    match item.pointer(pointer)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The values that what was typed may mean, best first: those that begin with it, then those whose name for
/// people does, then those in whose name some word does.
pub(super) fn offer(choices: impl IntoIterator<Item = Choice>, typed: &str, limit: usize) -> Completion {
    let typed = typed.to_lowercase();
    let mut ranks: [Vec<String>; 3] = Default::default();
    let mut seen = HashSet::new();
    for choice in choices {
        let (value, label) = match choice {
            Choice::Plain(value) => (value, String::new()),
            Choice::Labelled { value, label } => (value, label.to_lowercase()),
        };
        let word =
            || label.split(|letter: char| !letter.is_alphanumeric()).any(|word| word.starts_with(&typed));
        let rank = match () {
            () if value.to_lowercase().starts_with(&typed) => 0,
            () if label.starts_with(&typed) => 1,
            () if word() => 2,
            () => continue,
        };
        if seen.insert(value.clone()) {
            ranks[rank].push(value);
        }
    }
    Completion::of(ranks.into_iter().flatten(), "", limit)
}

#[cfg(test)]
mod tests {
    use super::{Choice, offer};

    #[test]
    fn values_are_found_by_their_names_too() {
        let choices = || {
            [
                ("LHR", "Heathrow"),
                ("JFK", "John F. Kennedy International"),
                ("KEN", "Kenema"),
                ("JFK", "again"),
            ]
            .map(|(value, label)| Choice::Labelled { value: value.into(), label: label.into() })
        };
        assert_eq!(offer(choices(), "", 100).values, ["LHR", "JFK", "KEN"]);
        assert_eq!(offer(choices(), "jf", 100).values, ["JFK"]);
        assert_eq!(offer(choices(), "ken", 100).values, ["KEN", "JFK"]);
        assert_eq!(offer(choices(), "John F", 100).values, ["JFK"]);
        assert!(offer(choices(), "x", 100).values.is_empty());
        let many = (0..300).map(|number| Choice::Plain(number.to_string()));
        let offered = offer(many, "", 100);
        assert_eq!((offered.values.len(), offered.total, offered.more), (100, Some(300), true));
    }
}
