//! The text of small documents of every format.

mod samples;

use libris_documents::extract::{ExtractFailure, ExtractOptions, HtmlContent, extract};
use libris_documents::{ExtractedText, ExtractionLimits, Format};
use samples::{docx, epub, numbered_pdf, odt, package, pdf, pptx, xlsx};

fn options(format: Format) -> ExtractOptions {
    ExtractOptions { format, content: HtmlContent::Main, decoded: false }
}

fn extracted(format: Format, data: &[u8]) -> ExtractedText {
    extract(data, options(format), &ExtractionLimits::default()).unwrap()
}

/// The sections of a document, joined by a line.
fn text(format: Format, data: &[u8]) -> String {
    let sections = extracted(format, data).sections;
    sections.iter().map(|section| &*section.text).collect::<Vec<_>>().join("\n=====\n")
}

#[test]
fn pdf_pages() {
    assert_eq!(
        text(Format::Pdf, &numbered_pdf(2)),
        "Page number 1 of the report with a second line of words\n=====\n\
         Page number 2 of the report with a second line of words"
    );
}

#[test]
fn a_scanned_pdf_says_that_it_has_no_text() {
    let scan = extracted(Format::Pdf, &pdf(&[String::new(), String::new()]));
    assert_eq!(scan.sections.len(), 2);
    assert_eq!(
        scan.left_out,
        ["everything: 2 pages without text, as in a scan; text recognition is not available"]
    );
}

#[test]
fn word_headings_lists_tables_links_and_notes() {
    let item = |level: u8, text: &str| {
        format!(
            "<w:p><w:pPr><w:numPr><w:ilvl w:val=\"{level}\"/><w:numId w:val=\"7\"/></w:numPr></w:pPr>\
             <w:r><w:t>{text}</w:t></w:r></w:p>"
        )
    };
    let cell = |text: &str| format!("<w:tc><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:tc>");
    let body = format!(
        "<w:p><w:pPr><w:pStyle w:val=\"H1\"/></w:pPr><w:r><w:t>Report</w:t></w:r></w:p>\
         <w:p><w:r><w:t xml:space=\"preserve\">See </w:t></w:r><w:hyperlink r:id=\"rId9\"><w:r><w:t>this</w:t></w:r>\
         </w:hyperlink><w:r><w:t>.</w:t><w:footnoteReference w:id=\"2\"/></w:r><w:del><w:r><w:delText>gone</w:delText>\
         </w:r></w:del></w:p>{}{}{}<w:tbl><w:tr>{}{}</w:tr><w:tr>{}{}</w:tr></w:tbl>\
         <w:p><w:r><w:drawing><a:blip xmlns:a=\"a\"/></w:drawing></w:r></w:p>",
        item(0, "first"),
        item(1, "inner"),
        item(0, "second"),
        cell("a"),
        cell("b|c"),
        cell("1"),
        cell("2"),
    );
    let document = extracted(Format::Docx, &docx(&body));
    assert_eq!(
        document.sections[0].text,
        "# Report\n\nSee [this](http://a.example/).[^1]\n\n1. first\n  - inner\n2. second\n\n\
         | a | b\\|c |\n|---|---|\n| 1 | 2 |\n\n[^1]: A note."
    );
    assert_eq!(document.left_out, ["1 image"]);
}

#[test]
fn spreadsheets_keep_cells_in_their_places() {
    let book =
        xlsx(&[("Numbers", &[&["name", "value"], &["pi", "3.14159"], &["big", "1000000"]]), ("Empty", &[])]);
    let sheets = extracted(Format::Xlsx, &book).sections;
    assert_eq!(sheets[0].name.as_deref(), Some("Numbers"));
    assert_eq!(sheets[0].text, "| name | value |\n|---|---|\n| pi | 3.14159 |\n| big | 1000000 |");
    assert_eq!((sheets[1].name.as_deref(), &*sheets[1].text), (Some("Empty"), ""));
    // Some programs write spaces around numbers.
    assert_eq!(text(Format::Xlsx, &xlsx(&[("A", &[&["n"], &[" 41"]])])), "| n |\n|---|\n| 41 |");
}

#[test]
fn slides_have_titles_and_lists() {
    assert_eq!(
        text(Format::Pptx, &pptx(&[("One", "a", "b"), ("Two", "c", "d")])),
        "## One\n\n- a\n- b\n=====\n## Two\n\n- c\n- d"
    );
}

#[test]
fn open_document_texts() {
    let body = "<text:h text:outline-level=\"2\">Head</text:h><text:p>One<text:s text:c=\"2\"/>two \
                <text:a xlink:href=\"http://a.example/\">link</text:a><text:note><text:note-citation>1</text:note-citation>\
                <text:note-body><text:p>Note</text:p></text:note-body></text:note></text:p>\
                <text:list><text:list-item><text:p>x</text:p><text:list><text:list-item><text:p>y</text:p>\
                </text:list-item></text:list></text:list-item></text:list>\
                <table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell>\
                <table:table-cell table:number-columns-repeated=\"2\"><text:p>b</text:p></table:table-cell>\
                </table:table-row></table:table>";
    assert_eq!(
        text(Format::Odt, &odt(body)),
        "## Head\n\nOne  two [link](http://a.example/)[^1]\n\n- x\n  - y\n\n| a | b | b |\n|---|---|---|\n\n[^1]: Note"
    );
    let encrypted = package(&[
        ("META-INF/manifest.xml", "<m><file-entry><encryption-data/></file-entry></m>"),
        ("content.xml", "x"),
    ]);
    let error = extract(&encrypted, options(Format::Odt), &ExtractionLimits::default()).unwrap_err();
    assert_eq!(error, ExtractFailure::Encrypted);
}

#[test]
fn books_have_chapters() {
    let book = extracted(
        Format::Epub,
        &epub(&[
            "<html><head><title/></head><body><h1>Start</h1><p>Once.</p></body></html>",
            "<html><body><h2>End</h2><p>Done.</p><img src='a'/></body></html>",
        ]),
    );
    let names: Vec<_> = book.sections.iter().map(|section| section.name.as_deref()).collect();
    assert_eq!(names, [Some("Start"), Some("End")]);
    assert_eq!(book.sections[0].text, "# Start\n\nOnce.");
    assert_eq!((book.title.as_deref(), &*book.left_out), (Some("The book"), &["1 image".to_owned()][..]));
}

#[test]
fn a_book_is_encrypted_if_a_chapter_is_even_inside_an_extra_folder() {
    let book = |root: &str, encrypted: &str| {
        let encryption = format!(
            "<encryption><EncryptedData><CipherData><CipherReference URI=\"{encrypted}\"/></CipherData>\
             </EncryptedData></encryption>"
        );
        let members = [
            ("META-INF/container.xml", "<container><rootfile full-path=\"OEBPS/content.opf\"/></container>"),
            ("META-INF/encryption.xml", &*encryption),
            (
                "OEBPS/content.opf",
                "<package><manifest><item id=\"a\" href=\"text%201.xhtml\"/></manifest>\
                 <spine><itemref idref=\"a\"/></spine></package>",
            ),
            ("OEBPS/text 1.xhtml", "<html><body><p>Once.</p></body></html>"),
        ];
        let members = members.map(|(name, data)| (format!("{root}{name}"), data));
        let members: Vec<_> = members.iter().map(|(name, data)| (&**name, *data)).collect();
        let book = extract(&package(&members), options(Format::Epub), &ExtractionLimits::default());
        book.map(|book| book.sections[0].text.clone())
    };
    for root in ["", "book/"] {
        assert_eq!(book(root, "OEBPS/text%201.xhtml"), Err(ExtractFailure::Encrypted), "{root}");
        assert_eq!(book(root, "OEBPS/font.otf").as_deref(), Ok("Once."), "{root}");
    }
}

#[test]
fn html_without_its_navigation_or_with_it() {
    let page = "<html><head><title> A  page </title><style>p{}</style></head><body><nav><a href='/'>Home</a></nav>\
                <div><main><h1>Title</h1><p>Some <a href='b.html'>text</a> that is long enough to be the content.</p>\
                <table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table>\
                <ul><li>x</li></ul></main></div><footer>Imprint</footer><script>alert()</script></body></html>";
    let main = extracted(Format::Html, page.as_bytes());
    assert_eq!(main.title.as_deref(), Some("A page"));
    let text = &main.sections[0].text;
    assert!(text.starts_with("# Title\n\nSome [text](b.html) that is long enough"), "{text}");
    assert!(text.contains("| k | v |") && text.contains("x"), "{text}");
    assert!(!text.contains("Home") && !text.contains("Imprint") && !text.contains("alert"), "{text}");
    let all = ExtractOptions { content: HtmlContent::All, ..options(Format::Html) };
    let all = extract(page.as_bytes(), all, &ExtractionLimits::default()).unwrap().sections[0].text.clone();
    assert!(all.contains("Home") && all.contains("Imprint") && !all.contains("alert"), "{all}");
}

#[test]
fn a_declared_charset_counts_unless_the_source_decoded_the_page() {
    let page = "<meta charset=iso-8859-5><body><p>\u{40}</p>";
    let data: Vec<u8> = page.bytes().map(|byte| if byte == 0x40 { 0xb0 } else { byte }).collect();
    assert_eq!(text(Format::Html, &data), "А");
    let decoded = ExtractOptions { decoded: true, ..options(Format::Html) };
    let page = "<meta charset=iso-8859-5><body><p>é</p>";
    assert_eq!(
        extract(page.as_bytes(), decoded, &ExtractionLimits::default()).unwrap().sections[0].text,
        "é"
    );
}

#[test]
fn notebooks_have_cells_with_outputs() {
    let notebook = r##"{"cells":[{"cell_type":"markdown","source":["# Title\n","text"]},
        {"cell_type":"code","source":"1+1","outputs":[{"output_type":"execute_result","data":{"text/plain":["2"]}},
        {"output_type":"display_data","data":{"image/png":"aaaa"}},
        {"output_type":"error","ename":"E","evalue":"bad"}]}],"metadata":{"language_info":{"name":"python"}}}"##;
    let notebook = extracted(Format::Ipynb, notebook.as_bytes());
    assert_eq!(notebook.sections[0].text, "# Title\ntext");
    assert_eq!(notebook.sections[1].text, "```python\n1+1\n```\n\n```\n2\n```\n\n```\nE: bad\n```");
    assert_eq!(notebook.left_out, ["1 image"]);
}

#[test]
fn mails_have_headers_bodies_and_attachments() {
    let mail = "From: Ada <ada@a.example>\r\nTo: bob@b.example\r\nSubject: =?utf-8?q?Caf=C3=A9?=\r\n\
                Date: Tue, 1 Apr 2025 10:00:00 +0000\r\nMIME-Version: 1.0\r\n\
                Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/html\r\n\r\n\
                <p>Hello <b>Bob</b></p>\r\n--x\r\nContent-Type: application/pdf\r\n\
                Content-Disposition: attachment; filename=a.pdf\r\n\r\nPDF\r\n--x--\r\n";
    let one = extracted(Format::Eml, mail.as_bytes());
    assert_eq!(
        one.sections[0].text,
        "# Café\n\nFrom: Ada <ada@a.example>  \nTo: bob@b.example  \nDate: 2025-04-01T10:00:00Z\n\nHello **Bob**"
    );
    assert_eq!(one.left_out, ["the attachment `a.pdf` of 3 bytes"]);
    let mailbox = "From a@b Tue Apr  1 10:00:00 2025\nSubject: One\n\nFirst\n\nFrom a@b Tue Apr  1 10:00:00 2025\nSubject: Two\n\nSecond\n";
    assert_eq!(text(Format::Mbox, mailbox.as_bytes()), "# One\n\nFirst\n=====\n# Two\n\nSecond");
}

#[test]
fn delimited_values_are_tables() {
    assert_eq!(text(Format::Csv, b"a;b\n1;\"x|y\"\n"), "| a | b |\n|---|---|\n| 1 | x\\|y |");
    assert_eq!(text(Format::Tsv, b"a\tb,c\n1\n"), "| a | b,c |\n|---|---|\n| 1 |  |");
}

#[test]
fn truncated_and_damaged_documents_are_errors_or_partial_texts_and_no_panics() {
    let samples = [
        (Format::Pdf, numbered_pdf(3)),
        (Format::Docx, docx("<w:p><w:r><w:t>text</w:t></w:r></w:p>")),
        (Format::Xlsx, xlsx(&[("A", &[&["a"]])])),
        (Format::Pptx, pptx(&[("a", "b", "c")])),
        (Format::Odt, odt("<text:p>text</text:p>")),
        (Format::Epub, epub(&["<p>text</p>"])),
        (Format::Ipynb, br#"{"cells":[]}"#.to_vec()),
    ];
    for (format, data) in samples {
        for end in (0..data.len()).step_by(data.len() / 23 + 1) {
            let _ = extract(&data[..end], options(format), &ExtractionLimits::default());
        }
        for at in (0..data.len()).step_by(data.len() / 23 + 1) {
            let mut broken = data.clone();
            broken[at] ^= 0x55;
            let _ = extract(&broken, options(format), &ExtractionLimits::default());
        }
        assert!(extract(b"", options(format), &ExtractionLimits::default()).is_err(), "{format:?}");
    }
}

#[test]
fn a_bomb_is_refused_when_it_exceeds_the_limit() {
    let limits = ExtractionLimits { expanded: 1 << 20, ..ExtractionLimits::default() };
    let bomb = docx(&format!("<w:p><w:r><w:t>{}</w:t></w:r></w:p>", " ".repeat(4 << 20)));
    assert!(bomb.len() < 100_000);
    let error = extract(&bomb, options(Format::Docx), &limits).unwrap_err();
    assert_eq!(error, ExtractFailure::Expands(1 << 20));
}
