//! What becomes of each kind of block.

use serde_json::{Value, json};

use super::{markdown, property, text};

fn plain(content: &str) -> Value {
    json!([{ "type": "text", "plain_text": content, "annotations": {}, "href": null }])
}

fn block(kind: &str, mut data: Value, children: &[Value]) -> Value {
    if let Some(words) = data.as_str() {
        data = json!({ "rich_text": plain(words) });
    }
    json!({
        "object": "block", "id": "0b5f3c1e-0000-4000-8000-00000000002a", "type": kind, kind: data,
        "has_children": !children.is_empty(), "children": children,
    })
}

const ID: &str = "0b5f3c1e-0000-4000-8000-00000000002b";

#[test]
fn each_kind_of_block() {
    let cases = [
        (
            "paragraphs",
            vec![
                block("paragraph", json!("One"), &[]),
                block("paragraph", json!(""), &[]),
                block("paragraph", json!("Two\nlines"), &[]),
            ],
        ),
        (
            "a paragraph with children",
            vec![block("paragraph", json!("Above"), &[block("paragraph", json!("Below"), &[])])],
        ),
        (
            "paragraphs that look like something else",
            ["# a", "> a", "- a", "1. a", "12) a", "* a", "<b>a</b>", "[a](b)", "a|b", "$a$"]
                .map(|words| block("paragraph", json!(words), &[]))
                .to_vec(),
        ),
        (
            "headings",
            vec![
                block("heading_1", json!("One"), &[]),
                block("heading_2", json!("Two"), &[]),
                block("heading_3", json!("Three"), &[block("paragraph", json!("In a toggle"), &[])]),
                block("heading_4", json!("Four"), &[]),
            ],
        ),
        (
            "nested lists",
            vec![
                block(
                    "bulleted_list_item",
                    json!("a"),
                    &[
                        block(
                            "numbered_list_item",
                            json!("b"),
                            &[block(
                                "bulleted_list_item",
                                json!("c"),
                                &[block(
                                    "code",
                                    json!({ "rich_text": plain("x\n\ny"), "language": "rust" }),
                                    &[],
                                )],
                            )],
                        ),
                        block("numbered_list_item", json!("d"), &[block("paragraph", json!("e"), &[])]),
                    ],
                ),
                block("bulleted_list_item", json!("f\ng"), &[]),
                block("numbered_list_item", json!("h"), &[]),
                block("paragraph", json!("i"), &[]),
                block("numbered_list_item", json!("j"), &[]),
            ],
        ),
        (
            "to dos",
            vec![block(
                "to_do",
                json!({ "rich_text": plain("open"), "checked": false }),
                &[block("to_do", json!({ "rich_text": plain("done"), "checked": true }), &[])],
            )],
        ),
        (
            "a toggle",
            vec![block("toggle", json!("More & <more>"), &[block("paragraph", json!("Hidden"), &[])])],
        ),
        (
            "a quote",
            vec![block("quote", json!("One\ntwo"), &[block("bulleted_list_item", json!("three"), &[])])],
        ),
        (
            "a callout",
            vec![block(
                "callout",
                json!({ "rich_text": plain("Mind this"), "icon": { "type": "emoji", "emoji": "💡" } }),
                &[block("paragraph", json!("And this"), &[])],
            )],
        ),
        (
            "code",
            vec![
                block(
                    "code",
                    json!({ "rich_text": plain("let a = 1;\n"), "language": "rust", "caption": plain("A line") }),
                    &[],
                ),
                block("code", json!({ "rich_text": plain("```\n"), "language": "plain text" }), &[]),
            ],
        ),
        ("an equation", vec![block("equation", json!({ "expression": "e=mc^2" }), &[])]),
        ("a divider", vec![block("divider", json!({}), &[])]),
        (
            "a table",
            vec![block(
                "table",
                json!({ "table_width": 2, "has_column_header": true }),
                &[
                    block("table_row", json!({ "cells": [plain("Name"), plain("What|ever")] }), &[]),
                    block("table_row", json!({ "cells": [plain("Ada"), plain("a\nb")] }), &[]),
                    block("table_row", json!({ "cells": [plain("Short")] }), &[]),
                ],
            )],
        ),
        (
            "a table without a header",
            vec![block(
                "table",
                json!({ "table_width": 1, "has_column_header": false }),
                &[block("table_row", json!({ "cells": [plain("a")] }), &[])],
            )],
        ),
        (
            "an empty table",
            vec![block("table", json!({ "table_width": 1 }), &[]), block("paragraph", json!("after"), &[])],
        ),
        (
            "pictures",
            vec![
                block(
                    "image",
                    json!({ "type": "external", "external": { "url": "https://example.com/a (1).png" }, "caption": plain("A [cat]") }),
                    &[],
                ),
                block(
                    "image",
                    json!({ "type": "file", "file": { "url": "https://files.example/x/cat.png?signature=1" }, "caption": [] }),
                    &[],
                ),
            ],
        ),
        (
            "files",
            vec![
                block(
                    "file",
                    json!({ "type": "file", "file": { "url": "https://files.example/x/report.pdf?s=1" }, "name": "report.pdf", "caption": [] }),
                    &[],
                ),
                block(
                    "pdf",
                    json!({ "type": "external", "external": { "url": "https://example.com/a.pdf" }, "caption": plain("Paper") }),
                    &[],
                ),
                block(
                    "video",
                    json!({ "type": "external", "external": { "url": "https://example.com/v" } }),
                    &[],
                ),
                block(
                    "audio",
                    json!({ "type": "external", "external": { "url": "https://example.com/song.mp3" } }),
                    &[],
                ),
            ],
        ),
        (
            "links",
            vec![
                block(
                    "bookmark",
                    json!({ "url": "https://example.com/a", "caption": plain("An example") }),
                    &[],
                ),
                block("embed", json!({ "url": "https://example.com/b" }), &[]),
                block("link_preview", json!({ "url": "https://example.com/c" }), &[]),
                block("bookmark", json!({ "url": "javascript:alert(1)", "caption": plain("click me") }), &[]),
                block("link_to_page", json!({ "type": "page_id", "page_id": ID }), &[]),
                block("link_to_page", json!({ "type": "database_id", "database_id": ID }), &[]),
            ],
        ),
        (
            "children",
            vec![
                block("child_page", json!({ "title": "A *page*" }), &[]),
                block("child_database", json!({ "title": "" }), &[]),
            ],
        ),
        (
            "synced blocks",
            vec![
                block(
                    "synced_block",
                    json!({ "synced_from": null }),
                    &[block("paragraph", json!("Here and there"), &[])],
                ),
                block("synced_block", json!({ "synced_from": { "block_id": ID } }), &[]),
            ],
        ),
        (
            "columns",
            vec![block(
                "column_list",
                json!({}),
                &[
                    block("column", json!({}), &[block("paragraph", json!("Left"), &[])]),
                    block("column", json!({}), &[block("paragraph", json!("Right"), &[])]),
                ],
            )],
        ),
        (
            "parts made from the rest",
            vec![
                block("table_of_contents", json!({}), &[]),
                block("breadcrumb", json!({}), &[]),
                block("paragraph", json!("Text"), &[]),
            ],
        ),
        (
            "meeting notes",
            vec![block(
                "meeting_notes",
                json!({ "title": plain("Weekly") }),
                &[block("paragraph", json!("Said"), &[])],
            )],
        ),
        (
            "blocks of no known kind",
            vec![
                block("unsupported", json!({}), &[]),
                block("hologram", json!({}), &[block("paragraph", json!("Inside"), &[])]),
                json!({ "object": "block" }),
                json!(null),
            ],
        ),
    ];
    let said: String =
        cases.iter().map(|(name, blocks)| format!("=== {name}\n{}\n", markdown::blocks(blocks))).collect();
    insta::assert_snapshot!(said, @r#"
    === paragraphs
    One

    Two\
    lines
    === a paragraph with children
    Above

    Below
    === paragraphs that look like something else
    \# a

    \> a

    \- a

    1\. a

    12\) a

    \* a

    \<b>a\</b>

    \[a\](b)

    a|b

    \$a\$
    === headings
    # One

    ## Two

    ### Three

    In a toggle

    #### Four
    === nested lists
    - a
      1. b
         - c

           ```rust
           x

           y
           ```
      2. d

         e
    - f\
      g

    <!-- -->

    1. h

    i

    1. j
    === to dos
    - [ ] open
      - [x] done
    === a toggle
    <details>
    <summary>More &amp; &lt;more></summary>

    Hidden

    </details>
    === a quote
    > One\
    > two
    >
    > - three
    === a callout
    > 💡 Mind this
    >
    > And this
    === code
    ```rust
    let a = 1;

    ```

    A line

    ````
    ```

    ````
    === an equation
    $$
    e=mc^2
    $$
    === a divider
    ---
    === a table
    | Name | What\|ever |
    | --- | --- |
    | Ada | a<br>b |
    | Short |  |
    === a table without a header
    |  |
    | --- |
    | a |
    === an empty table
    after
    === pictures
    ![A \[cat\]](<https://example.com/a%20(1).png>)

    ![cat.png](https://files.example/x/cat.png?signature=1)
    === files
    [report.pdf](https://files.example/x/report.pdf?s=1)

    [Paper](https://example.com/a.pdf)

    [v](https://example.com/v)

    [song.mp3](https://example.com/song.mp3)
    === links
    [An example](https://example.com/a)

    [https://example.com/b](https://example.com/b)

    [https://example.com/c](https://example.com/c)

    click me

    [Page](notion://pages/0b5f3c1e-0000-4000-8000-00000000002b)

    [Database](notion://databases/0b5f3c1e-0000-4000-8000-00000000002b/rows)
    === children
    [A \*page\*](notion://pages/0b5f3c1e-0000-4000-8000-00000000002a)

    [Untitled](notion://databases/0b5f3c1e-0000-4000-8000-00000000002a/rows)
    === synced blocks
    Here and there
    === columns
    Left

    Right
    === parts made from the rest
    Text
    === meeting notes
    **Weekly**

    Said
    === blocks of no known kind
    <!-- a block that cannot be shown: unsupported -->

    Inside
    "#);
}

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
