//! Renders JSON as a tree that can be folded, or as a table if it is a list of records.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::table;
use crate::html;

/// The maximum number of values that are shown.
const MAX_VALUES: usize = 5_000;

/// The maximum number of characters of a string that are shown.
const MAX_TEXT: usize = 1_000;

/// The tree is initially unfolded to this depth.
const OPEN_DEPTH: usize = 2;

/// A value with more members is initially folded, unless it is the root.
const OPEN_MEMBERS: usize = 50;

/// A JSON value. Unlike `serde_json::Value`, it keeps the order of the members of objects.
pub(super) enum JsonNode {
    /// The CSS class and the text of a string, number, Boolean or null.
    Scalar(&'static str, String),
    List(Vec<JsonNode>),
    Object(Vec<(String, JsonNode)>),
}

/// Renders a JSON text, and returns whether something was left out; `None` if it is not valid.
pub(super) fn render(out: &mut String, text: &str) -> Option<bool> {
    let node: JsonNode = serde_json::from_str(text).ok()?;
    if let JsonNode::List(items) = &node
        && let Some(is_cut) = records(out, items)
    {
        return Some(is_cut);
    }
    let mut limit = ValueLimit { left: MAX_VALUES, is_exceeded: false };
    out.push_str("<div class=\"tree\">");
    push_node(out, None, &node, 0, &mut limit);
    out.push_str("</div>");
    Some(limit.is_exceeded)
}

/// Renders a table if all items are objects with the same members and without nested values; returns whether something
/// was left out. Otherwise returns `None` and writes nothing.
fn records(out: &mut String, items: &[JsonNode]) -> Option<bool> {
    let JsonNode::Object(first) = items.first()? else { return None };
    let names: Vec<&str> = first.iter().map(|(name, _)| &**name).collect();
    let mut rows = vec![names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
    for item in items {
        let JsonNode::Object(members) = item else { return None };
        let is_alike = members.len() == names.len()
            && members
                .iter()
                .zip(&names)
                .all(|((name, value), known)| name == known && matches!(value, JsonNode::Scalar(..)));
        if !is_alike {
            return None;
        }
        let cell = |(_, value): &(String, JsonNode)| match value {
            JsonNode::Scalar("null", _) => String::new(),
            JsonNode::Scalar(_, text) => text.clone(),
            _ => String::new(),
        };
        rows.push(members.iter().map(cell).collect());
    }
    (!names.is_empty()).then(|| table::render_rows(out, &rows, table::FirstRow::Head))
}

/// How many more values may be shown, and whether there were more than that.
struct ValueLimit {
    left: usize,
    is_exceeded: bool,
}

/// Appends a value and those below it.
fn push_node(out: &mut String, key: Option<&str>, node: &JsonNode, depth: usize, limit: &mut ValueLimit) {
    if limit.left == 0 {
        limit.is_exceeded = true;
        return;
    }
    limit.left -= 1;
    let (count, brackets) = match node {
        JsonNode::Scalar(class, text) => {
            out.push_str("<div class=\"leaf\">");
            push_key(out, key);
            let (shown, is_all) = html::beginning(text, MAX_TEXT);
            out.push_str(&format!("<span class=\"{class}\">"));
            html::push_text(out, shown);
            out.push_str(if is_all { "</span></div>" } else { "…</span></div>" });
            return;
        }
        JsonNode::List(items) => (items.len(), ('[', ']')),
        JsonNode::Object(members) => (members.len(), ('{', '}')),
    };
    let open = if depth < OPEN_DEPTH && count <= OPEN_MEMBERS || depth == 0 { " open" } else { "" };
    out.push_str(&format!("<details{open}><summary>"));
    push_key(out, key);
    out.push_str(&format!("<span class=\"count\">{} {count} {}</span></summary>", brackets.0, brackets.1));
    match node {
        JsonNode::Scalar(..) => {}
        JsonNode::List(items) => {
            for (index, item) in items.iter().enumerate() {
                push_node(out, Some(&index.to_string()), item, depth + 1, limit);
            }
        }
        JsonNode::Object(members) => {
            for (name, value) in members {
                push_node(out, Some(name), value, depth + 1, limit);
            }
        }
    }
    if limit.is_exceeded {
        out.push_str("<div class=\"more\">…</div>");
    }
    out.push_str("</details>");
}

fn push_key(out: &mut String, key: Option<&str>) {
    if let Some(key) = key {
        out.push_str("<span class=\"key\">");
        html::push_text(out, html::beginning(key, MAX_TEXT).0);
        out.push_str("</span> ");
    }
}

impl<'de> Deserialize<'de> for JsonNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonNodeVisitor)
    }
}

struct JsonNodeVisitor;

impl<'de> Visitor<'de> for JsonNodeVisitor {
    type Value = JsonNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<JsonNode, E> {
        Ok(JsonNode::Scalar("null", "null".to_owned()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonNode, E> {
        Ok(JsonNode::Scalar("bool", value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonNode, E> {
        Ok(JsonNode::Scalar("num", value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonNode, E> {
        Ok(JsonNode::Scalar("num", value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<JsonNode, E> {
        Ok(JsonNode::Scalar("num", value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<JsonNode, E> {
        Ok(JsonNode::Scalar("str", value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<JsonNode, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(JsonNode::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<JsonNode, A::Error> {
        let mut object = Vec::new();
        while let Some(member) = members.next_entry()? {
            object.push(member);
        }
        Ok(JsonNode::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_VALUES, render};

    fn rendered(text: &str) -> (Option<bool>, String) {
        let mut out = String::new();
        let cut = render(&mut out, text);
        (cut, out)
    }

    #[test]
    fn a_tree_folds_and_keeps_the_order_of_members() {
        let (cut, out) = rendered(r#"{"b":[1,null],"a":"<x>"}"#);
        assert_eq!(cut, Some(false));
        assert_eq!(
            out,
            "<div class=\"tree\"><details open><summary><span class=\"count\">{ 2 }</span></summary>\
             <details open><summary><span class=\"key\">b</span> <span class=\"count\">[ 2 ]</span></summary>\
             <div class=\"leaf\"><span class=\"key\">0</span> <span class=\"num\">1</span></div>\
             <div class=\"leaf\"><span class=\"key\">1</span> <span class=\"null\">null</span></div></details>\
             <div class=\"leaf\"><span class=\"key\">a</span> <span class=\"str\">&lt;x&gt;</span></div></details></div>"
        );
    }

    #[test]
    fn records_are_a_table() {
        let (_, out) = rendered(r#"[{"id":1,"name":"a"},{"id":2,"name":null}]"#);
        assert!(out.starts_with("<div class=\"table\""), "{out}");
        assert!(rendered(r#"[{"id":1},{"id":[2]}]"#).1.starts_with("<div class=\"tree\""));
    }

    #[test]
    fn a_large_value_is_cut_and_an_invalid_one_is_refused() {
        let many = format!("[{}]", vec!["1"; MAX_VALUES * 2].join(","));
        let (cut, out) = rendered(&many);
        assert_eq!(cut, Some(true));
        assert_eq!(out.matches("class=\"leaf\"").count(), MAX_VALUES - 1);
        // With the list, these are as many values as may be shown.
        let most = format!("[{}]", vec!["1"; MAX_VALUES - 1].join(","));
        let (cut, out) = rendered(&most);
        assert_eq!(cut, Some(false));
        assert_eq!(out.matches("class=\"leaf\"").count(), MAX_VALUES - 1);
        assert!(!out.contains("class=\"more\""));
        assert_eq!(rendered("{").0, None);
        assert_eq!(rendered(&"[".repeat(100_000)).0, None);
    }
}
