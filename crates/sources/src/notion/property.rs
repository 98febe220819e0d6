//! Converts page properties to JSON values and to Markdown.

use serde_json::{Map, Value, json};

use super::text::{self, escape, markdown, plain};

/// The title of a page; empty if it has none.
pub(super) fn title(page: &Value) -> String {
    let properties = page["properties"].as_object().into_iter().flat_map(Map::values);
    properties
        .filter(|property| property["type"] == "title")
        .map(|property| plain(&property["title"]))
        .next()
        .unwrap_or_default()
}

/// The properties of a page, each as the simplest equivalent JSON value.
pub(super) fn simple(page: &Value) -> Map<String, Value> {
    let properties = page["properties"].as_object().into_iter().flatten();
    properties.map(|(name, property)| (name.clone(), value(property))).collect()
}

/// The properties of a page without its title, as lines of Markdown.
pub(super) fn lines(page: &Value) -> String {
    let properties = page["properties"].as_object().into_iter().flatten();
    let lines =
        properties.filter(|(_, property)| property["type"] != "title").filter_map(|(name, property)| {
            let text = match property["type"].as_str()? {
                "rich_text" => markdown(&property["rich_text"]),
                "relation" => {
                    let pages =
                        property["relation"].as_array()?.iter().filter_map(|page| page["id"].as_str());
                    pages.map(|id| text::link("page", &text::page(id))).collect::<Vec<_>>().join(", ")
                }
                "url" => {
                    let url = property["url"].as_str()?;
                    text::link(&escape(url), url)
                }
                _ => to_markdown(&value(property))?,
            };
            (!text.is_empty()).then(|| format!("- **{}**: {}", escape(name), text.replace("\\\n", " ")))
        });
    lines.collect::<Vec<_>>().join("\n")
}

/// A simple value as Markdown; `None` for null.
fn to_markdown(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(escape(text)),
        Value::Bool(true) => Some("yes".into()),
        Value::Bool(false) => Some("no".into()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(values) => Some(values.iter().filter_map(to_markdown).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let (start, end) = (map.get("start")?.as_str()?, map.get("end").and_then(Value::as_str));
            Some(end.map_or_else(|| start.to_owned(), |end| format!("{start} – {end}")))
        }
    }
}

/// A property as the simplest equivalent JSON value.
fn value(property: &Value) -> Value {
    let Some(kind) = property["type"].as_str() else { return Value::Null };
    let data = &property[kind];
    let each = |of: fn(&Value) -> Value| {
        data.as_array().map(|list| list.iter().map(of).collect::<Vec<_>>()).unwrap_or_default().into()
    };
    match kind {
        "title" | "rich_text" => plain(data).into(),
        "select" | "status" => data["name"].clone(),
        "multi_select" => each(|option| option["name"].clone()),
        "date" if data["end"].is_null() => data["start"].clone(),
        "date" => json!({ "start": data["start"], "end": data["end"] }),
        "people" => each(person),
        "created_by" | "last_edited_by" => person(data),
        "files" => each(|file| file["name"].clone()),
        "relation" => each(|page| page["id"].as_str().map(text::page).into()),
        "formula" => data[data["type"].as_str().unwrap_or_default()].clone(),
        "rollup" => match data["type"].as_str() {
            Some("array") => data["array"].as_array().into_iter().flatten().map(value).collect(),
            Some(kind) => data[kind].clone(),
            None => Value::Null,
        },
        "unique_id" => match (data["prefix"].as_str(), &data["number"]) {
            (Some(prefix), number) => format!("{prefix}-{number}").into(),
            (None, number) => number.clone(),
        },
        "verification" => data["state"].clone(),
        // Numbers, checkboxes, URLs, addresses and times are simple already.
        _ => data.clone(),
    }
}

fn person(user: &Value) -> Value {
    [&user["name"], &user["id"]].into_iter().find(|name| !name.is_null()).cloned().unwrap_or_default()
}
