//! Tests of the rendering of rich text and properties.

use serde_json::{Value, json};

use super::super::{property, text};
use super::{ID, plain};

#[test]
fn text_has_marks() {
    let run = |content: &str, annotations: Value| json!({ "type": "text", "plain_text": content, "annotations": annotations, "href": null });
    let to = |content: &str, href: &str| json!({ "type": "text", "plain_text": content, "annotations": {}, "href": href });
    let mention = |kind: &str, data: Value, content: &str| json!({ "type": "mention", "mention": { "type": kind, kind: data }, "plain_text": content, "annotations": {}, "href": null });
    let cases = [
        ("bold", json!([run("a ", json!({ "bold": true })), run("b", json!({}))])),
        ("adjacent", json!([run("a", json!({ "bold": true })), run("b", json!({ "bold": true }))])),
        ("italic", json!([run(" a", json!({ "italic": true }))])),
        ("strikethrough", json!([run("a", json!({ "strikethrough": true }))])),
        ("underline", json!([run("a", json!({ "underline": true }))])),
        (
            "code",
            json!([run("a*b", json!({ "code": true })), run("`", json!({ "code": true, "bold": true }))]),
        ),
        (
            "all",
            json!([run(
                "a",
                json!({ "bold": true, "italic": true, "code": true, "strikethrough": true, "underline": true, "color": "red" })
            )]),
        ),
        ("blank", json!([run(" ", json!({ "bold": true }))])),
        ("link", json!([to("a", "https://example.com/(b)")])),
        ("link after a shout", json!([run("Wow!", json!({})), to("a", "https://example.com")])),
        ("own link", json!([to("a", "/0b5f3c1e00004000800000000000002b?pvs=4#x")])),
        ("bad link", json!([to("a", "javascript:alert(1)")])),
        (
            "equation",
            json!([{ "type": "equation", "equation": { "expression": "a_b" }, "plain_text": "a_b" }]),
        ),
        ("user", json!([mention("user", json!({ "id": ID }), "@Ada")])),
        ("page", json!([mention("page", json!({ "id": ID }), "Roadmap")])),
        ("database", json!([mention("database", json!({ "id": ID }), "Tasks")])),
        ("date", json!([mention("date", json!({ "start": "2024-01-01" }), "2024-01-01")])),
        ("nothing", json!(null)),
        ("odd", json!([null, 7, {}])),
    ];
    let said: String =
        cases.iter().map(|(name, rich)| format!("{name}: «{}»\n", text::markdown(rich))).collect();
    insta::assert_snapshot!(said, @r#"
    bold: «**a** b»
    adjacent: «**ab**»
    italic: « *a*»
    strikethrough: «~~a~~»
    underline: «<u>a</u>»
    code: «`a*b`**`` ` ``**»
    all: «<u>~~***`a`***~~</u>»
    blank: « »
    link: «[a](<https://example.com/(b)>)»
    link after a shout: «Wow\![a](https://example.com)»
    own link: «[a](notion://pages/0b5f3c1e-0000-4000-8000-00000000002b)»
    bad link: «a»
    equation: «$a_b$»
    user: «@Ada»
    page: «[Roadmap](notion://pages/0b5f3c1e-0000-4000-8000-00000000002b)»
    database: «[Tasks](notion://databases/0b5f3c1e-0000-4000-8000-00000000002b/rows)»
    date: «2024-01-01»
    nothing: «»
    odd: «»
    "#);
}

#[test]
fn properties_are_simple_values() {
    let page = json!({ "properties": {
        "Name": { "type": "title", "title": plain("Ada") },
        "Notes": { "type": "rich_text", "rich_text": plain("a *b*") },
        "Age": { "type": "number", "number": 36 },
        "Team": { "type": "select", "select": { "name": "Core" } },
        "None": { "type": "select", "select": null },
        "State": { "type": "status", "status": { "name": "Done" } },
        "Tags": { "type": "multi_select", "multi_select": [{ "name": "a" }, { "name": "b" }] },
        "Day": { "type": "date", "date": { "start": "2024-01-01", "end": null } },
        "Days": { "type": "date", "date": { "start": "2024-01-01", "end": "2024-01-03" } },
        "Who": { "type": "people", "people": [{ "name": "Bo" }, { "id": "x" }] },
        "Files": { "type": "files", "files": [{ "name": "a.png" }] },
        "Done": { "type": "checkbox", "checkbox": true },
        "Link": { "type": "url", "url": "https://example.com" },
        "Mail": { "type": "email", "email": "a@example.com" },
        "Phone": { "type": "phone_number", "phone_number": null },
        "Sum": { "type": "formula", "formula": { "type": "number", "number": 3 } },
        "Others": { "type": "relation", "relation": [{ "id": ID }] },
        "Rolled": { "type": "rollup", "rollup": { "type": "array", "array": [{ "type": "number", "number": 1 }] } },
        "Count": { "type": "rollup", "rollup": { "type": "number", "number": 2 } },
        "Made": { "type": "created_time", "created_time": "2024-01-01T00:00:00.000Z" },
        "By": { "type": "created_by", "created_by": { "id": "y" } },
        "Number": { "type": "unique_id", "unique_id": { "prefix": "T", "number": 7 } },
        "Sure": { "type": "verification", "verification": { "state": "verified" } },
        "Button": { "type": "button", "button": {} },
        "Odd": { "type": "hologram" },
    } });
    assert_eq!(property::title(&page), "Ada");
    insta::assert_json_snapshot!(property::simple(&page), @r#"
    {
      "Age": 36,
      "Button": {},
      "By": "y",
      "Count": 2,
      "Day": "2024-01-01",
      "Days": {
        "end": "2024-01-03",
        "start": "2024-01-01"
      },
      "Done": true,
      "Files": [
        "a.png"
      ],
      "Link": "https://example.com",
      "Made": "2024-01-01T00:00:00.000Z",
      "Mail": "a@example.com",
      "Name": "Ada",
      "None": null,
      "Notes": "a *b*",
      "Number": "T-7",
      "Odd": null,
      "Others": [
        "notion://pages/0b5f3c1e-0000-4000-8000-00000000002b"
      ],
      "Phone": null,
      "Rolled": [
        1
      ],
      "State": "Done",
      "Sum": 3,
      "Sure": "verified",
      "Tags": [
        "a",
        "b"
      ],
      "Team": "Core",
      "Who": [
        "Bo",
        "x"
      ]
    }
    "#);
    insta::assert_snapshot!(property::lines(&page), @r#"
    - **Age**: 36
    - **By**: y
    - **Count**: 2
    - **Day**: 2024-01-01
    - **Days**: 2024-01-01 – 2024-01-03
    - **Done**: yes
    - **Files**: a.png
    - **Link**: [https://example.com](https://example.com)
    - **Made**: 2024-01-01T00:00:00.000Z
    - **Mail**: a@example.com
    - **Notes**: a \*b\*
    - **Number**: T-7
    - **Others**: [page](notion://pages/0b5f3c1e-0000-4000-8000-00000000002b)
    - **Rolled**: 1
    - **State**: Done
    - **Sum**: 3
    - **Sure**: verified
    - **Tags**: a, b
    - **Team**: Core
    - **Who**: Bo, x
    "#);
}
