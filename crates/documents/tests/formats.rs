//! The text of small documents of every format.

#[path = "formats/left_out.rs"]
mod left_out;
mod samples;

use std::io::Read as _;

use libris_documents::extract::{ExtractFailure, ExtractOptions, HtmlContent, extract};
use libris_documents::{ExtractedText, ExtractionLimits, Format};
use samples::{docx, epub, numbered_pdf, odt, package, pdf, pdf_line, pdf_page, pptx, xlsx};

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
    let scan = extracted(Format::Pdf, &pdf_page("q 612 0 0 792 0 0 cm /Im Do Q", ""));
    assert_eq!(scan.sections.len(), 1);
    assert_eq!(
        scan.left_out,
        ["everything: 1 page without text, as in a scan; text recognition is not available"]
    );
    let blank = extracted(Format::Pdf, &pdf(&[String::new(), String::new()]));
    assert_eq!((blank.sections.len(), blank.left_out), (2, vec!["2 pages without text".to_owned()]));
}

#[test]
fn a_pdf_names_only_what_it_has() {
    assert!(extracted(Format::Pdf, &numbered_pdf(2)).left_out.is_empty());
    let line = pdf_line("/F1 12", 72, 700, "A figure and an inline image");
    let inline = "BI /W 1 /H 1 /CS /G /BPC 8 ID A EI";
    let page = extracted(Format::Pdf, &pdf_page(&format!("{line} /Im Do /Im Do {inline}"), ""));
    assert_eq!(page.left_out, ["3 images"]);
    assert_eq!(page.sections[0].text, "A figure and an inline image");
}

/// Lines of body text, so that larger ones are headings.
fn pdf_body(x: u32, y: u32, lines: &[&str]) -> String {
    lines.iter().zip(0..).map(|(line, number)| pdf_line("/F1 11", x, y - number * 14, line)).collect()
}

#[test]
fn pdf_headings_lists_and_links() {
    let content = [
        pdf_line("/F2 24", 72, 720, "Annual report"),
        pdf_body(
            72,
            680,
            &[
                "This report describes the year in a few short sentences, and",
                "it refers to the site for details.",
            ],
        ),
        pdf_line("/F2 16", 72, 620, "Results"),
        pdf_body(72, 590, &["\\225 more readers", "\\225 fewer errors"]),
        pdf_body(72, 540, &["The list ends before this paragraph, which is plain text."]),
    ]
    .concat();
    let link = "<< /Type /Annot /Subtype /Link /Rect [124 664 159 678] /Border [0 0 0] \
                /A << /S /URI /URI (http://a.example/) >> >>";
    insta::assert_snapshot!(text(Format::Pdf, &pdf_page(&content, link)), @r"
    # Annual report

    This report describes the year in a few short sentences, and it refers to [the site](http://a.example/) for details.

    ## Results

    - more readers
    - fewer errors

    The list ends before this paragraph, which is plain text.
    ");
}

#[test]
fn pdf_tables_with_rules() {
    let above = ["The table below has rules around each of its cells, and this", "paragraph has two lines."];
    let below =
        ["The text continues below the table with a paragraph of", "its own, which has two lines too."];
    let mut content = pdf_body(72, 720, &above);
    for row in 0..4 {
        content += &format!("72 {y} m 372 {y} l S\n", y = 600 + row * 20);
    }
    for column in 0..4 {
        content += &format!("{x} 600 m {x} 660 l S\n", x = 72 + column * 100);
    }
    let rows = [["name", "unit", "value"], ["speed", "m/s", "12"], ["mass", "kg", "7"]];
    for (y, cells) in [646, 626, 606].into_iter().zip(rows) {
        for (x, cell) in [78, 178, 278].into_iter().zip(cells) {
            content += &pdf_line("/F1 11", x, y, cell);
        }
    }
    content += &pdf_body(72, 570, &below);
    insta::assert_snapshot!(text(Format::Pdf, &pdf_page(&content, "")), @r"
    The table below has rules around each of its cells, and this paragraph has two lines.

    | name | unit | value |
    | --- | --- | --- |
    | speed | m/s | 12 |
    | mass | kg | 7 |

    The text continues below the table with a paragraph of its own, which has two lines too.
    ");
}

#[test]
fn pdf_columns_are_read_one_after_the_other() {
    let mut content = pdf_line("/F2 20", 72, 740, "Two columns");
    // The content stream has the lines row by row.
    for row in 0..12 {
        for (column, x) in [("left", 72), ("right", 330)] {
            let line = format!("the {column} column has here line number {}", row + 1);
            content += &pdf_line("/F1 11", x, 700 - row * 14, &line);
        }
    }
    let text = text(Format::Pdf, &pdf_page(&content, ""));
    let words: Vec<_> = text.split_whitespace().collect();
    let order: Vec<_> = words.iter().filter(|word| matches!(**word, "left" | "right")).copied().collect();
    assert_eq!(order, [["left"; 12], ["right"; 12]].concat(), "{text}");
    assert!(text.starts_with("# Two columns\n\nthe left column has here line number 1"), "{text}");
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
fn parts_of_word_documents_and_workbooks_are_named_if_they_have_content() {
    let text = |text: &str| format!("<w:x><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:x>");
    let body = "<w:document><w:body><w:p><w:r><w:t>x</w:t><w:drawing><c:chart/></w:drawing></w:r></w:p></w:body>\
                </w:document>";
    let left_out = |comment: &str, footer: &str| {
        let (comments, footer) = (text(comment), text(footer));
        let members =
            [("word/document.xml", body), ("word/comments.xml", &comments), ("word/footer2.xml", &footer)];
        extracted(Format::Docx, &package(&members)).left_out
    };
    assert_eq!(left_out("", " "), ["1 chart"]);
    assert_eq!(left_out("why?", "9"), ["1 chart", "comments", "page headers and footers"]);

    let book = xlsx(&[("A", &[&["a", "1"], &["b", "2"]])]);
    let formula = |sheet: &str| sheet.replace("<v>1</v>", "<f>1+0</f><v>1</v>");
    let mut members = members(&book);
    for (name, data) in &mut members {
        if name.starts_with("xl/worksheets/") {
            *data = formula(std::str::from_utf8(data).unwrap()).into_bytes();
        }
    }
    members.push(("xl/media/image1.png".to_owned(), b"png".to_vec()));
    members.push(("xl/charts/chart1.xml".to_owned(), b"<chart/>".to_vec()));
    let members: Vec<_> = members.iter().map(|(name, data)| (&**name, data)).collect();
    let book = extracted(Format::Xlsx, &package(&members));
    assert_eq!(book.left_out, ["1 image", "1 chart", "1 formula (the results are kept)"]);
    assert_eq!(book.sections[0].text, "| a | 1 |\n|---|---|\n| b | 2 |");
}

/// The members of a zip archive.
fn members(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(archive)).unwrap();
    let count = archive.len();
    let member = |index| {
        let mut member = archive.by_index(index).unwrap();
        let mut data = Vec::new();
        member.read_to_end(&mut data).unwrap();
        (member.name().unwrap().into_owned(), data)
    };
    (0..count).map(member).collect()
}

#[test]
fn spreadsheets_keep_cells_in_their_places() {
    let book =
        xlsx(&[("Numbers", &[&["name", "value"], &["pi", "3.14159"], &["big", "1000000"]]), ("Empty", &[])]);
    let sheets = extracted(Format::Xlsx, &book).sections;
    assert_eq!(sheets[0].name.as_deref(), Some("Numbers"));
    assert_eq!(sheets[0].text, "| name | value |\n|---|---|\n| pi | 3.14159 |\n| big | 1000000 |");
    assert_eq!((sheets[1].name.as_deref(), &*sheets[1].text), (Some("Empty"), ""));
    assert!(extracted(Format::Xlsx, &book).left_out.is_empty());
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
fn slides_have_tables_links_notes_and_counted_pictures() {
    let paragraph = |text: &str| format!("<a:p><a:r><a:t>{text}</a:t></a:r></a:p>");
    let cell = |text: &str| format!("<a:tc><a:txBody>{}</a:txBody></a:tc>", paragraph(text));
    let shape = |kind: &str, body: &str| {
        format!(
            "<p:sp><p:nvSpPr><p:nvPr><p:ph type=\"{kind}\"/></p:nvPr></p:nvSpPr><p:txBody>{body}</p:txBody></p:sp>"
        )
    };
    let slide = format!(
        "<p:sld xmlns:p=\"p\" xmlns:a=\"a\" xmlns:r=\"r\"><p:cSld><p:spTree>{}\
         <p:sp><p:txBody><a:p><a:r><a:t>see </a:t></a:r><a:r><a:rPr><a:hlinkClick r:id=\"rId2\"/></a:rPr>\
         <a:t>the site</a:t></a:r></a:p></p:txBody></p:sp>\
         <p:graphicFrame><a:graphic><a:graphicData><a:tbl><a:tr>{}{}</a:tr><a:tr>{}{}</a:tr></a:tbl></a:graphicData>\
         </a:graphic></p:graphicFrame>\
         <p:graphicFrame><a:graphic><a:graphicData><c:chart r:id=\"rId4\"/></a:graphicData></a:graphic></p:graphicFrame>\
         <p:pic/></p:spTree></p:cSld></p:sld>",
        shape("title", &paragraph("Plan")),
        cell("a"),
        cell("b"),
        cell("1"),
        cell("2|3"),
    );
    let notes = format!(
        "<p:notes xmlns:p=\"p\" xmlns:a=\"a\"><p:cSld><p:spTree>{}{}</p:spTree></p:cSld></p:notes>",
        shape("sldNum", &paragraph("1")),
        shape("body", &paragraph("Speak slowly."))
    );
    let presentation = "<p:presentation xmlns:p=\"p\" xmlns:r=\"r\"><p:sldIdLst><p:sldId id=\"256\" r:id=\"rId1\"/>\
                        </p:sldIdLst></p:presentation>";
    let deck = package(&[
        ("ppt/presentation.xml", presentation),
        (
            "ppt/_rels/presentation.xml.rels",
            "<Relationships><Relationship Id=\"rId1\" Target=\"slides/slide1.xml\"/></Relationships>",
        ),
        ("ppt/slides/slide1.xml", &slide),
        (
            "ppt/slides/_rels/slide1.xml.rels",
            "<Relationships><Relationship Id=\"rId2\" Target=\"http://a.example/\" TargetMode=\"External\"/>\
             <Relationship Id=\"rId3\" Target=\"../notesSlides/notesSlide1.xml\"/></Relationships>",
        ),
        ("ppt/notesSlides/notesSlide1.xml", &notes),
    ]);
    let deck = extracted(Format::Pptx, &deck);
    assert_eq!(
        deck.sections[0].text,
        "## Plan\n\nsee [the site](http://a.example/)\n\n| a | b |\n|---|---|\n| 1 | 2\\|3 |\n\nNotes: Speak slowly."
    );
    assert_eq!(deck.left_out, ["1 image", "1 chart"]);
}

/// An OpenDocument package with this body.
fn open_document(kind: &str, body: &str) -> Vec<u8> {
    let names = ["office", "text", "table", "draw", "presentation", "xlink"];
    let names: String = names
        .iter()
        .map(|name| format!(" xmlns:{name}=\"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0\""))
        .collect();
    let content = format!(
        "<office:document-content{names}><office:body>{body}</office:body></office:document-content>"
    );
    let mime = format!("application/vnd.oasis.opendocument.{kind}");
    let manifest = "<manifest:manifest xmlns:manifest=\"m\"/>";
    package(&[
        ("mimetype", &*mime),
        ("META-INF/manifest.xml", manifest),
        ("content.xml", &content),
        ("Pictures/a.png", "png"),
    ])
}

#[test]
fn open_document_spreadsheets() {
    let body = "<office:spreadsheet><table:table table:name=\"Sums\"><table:table-row>\
                <table:table-cell office:value-type=\"string\"><text:p>name</text:p></table:table-cell>\
                <table:table-cell office:value-type=\"string\"><text:p>sum</text:p></table:table-cell></table:table-row>\
                <table:table-row><table:table-cell office:value-type=\"string\"><text:p>both</text:p></table:table-cell>\
                <table:table-cell table:formula=\"of:=1+2\" office:value-type=\"float\" office:value=\"3\">\
                <text:p>3</text:p></table:table-cell></table:table-row></table:table>\
                <table:table table:name=\"Other\"><table:table-row><table:table-cell office:value-type=\"boolean\" \
                office:boolean-value=\"true\"/></table:table-row></table:table></office:spreadsheet>";
    let book = extracted(Format::Ods, &open_document("spreadsheet", body));
    let sheets: Vec<_> =
        book.sections.iter().map(|sheet| (sheet.name.as_deref().unwrap(), &*sheet.text)).collect();
    assert_eq!(sheets, [("Sums", "| name | sum |\n|---|---|\n| both | 3 |"), ("Other", "| TRUE |\n|---|")]);
    assert_eq!(book.left_out, ["1 image", "1 formula (the results are kept)"]);
}

#[test]
fn open_document_presentations() {
    let body = "<office:presentation><draw:page draw:name=\"one\"><draw:frame presentation:class=\"title\"><draw:text-box>\
                <text:p>Plan</text:p></draw:text-box></draw:frame><draw:frame><draw:text-box><text:list><text:list-item>\
                <text:p>first</text:p></text:list-item><text:list-item><text:p>see <text:a \
                xlink:href=\"http://a.example/\">this</text:a></text:p></text:list-item></text:list></draw:text-box>\
                </draw:frame><draw:frame><draw:image xlink:href=\"Pictures/a.png\"/></draw:frame><presentation:notes>\
                <draw:frame presentation:class=\"notes\"><draw:text-box><text:p>Speak slowly.</text:p></draw:text-box>\
                </draw:frame></presentation:notes></draw:page><draw:page draw:name=\"two\"/></office:presentation>";
    let deck = extracted(Format::Odp, &open_document("presentation", body));
    let slides: Vec<_> = deck.sections.iter().map(|slide| &*slide.text).collect();
    assert_eq!(slides, ["## Plan\n\n- first\n- see [this](http://a.example/)\n\nNotes: Speak slowly.", ""]);
    assert_eq!(deck.left_out, ["1 image"]);
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
    let frames = "<text:p><draw:frame><draw:object/><draw:image/></draw:frame><draw:frame><draw:image/></draw:frame></text:p>";
    assert_eq!(extracted(Format::Odt, &odt(frames)).left_out, ["1 image", "1 embedded object"]);
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
fn encrypted_chapters_are_left_out_even_inside_an_extra_folder() {
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
                "<package><manifest><item id=\"a\" href=\"text%201.xhtml\"/><item id=\"b\" href=\"b.xhtml\"/></manifest>\
                 <spine><itemref idref=\"a\"/><itemref idref=\"b\"/></spine></package>",
            ),
            ("OEBPS/text 1.xhtml", "<html><body><p>Once.</p></body></html>"),
            ("OEBPS/b.xhtml", "<html><body><p>Twice.</p></body></html>"),
        ];
        let members = members.map(|(name, data)| (format!("{root}{name}"), data));
        let members: Vec<_> = members.iter().map(|(name, data)| (&**name, *data)).collect();
        let book = extract(&package(&members), options(Format::Epub), &ExtractionLimits::default());
        book.map(|book| {
            let texts = book.sections.into_iter().map(|section| section.text);
            texts.chain(book.left_out).collect::<Vec<_>>()
        })
    };
    let partly = ["Twice.".to_owned(), "1 encrypted chapter".to_owned()];
    for root in ["", "book/"] {
        assert_eq!(book(root, "OEBPS/font.otf"), Ok(vec!["Once.".to_owned(), "Twice.".to_owned()]), "{root}");
        assert_eq!(book(root, "OEBPS/text%201.xhtml").as_deref(), Ok(&partly[..]), "{root}");
        let both = "OEBPS/text%201.xhtml\"/></CipherData></EncryptedData><EncryptedData><CipherData>\
                    <CipherReference URI=\"OEBPS/b.xhtml";
        assert_eq!(book(root, both), Err(ExtractFailure::Encrypted), "{root}");
    }
}

#[test]
fn html_without_its_navigation_or_with_it() {
    let page = "<html><head><title> A  page </title><style>p{}</style></head><body><nav><a href='/'>Home</a></nav>\
                <div><main><h1>Title</h1><p>Some <a href='b.html'>text</a> that is long enough to be the content.</p>\
                <table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table>\
                <ul><li>x</li></ul><img src=a alt=Logo></main></div><footer>Imprint</footer><script>alert()</script></body></html>";
    let main = extracted(Format::Html, page.as_bytes());
    assert_eq!(main.title.as_deref(), Some("A page"));
    let text = &main.sections[0].text;
    assert!(text.starts_with("# Title\n\nSome [text](b.html) that is long enough"), "{text}");
    assert!(text.contains("| k | v |") && text.contains("x"), "{text}");
    assert!(!text.contains("Home") && !text.contains("Imprint") && !text.contains("alert"), "{text}");
    assert_eq!(
        main.left_out,
        ["1 image", "navigation and other parts around the main content (`content=all` keeps them)"]
    );
    let all = ExtractOptions { content: HtmlContent::All, ..options(Format::Html) };
    let all = extract(page.as_bytes(), all, &ExtractionLimits::default()).unwrap();
    assert_eq!(all.left_out, ["1 image", "1 script"]);
    let all = &all.sections[0].text;
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
