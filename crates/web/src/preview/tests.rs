//! Tests of the parts and kinds of previews.

use std::net::IpAddr;
use std::sync::mpsc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use libris_wire::{Budget, Client};

use super::{
    CONCURRENT, Extent, MAX_HTML, MAX_RENDERED, PART_BYTES, PartStart, Pictures, Preview, PreviewPart,
    PreviewRead, as_text, in_background, picture_uris, range, render, within,
};

fn preview(contents: &str, source: bool) -> Preview {
    part(contents, PreviewPart { start: PartStart::default(), extent: Extent::Whole, source })
}

fn part(contents: &str, part: PreviewPart) -> Preview {
    let result: PreviewRead = serde_json::from_str(&format!("{{\"contents\":{contents}}}")).unwrap();
    render(result, &mut Pictures::default(), part)
}

/// All parts of a content, one after the other, as a source with or without ranges returns them.
fn parts(uri: &str, data: &[u8], extent: Extent, source: bool) -> Vec<Preview> {
    let mut start = PartStart::default();
    let mut parts = Vec::new();
    loop {
        let (blob, meta) = match extent {
            Extent::Whole => (data, "{}".to_owned()),
            Extent::Range => {
                let first = usize::try_from(start.byte).unwrap();
                let last = data.len().min(first + usize::try_from(PART_BYTES).unwrap());
                (&data[first..last], format!("{{\"dev.libris/totalBytes\":{}}}", data.len()))
            }
        };
        let blob = STANDARD.encode(blob);
        let content = format!("[{{\"uri\":\"{uri}\",\"blob\":\"{blob}\",\"_meta\":{meta}}}]");
        parts.push(part(&content, PreviewPart { start, extent, source }));
        match parts.last().unwrap().rest {
            Some(rest) => start = rest,
            None => return parts,
        }
    }
}

#[test]
fn the_html_of_a_short_text_is_bounded() {
    let markdown = |text: &str| {
        preview(&format!("[{{\"uri\":\"file:///a.md\",\"text\":{}}}]", serde_json::json!(text)), false)
    };
    // Each letter would become an element.
    let quotations = markdown(&">".repeat(MAX_RENDERED));
    assert!(quotations.html.len() < MAX_HTML + 1_000 && quotations.cut, "{}", quotations.html.len());
    let started = quotations.html.matches("<blockquote>").count();
    assert!(started > 1_000 && quotations.html.matches("</blockquote>").count() == started);
    let rules = markdown(&"#\n".repeat(MAX_RENDERED / 2));
    assert!(rules.html.len() < MAX_HTML + 1_000 && rules.cut, "{}", rules.html.len());
    // Source is complete, but its end has no colours.
    let numbers = "1 ".repeat(MAX_RENDERED / 2 - 32);
    let source = format!("[{{\"uri\":\"file:///a.rs\",\"text\":\"{numbers}\"}}]");
    for shown in [preview(&source, false), markdown(&format!("```rust\n{numbers}\n```\n"))] {
        assert!(shown.html.len() < MAX_HTML + MAX_RENDERED + (64 << 10), "{}", shown.html.len());
    }
}

#[test]
fn the_parts_of_a_text_show_each_line_once_with_its_number() {
    let lines: String = (1..=40_000).map(|line| format!("line {line} ä\n")).collect();
    for extent in [Extent::Whole, Extent::Range] {
        let html: String = parts("file:///a.log", lines.as_bytes(), extent, false)
            .into_iter()
            .map(|part| part.html)
            .collect();
        assert_eq!(html.matches("class=\"l\"").count(), 40_000, "{extent:?}");
        for line in [1, 6_000, 6_001, 20_000, 40_000] {
            let shown = format!("<span class=\"l\" data-n=\"{line}\">line {line} ä</span>\n");
            assert_eq!(html.matches(&shown).count(), 1, "{extent:?} {line}");
        }
    }
}

#[test]
fn the_parts_of_a_long_line_are_the_line() {
    let line = "0123456789".repeat(150_000);
    for extent in [Extent::Whole, Extent::Range] {
        let parts = parts("file:///a.txt", line.as_bytes(), extent, true);
        let html: String = parts.iter().map(|part| part.html.as_str()).collect();
        let digits = html.split('>').filter_map(|piece| piece.split_once('<')).map(|(text, _)| text.trim());
        assert_eq!(digits.collect::<String>(), line, "{extent:?}");
        assert_eq!(html.matches("data-n=\"1\"").count(), parts.len(), "{extent:?}");
    }
}

#[test]
fn the_parts_of_binary_data_show_each_byte_at_its_offset() {
    let mut data = vec![0; 600_000];
    (data[20_000], data[599_999]) = (0xab, 0xcd);
    for extent in [Extent::Whole, Extent::Range] {
        let parts = parts("file:///a.bin", &data, extent, false);
        let html: String = parts.iter().map(|part| part.html.as_str()).collect();
        assert!(html.contains("00004e20</span>  ab "), "{extent:?}");
        assert!(
            html.contains("000927b0</span>  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 cd "),
            "{extent:?}"
        );
        assert_eq!(html.matches("class=\"s\"").count(), data.len() / 16, "{extent:?}");
    }
}

#[test]
fn the_parts_of_a_table_show_each_row_once() {
    let rows: String = (1..=30_000).map(|row| format!("{row},\"a\n{row}\"\n")).collect();
    let table = format!("number,text\n{rows}");
    for extent in [Extent::Whole, Extent::Range] {
        let parts = parts("file:///a.csv", table.as_bytes(), extent, false);
        let html: String = parts.iter().map(|part| part.html.as_str()).collect();
        assert_eq!(html.matches("<td class=\"num\">").count(), 30_000, "{extent:?}");
        assert_eq!(html.matches("<th>").count(), 2, "{extent:?}");
    }
}

#[test]
fn a_content_is_rendered_by_its_kind_or_as_source() {
    let text = r##"[{"uri":"file:///a.md","mimeType":"text/markdown","text":"# A"}]"##;
    assert_eq!(preview(text, false).kind, "markdown");
    let source = preview(text, true);
    assert_eq!(source.kind, "source");
    assert!(source.html.contains("# A"), "{}", source.html);
    let broken = r#"[{"uri":"file:///a.json","mimeType":"application/json","text":"{"}]"#;
    assert_eq!(preview(broken, false).kind, "source");
    assert_eq!(preview(r#"[{"uri":"a:b","blob":"AAEC/w=="}]"#, false).kind, "hex");
    assert!(preview(r#"[{"uri":"a:b","text":""}]"#, false).html.contains("Empty"));
}

#[test]
fn a_range_has_the_start_of_the_next() {
    let content = r#"[{"uri":"a:b","blob":"w6TDpMM=","_meta":{"dev.libris/next":"a:b?bytes=5-9","dev.libris/totalBytes":10}}]"#;
    let start = PartStart { byte: 2, lines_before: 3 };
    let shown = part(content, PreviewPart { start, extent: Extent::Range, source: false });
    // The last character is incomplete.
    assert!(shown.html.contains("data-n=\"4\">ää<"), "{}", shown.html);
    assert_eq!(shown.rest, Some(PartStart { byte: 6, lines_before: 3 }));
    assert_eq!((shown.next, shown.total_bytes), (None, Some(10)));
    // A page of the source is no part of ours.
    let page = r#"[{"uri":"a:b","text":"x","_meta":{"dev.libris/next":"a:b?page=2"}}]"#;
    let page = preview(page, false);
    assert_eq!((page.next.as_deref(), page.rest), (Some("a:b?page=2"), None));
}

#[test]
fn a_range_is_added_unless_there_is_one() {
    assert_eq!(range("file:///a", 0).as_deref(), Some("file:///a?bytes=0-262143"));
    assert_eq!(range("db://a?x=1", 5).as_deref(), Some("db://a?x=1&bytes=5-262148"));
    assert_eq!(range("file:///a?lines=1-2", 0), None);
    assert_eq!(range("file:///a", u64::MAX), None);
}

#[test]
fn texts_end_at_a_character() {
    assert_eq!(within("aä", 2), ("a", false));
    assert_eq!(as_text(b"a\xff\xffbbbb"), None);
    assert_eq!(as_text(b"a\0"), None);
    assert_eq!(as_text("aä".as_bytes()), Some("aä"));
}

#[test]
fn all_parts_of_a_resource_share_the_limit_of_text() {
    let text = "a line\n".repeat(100_000);
    let content = format!(r#"{{"uri":"file:///a.log","text":{}}}"#, serde_json::Value::from(text));
    let shown = preview(&format!("[{content},{content},{content}]"), false);
    assert!(shown.cut);
    assert!(shown.html.matches("a line").count() * "a line\n".len() <= MAX_RENDERED);
    let heading = format!("# {}\n", "a".repeat(61));
    let headings = serde_json::Value::from(heading.repeat(12_000));
    let markdown = format!(r#"{{"uri":"file:///a.md","text":{headings}}}"#);
    let shown = preview(&format!("[{markdown},{markdown},{markdown}]"), false);
    assert!(shown.cut);
    assert_eq!(shown.html.matches("<h1").count(), MAX_RENDERED / heading.len());
}

#[test]
fn each_picture_is_read_once() {
    let text = format!("{}{}", "![](a.png)".repeat(50_000), "![](b.png)");
    let content = serde_json::json!({ "contents": [{ "uri": "file:///d/x.md", "text": text }] });
    let result: PreviewRead = serde_json::from_value(content).unwrap();
    assert_eq!(picture_uris(&result), ["file:///d/a.png", "file:///d/b.png"]);
}

#[tokio::test]
async fn work_that_nobody_waits_for_still_counts() {
    let budget = Budget::new(CONCURRENT);
    let client = |number: u8| Client::at(IpAddr::from([127, 0, 0, number]));
    let (begun, begins) = mpsc::channel();
    let mut ends = Vec::new();
    for _ in 1..CONCURRENT {
        let (end, ended) = mpsc::channel::<()>();
        ends.push(end);
        let begun = begun.clone();
        let (budget, work) = (budget.clone(), move || {
            begun.send(()).unwrap();
            _ = ended.recv();
        });
        let waiting = tokio::spawn(async move { in_background(&budget, client(1), work).await });
        let begins = &begins;
        while begins.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        // As if the client had disconnected.
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
    }
    assert_eq!(budget.used(), CONCURRENT - 1);
    // The same client has to wait, and another one has not.
    let more = in_background(&budget, client(1), || "more");
    assert!(tokio::time::timeout(Duration::from_millis(50), more).await.is_err());
    assert_eq!(in_background(&budget, client(2), || "other").await.ok(), Some("other"));
    ends.clear();
    assert_eq!(in_background(&budget, client(1), || "more").await.ok(), Some("more"));
}
