//! Lists in JSON responses: the resources of a template, and completions.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use libris_core::uri_template::Variables;
use libris_core::{Completion, Resource, Template, Uri};
use serde_json::Value;

use super::config::{Choice, ListConfig};
use super::endpoint::ApiEndpoint;
use super::extract::{self, ItemFields};
use super::fault::HttpFault;
use super::response::ApiResponse;

/// How long requests for later pages of `resources/list` use the list that was fetched for the first page.
const PAGING_TTL: Duration = Duration::from_secs(30);

/// The location of a list.
pub(super) enum ListSource {
    /// The response of an endpoint.
    Endpoint(Arc<ApiEndpoint>),
    /// The content of a resource of this source.
    From(libris_core::UriTemplate),
}

/// The pagination of a list.
pub(super) struct Pagination {
    /// A JSON pointer to the next URL or cursor; `None` for the `Link` header.
    pub(super) next: Option<String>,
    /// The query parameter for the cursor; `None` if `next` points to a URL.
    pub(super) cursor: Option<String>,
    pub(super) max_pages: usize,
}

impl Pagination {
    /// Validates the configuration.
    pub(super) fn new(next: Option<&str>, cursor: Option<&str>, max_pages: usize) -> Result<Self, String> {
        if cursor.is_some() && next.is_none() {
            return Err("its list has a `cursor` but no `next`; hint: set `next` to the JSON pointer of the next cursor".into());
        }
        Ok(Self { next: next.map(str::to_owned), cursor: cursor.map(str::to_owned), max_pages })
    }
}

/// The listed resources of a template.
pub(super) struct Instances {
    pub(super) list_source: ListSource,
    pub(super) pages: Pagination,
    listing: ListConfig,
    /// The resources that were extracted from the last response.
    derived: DerivedValue<ListedResources>,
}

/// A cached value that was derived from the last response.
pub(super) struct DerivedValue<T>(Mutex<Option<DerivedFrom<T>>>);

struct DerivedFrom<T> {
    /// The pages of the response, to compare their identity. Weak references do not keep them in memory.
    responses: Vec<Weak<ApiResponse>>,
    value: T,
    /// When `get` or `set` last used the value. `recent` does not renew it.
    at: Instant,
}

impl<T> Default for DerivedValue<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> DerivedValue<T> {
    /// The cached value, if it was derived from exactly these pages.
    pub(super) fn get(&self, responses: &[Arc<ApiResponse>]) -> Option<T> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |last: &DerivedFrom<T>| {
            let known = last.responses.iter().map(Weak::as_ptr);
            known.eq(responses.iter().map(Arc::as_ptr))
        };
        let last = last.as_mut().filter(|last| is_same(last))?;
        last.at = Instant::now();
        Some(last.value.clone())
    }

    pub(super) fn set(&self, responses: &[Arc<ApiResponse>], value: T) {
        let responses = responses.iter().map(Arc::downgrade).collect();
        let last = DerivedFrom { responses, value, at: Instant::now() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(last);
    }

    /// The value, if [`get`](Self::get) or [`set`](Self::set) used it within [`PAGING_TTL`].
    fn recent(&self) -> Option<T> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|last| last.at.elapsed() < PAGING_TTL).map(|last| last.value.clone())
    }
}

/// The resources of a list by their URIs.
pub(super) type ListedResources = Arc<BTreeMap<Uri, ListedResource>>;

/// A resource of a list.
pub(super) struct ListedResource {
    pub(super) resource: Resource,
    /// The values of the template's variables.
    pub(super) values: BTreeMap<String, String>,
}

impl Instances {
    pub(super) fn new(list_source: ListSource, pages: Pagination, listing: ListConfig) -> Self {
        Self { list_source, pages, listing, derived: DerivedValue::default() }
    }

    /// The cached resources, if they were extracted from exactly these responses.
    pub(super) fn cached(&self, responses: &[Arc<ApiResponse>]) -> Option<ListedResources> {
        self.derived.get(responses)
    }

    /// The resources of the last response, if they were used within [`PAGING_TTL`]. All callers share them.
    pub(super) fn recent(&self) -> Option<ListedResources> {
        self.derived.recent()
    }

    /// Extracts the resources from the responses, which are the pages of a list.
    pub(super) fn extract(
        &self,
        responses: &[Arc<ApiResponse>],
        template: &Template,
        endpoint: &ApiEndpoint,
    ) -> Result<ListedResources, HttpFault> {
        if let Some(derived) = self.cached(responses) {
            return Ok(derived);
        }
        let ListConfig { items, values, name, title, description, .. } = &self.listing;
        let fields: Vec<&str> = values
            .values()
            .chain([name, title, description].into_iter().flatten())
            .map(String::as_str)
            .collect();
        let items = extract::items_of_pages(responses, items, &fields)?;
        let instances = items.into_iter().filter_map(|item| self.instance(item, template, endpoint));
        let listed: ListedResources = Arc::new(instances.collect());
        self.derived.set(responses, listed.clone());
        Ok(listed)
    }

    /// The resource of an item. The fields of the item are the values of the variables, followed by name, title and
    /// description as far as the configuration has pointers to them. `None` if a value is absent, or if the values give
    /// no valid URI or URL.
    fn instance(
        &self,
        item: ItemFields,
        template: &Template,
        endpoint: &ApiEndpoint,
    ) -> Option<(Uri, ListedResource)> {
        let ListConfig { values, name, title, description, .. } = &self.listing;
        let mut fields = item.into_iter();
        let values: Option<BTreeMap<String, String>> =
            values.keys().zip(fields.by_ref()).map(|(name, value)| Some((name.clone(), value?))).collect();
        let values = values?;
        let uri = Uri::parse(&template.uri.expand(&values.iter().collect::<Variables>()).ok()?).ok()?;
        // A value such as `..` would result in the URI of another resource.
        endpoint.url(template.uri.matches(&uri)?).ok()?;
        let mut at = |pointer: &Option<String>| pointer.as_ref().and_then(|_| fields.next().flatten());
        let (name, title, description) = (at(name), at(title), at(description));
        let resource = Resource {
            name: name.filter(|name| !name.is_empty()).unwrap_or_else(|| crate::segment::last(&uri)),
            title,
            description,
            mime: template.mime.clone(),
            icons: template.icons.clone(),
            annotations: template.annotations.clone(),
            ..Resource::new(uri.clone(), "")
        };
        Some((uri, ListedResource { resource, values }))
    }

    /// Whether the list contains values of this variable.
    pub(super) fn has_values_of(&self, variable: &str) -> bool {
        self.listing.values.contains_key(variable)
    }
}

/// The value at a JSON pointer, as text.
pub(super) fn text(item: &Value, pointer: &str) -> Option<String> {
    match item.pointer(pointer)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The completions of typed text, best first: values that begin with it, then values whose label begins with it,
/// then values whose label has a word that begins with it.
pub(super) fn complete(choices: impl IntoIterator<Item = Choice>, typed: &str, limit: usize) -> Completion {
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
    use super::{Choice, complete};

    #[test]
    fn values_are_found_by_their_labels_too() {
        let choices = || {
            [
                ("LHR", "Heathrow"),
                ("JFK", "John F. Kennedy International"),
                ("KEN", "Kenema"),
                ("JFK", "again"),
            ]
            .map(|(value, label)| Choice::Labelled { value: value.into(), label: label.into() })
        };
        assert_eq!(complete(choices(), "", 100).values, ["LHR", "JFK", "KEN"]);
        assert_eq!(complete(choices(), "jf", 100).values, ["JFK"]);
        assert_eq!(complete(choices(), "ken", 100).values, ["KEN", "JFK"]);
        assert_eq!(complete(choices(), "John F", 100).values, ["JFK"]);
        assert!(complete(choices(), "x", 100).values.is_empty());
        let many = (0..300).map(|number| Choice::Plain(number.to_string()));
        let offered = complete(many, "", 100);
        assert_eq!((offered.values.len(), offered.total, offered.more), (100, Some(300), true));
    }
}
