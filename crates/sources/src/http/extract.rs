//! Extracts the requested fields of the items of a JSON list, without building a tree of the whole document.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::fault::{HttpFault, PointerTarget};
use super::response::ApiResponse;

/// The maximum number of items of one list.
const MAX_ITEMS: usize = 10_000;

/// The maximum number of bytes of text from one list.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// The fields of an item as text, in the requested order; `None` if a field is absent, or not a string, number or
/// boolean.
pub(super) type ItemFields = Vec<Option<String>>;

/// A requested field: its index in [`ItemFields`], and the remaining segments of its JSON pointer.
type WantedField<'p> = (usize, &'p [String]);

/// The items of the list at a JSON pointer, each with the fields at these pointers. The items are the elements of
/// an array, or the members of an object as objects with `key` and `value`.
#[cfg(test)]
pub(super) fn items(json: &str, list: &str, fields: &[&str]) -> Result<Vec<ItemFields>, HttpFault> {
    let mut found = ExtractedItems::default();
    add_items(&mut found, json, list, fields)?;
    Ok(found.items)
}

/// Adds the items of the list in one page to the items of the previous pages.
fn add_items(found: &mut ExtractedItems, json: &str, list: &str, fields: &[&str]) -> Result<(), HttpFault> {
    let (list_path, paths) = (path(list), fields.iter().map(|field| path(field)).collect::<Vec<_>>());
    let wanted: Vec<WantedField<'_>> = paths.iter().map(Vec::as_slice).enumerate().collect();
    let before = found.begin_page();
    let mut json = serde_json::Deserializer::from_str(json);
    let search = ListPathSeed { path: &list_path, wanted: &wanted, found, before };
    search.deserialize(&mut json).and_then(|()| json.end()).map_err(|_| HttpFault::Malformed)?;
    if !found.is_list {
        tracing::warn!(
            pointer = list,
            "an answer has no list where the configuration says there is one; hint: correct `items`"
        );
        let found = if found.is_scalar { PointerTarget::Scalar } else { PointerTarget::Nothing };
        return Err(HttpFault::NoList { pointer: list.to_owned(), found });
    }
    if found.count > found.items.len() {
        let (count, taken) = (found.count, found.items.len());
        tracing::warn!(count, "only the first {taken} items of a list are taken");
    }
    Ok(())
}

/// The items of the list in each page of a response. The limits on items and on their text are for all pages together.
pub(super) fn items_of_pages(
    responses: &[Arc<ApiResponse>],
    list: &str,
    fields: &[&str],
) -> Result<Vec<ItemFields>, HttpFault> {
    let mut found = ExtractedItems::default();
    for api_response in responses {
        add_items(&mut found, api_response.text()?, list, fields)?;
        if found.is_full() {
            tracing::warn!("only the first {} items of a list are taken", found.items.len());
            break;
        }
    }
    Ok(found.items)
}

/// The string, number or boolean at a JSON pointer, as text; `None` if there is none.
pub(super) fn field(json: &str, pointer: &str) -> Result<Option<String>, HttpFault> {
    let path = path(pointer);
    let mut found = vec![None];
    let mut json = serde_json::Deserializer::from_str(json);
    let search = FieldsSeed { wanted: &[(0, &path)], item: &mut found };
    search.deserialize(&mut json).and_then(|()| json.end()).map_err(|_| HttpFault::Malformed)?;
    Ok(found.pop().flatten())
}

/// The segments of a JSON pointer.
fn path(pointer: &str) -> Vec<String> {
    pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect()
}

/// The array index that a segment of a JSON pointer stands for; `None` if it stands for none, as with a leading
/// zero.
fn index(part: &str) -> Option<usize> {
    let plain = part == "0" || !part.starts_with(['0', '+']);
    part.parse().ok().filter(|_| plain)
}

/// The extracted items of a list.
#[derive(Default)]
struct ExtractedItems {
    items: Vec<ItemFields>,
    /// The number of items, including those over the limit.
    count: usize,
    /// The bytes of text in the items.
    text: usize,
    is_list: bool,
    /// Whether the pointer leads to a value that is not a list.
    is_scalar: bool,
}

/// The number of items before a page, and the bytes of text in them.
#[derive(Clone, Copy)]
struct PageStart {
    items: usize,
    text: usize,
}

impl ExtractedItems {
    /// Resets the state that belongs to one page. The items of the previous pages stay.
    fn begin_page(&mut self) -> PageStart {
        (self.count, self.is_list, self.is_scalar) = (self.items.len(), false, false);
        PageStart { items: self.items.len(), text: self.text }
    }

    /// Removes the items found so far in the current page.
    fn forget_page(&mut self, PageStart { items, text }: PageStart) {
        self.items.truncate(items);
        *self = Self { items: std::mem::take(&mut self.items), text, count: items, ..Self::default() };
    }

    fn is_full(&self) -> bool {
        self.items.len() >= MAX_ITEMS || self.text >= MAX_TEXT_BYTES
    }

    fn push(&mut self, item: ItemFields) {
        self.text += item.iter().flatten().map(String::len).sum::<usize>();
        self.items.push(item);
        self.count += 1;
    }
}

/// Descends along the path to a list and extracts its items.
struct ListPathSeed<'a> {
    /// The remaining segments of the path.
    path: &'a [String],
    wanted: &'a [WantedField<'a>],
    found: &'a mut ExtractedItems,
    before: PageStart,
}

impl<'de> DeserializeSeed<'de> for ListPathSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        // If an object has a member twice, the last one wins: the items of the first are removed.
        self.found.forget_page(self.before);
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ListPathSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        let Self { path, wanted, found, before } = self;
        if let Some((part, path)) = path.split_first() {
            let index = index(part);
            let mut at = 0;
            loop {
                let more = match index == Some(at) {
                    true => array.next_element_seed(ListPathSeed { path, wanted, found, before })?.is_some(),
                    false => array.next_element::<IgnoredAny>()?.is_some(),
                };
                if !more {
                    return Ok(());
                }
                at += 1;
            }
        }
        found.is_list = true;
        while !found.is_full() {
            let mut item = vec![None; wanted.len()];
            match array.next_element_seed(FieldsSeed { wanted, item: &mut item })? {
                Some(()) => found.push(item),
                None => return Ok(()),
            }
        }
        while array.next_element::<IgnoredAny>()?.is_some() {
            found.count += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let Self { path, wanted, found, before } = self;
        if let Some((part, path)) = path.split_first() {
            let name = [(0, std::slice::from_ref(part))];
            while let Some(matching) = object.next_key_seed(MemberName(&name))? {
                match matching.is_empty() {
                    true => drop(object.next_value::<IgnoredAny>()?),
                    false => object.next_value_seed(ListPathSeed { path, wanted, found, before })?,
                }
            }
            return Ok(());
        }
        found.is_list = true;
        let value: Vec<WantedField<'_>> = rest(wanted, "value").collect();
        while !found.is_full() {
            let Some(key) = object.next_key::<String>()? else { return Ok(()) };
            let mut item = vec![None; wanted.len()];
            object.next_value_seed(FieldsSeed { wanted: &value, item: &mut item })?;
            for (at, _) in rest(wanted, "key").filter(|(_, path)| path.is_empty()) {
                item[at] = Some(key.clone());
            }
            found.push(item);
        }
        while object.next_key::<IgnoredAny>()?.is_some() {
            object.next_value::<IgnoredAny>()?;
            found.count += 1;
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.scalar()
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.scalar()
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.scalar()
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.scalar()
    }
}

impl ListPathSeed<'_> {
    fn scalar<E>(self) -> Result<(), E> {
        self.found.is_scalar = self.path.is_empty();
        Ok(())
    }
}

/// The requested fields below the member `name`, with the rest of their paths.
fn rest<'p>(wanted: &[WantedField<'p>], name: &str) -> impl Iterator<Item = WantedField<'p>> {
    wanted.iter().filter_map(move |(at, path)| match path.split_first() {
        Some((first, rest)) if first == name => Some((*at, rest)),
        _ => None,
    })
}

/// Deserializes the name of a member, and returns the requested fields below it.
struct MemberName<'a, 'p>(&'a [WantedField<'p>]);

impl<'de, 'p> DeserializeSeed<'de> for MemberName<'_, 'p> {
    type Value = Vec<WantedField<'p>>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'de, 'p> Visitor<'de> for MemberName<'_, 'p> {
    type Value = Vec<WantedField<'p>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(rest(self.0, name).collect())
    }
}

/// Deserializes the requested fields of an item.
struct FieldsSeed<'a, 'p> {
    wanted: &'a [WantedField<'p>],
    item: &'a mut ItemFields,
}

impl FieldsSeed<'_, '_> {
    fn text(self, text: impl Fn() -> Option<String>) {
        for (at, _) in self.wanted.iter().filter(|(_, path)| path.is_empty()) {
            self.item[*at] = text();
        }
    }
}

impl<'de> DeserializeSeed<'de> for FieldsSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        for (at, _) in self.wanted {
            self.item[*at] = None;
        }
        match self.wanted.is_empty() {
            true => json.deserialize_ignored_any(IgnoredAny).map(drop),
            false => json.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for FieldsSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<(), A::Error> {
        let Self { wanted, item } = self;
        for at in 0.. {
            let below = wanted.iter().filter_map(|(slot, path)| match path.split_first() {
                Some((part, rest)) if index(part) == Some(at) => Some((*slot, rest)),
                _ => None,
            });
            let below: Vec<WantedField<'_>> = below.collect();
            if array.next_element_seed(FieldsSeed { wanted: &below, item })?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let Self { wanted, item } = self;
        while let Some(below) = object.next_key_seed(MemberName(wanted))? {
            object.next_value_seed(FieldsSeed { wanted: &below, item })?;
        }
        Ok(())
    }

    fn visit_bool<E>(self, truth: bool) -> Result<(), E> {
        self.text(|| Some(truth.to_string()));
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.text(|| Some(number.to_string()));
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.text(|| Some(number.to_string()));
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.text(|| serde_json::Number::from_f64(number).map(|number| number.to_string()));
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.text(|| Some(text.to_owned()));
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ApiResponse, Arc, HttpFault, MAX_ITEMS, MAX_TEXT_BYTES, PointerTarget, items, items_of_pages,
    };
    use crate::http::list;
    use serde_json::{Value, json};

    fn no_list(pointer: &str, found: PointerTarget) -> HttpFault {
        HttpFault::NoList { pointer: pointer.to_owned(), found }
    }

    #[test]
    fn fields_are_those_at_their_pointers() {
        let json = json!({
            "data": [{ "skipped": [1, 2] }, { "list": [
                { "id": 7, "name": { "en": "one", "a/b": true }, "tags": ["x", { "y": -1.5 }] },
                { "id": "é\n", "name": null, "tags": [] },
                [3, [4]],
                "text",
                1e30,
            ] }],
            "more": { "k1": { "v": "a" }, "k2": 2, "k3": null },
        });
        let fields = [
            "",
            "/id",
            "/name",
            "/name/en",
            "/name/a~1b",
            "/tags/0",
            "/tags/1/y",
            "/1/0",
            "/01",
            "/key",
            "/value",
        ];
        let text = json.to_string();
        for list in ["/data/1/list", "/more", "/data", "", "/data/1/list/0/tags"] {
            let found = items(&text, list, &fields).unwrap();
            let expected: Vec<Value> = match json.pointer(list).unwrap() {
                Value::Array(array) => array.clone(),
                Value::Object(object) => {
                    object.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect()
                }
                _ => unreachable!(),
            };
            let expected: Vec<Vec<_>> =
                expected.iter().map(|item| fields.map(|field| list::text(item, field)).into()).collect();
            assert_eq!(found, expected, "{list}");
        }
    }

    #[test]
    fn the_last_of_duplicate_members_wins() {
        let found =
            items(r#"{"a":[1],"a":[{"b":1,"c":2,"b":3},{"b":1,"b":null}]}"#, "/a", &["/b", "/c"]).unwrap();
        assert_eq!(found, [[Some("3".into()), Some("2".into())], [None, None]]);
        assert_eq!(items(r#"{"a":[1],"a":2}"#, "/a", &[]), Err(no_list("/a", PointerTarget::Scalar)));
    }

    #[test]
    fn other_values_and_malformed_json_are_refused() {
        for (json, list, found) in [
            ("{}", "/a", PointerTarget::Nothing),
            ("1", "", PointerTarget::Scalar),
            (r#"{"a":"b"}"#, "/a", PointerTarget::Scalar),
            (r#"{"a":"b"}"#, "/a/b", PointerTarget::Nothing),
            (r#"{"a":null}"#, "/a", PointerTarget::Scalar),
            ("[[1]]", "/00", PointerTarget::Nothing),
            ("[]", "/a/b", PointerTarget::Nothing),
        ] {
            assert_eq!(items(json, list, &["/b"]), Err(no_list(list, found)), "{json}");
        }
        for json in ["", "[", "[1,]", "[] x", r#"{"a":[}"#, "[1}"] {
            assert_eq!(items(json, "", &["/b"]), Err(HttpFault::Malformed), "{json}");
        }
    }

    #[test]
    fn items_of_all_pages_are_bounded_together() {
        let page = |text: String| Arc::new(ApiResponse::of_text(text));
        let of = |pages: &[Arc<ApiResponse>]| items_of_pages(pages, "/list", &[""]).unwrap();
        let quarter = format!("{{\"list\":[\"{}\"]}}", "x".repeat(MAX_TEXT_BYTES / 4));
        assert_eq!(of(&vec![page(quarter); 10]).len(), 4);
        let half = format!("{{\"list\":[{}0]}}", "1,".repeat(MAX_ITEMS / 2));
        assert_eq!(of(&vec![page(half); 10]).len(), MAX_ITEMS);
        // A repeated name replaces the items of its own page only.
        let twice = page(r#"{"list":[1,2],"list":[3]}"#.into());
        let expected = [["0"], ["3"], ["3"]].map(|texts| texts.map(|text| Some(text.to_owned())));
        assert_eq!(of(&[page(r#"{"list":[0]}"#.into()), twice.clone(), twice]), expected);
        let missing = items_of_pages(&[page(r#"{"list":[0]}"#.into()), page("{}".into())], "/list", &[""]);
        assert_eq!(missing, Err(no_list("/list", PointerTarget::Nothing)));
    }

    #[test]
    fn items_and_their_text_are_bounded() {
        let many = format!("[{}0]", "1,".repeat(MAX_ITEMS + 5));
        assert_eq!(items(&many, "", &[""]).unwrap().len(), MAX_ITEMS);
        let members: Vec<_> = (0..MAX_ITEMS + 5).map(|number| format!("\"{number}\":1")).collect();
        assert_eq!(items(&format!("{{{}}}", members.join(",")), "", &["/key"]).unwrap().len(), MAX_ITEMS);
        let long = format!("[{}0]", format!("\"{}\",", "x".repeat(MAX_TEXT_BYTES / 4)).repeat(10));
        assert_eq!(items(&long, "", &[""]).unwrap().len(), 4);
        // Fields that are not requested do not count towards the limit.
        assert_eq!(items(&long, "", &["/a"]).unwrap().len(), 11);
    }
}
