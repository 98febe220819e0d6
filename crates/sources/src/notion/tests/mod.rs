//! Tests of the rendering of each kind of block.

mod words;

use serde_json::{Value, json};

use super::markdown;

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
            [
                "# a",
                "> a",
                "- a",
                "1. a",
                "12) a",
                "* a",
                "<b>a</b>",
                "[a](b)",
                "a|b",
                "$a$",
                "    a",
                "  - a",
                "\t1. a",
                "a\n    # b",
                "&amp; &#38; R&D; a & b;",
            ]
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
                json!({ "rich_text": plain("open\n- still"), "checked": false }),
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

    a

    \- a

    1\. a

    a\
    \# b

    \&amp; \&#38; R\&D; a & b;
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
    - [ ] open\
      \- still
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
