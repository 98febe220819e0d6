//! What the note of a text names as left out, and links that are fields.

use libris_documents::Format;

use crate::samples::{docx, package, pptx, xlsx};
use crate::{extracted, members, text};

/// A copy of an archive with more members.
fn with_members(archive: &[u8], more: &[(&str, &str)]) -> Vec<u8> {
    let mut members = members(archive);
    members.extend(more.iter().map(|(name, data)| ((*name).to_owned(), data.as_bytes().to_vec())));
    let members: Vec<_> = members.iter().map(|(name, data)| (&**name, data)).collect();
    package(&members)
}

/// A copy of an archive in which this text of the members below a folder is replaced.
fn with_text(archive: &[u8], folder: &str, old: &str, new: &str) -> Vec<u8> {
    let mut members = members(archive);
    for (_, data) in members.iter_mut().filter(|(name, _)| name.starts_with(folder)) {
        *data = std::str::from_utf8(data).unwrap().replace(old, new).into_bytes();
    }
    let members: Vec<_> = members.iter().map(|(name, data)| (&**name, data)).collect();
    package(&members)
}

#[test]
fn a_workbook_without_its_comments_links_and_drawings_says_so() {
    let book = xlsx(&[("A", &[&["a"], &["b"]])]);
    let links =
        "</sheetData><hyperlinks><hyperlink ref=\"A1\" r:id=\"rId1\"/><hyperlink ref=\"A2\"/></hyperlinks>";
    let book = with_text(&book, "xl/worksheets/", "</sheetData>", links);
    let book = with_members(
        &book,
        &[
            (
                "xl/comments1.xml",
                "<comments><commentList><comment ref=\"A1\"><text/></comment></commentList></comments>",
            ),
            (
                "xl/drawings/drawing1.xml",
                "<xdr:wsDr><xdr:sp><xdr:txBody/></xdr:sp><xdr:sp><xdr:txBody/></xdr:sp></xdr:wsDr>",
            ),
            ("xl/diagrams/data1.xml", "<dgm:dataModel/>"),
            ("xl/embeddings/oleObject1.bin", "object"),
        ],
    );
    let book = extracted(Format::Xlsx, &book);
    assert_eq!(
        book.left_out,
        ["1 diagram", "2 text boxes", "1 embedded object", "1 comment", "2 link targets"]
    );
    assert_eq!(book.sections[0].text, "| a |\n|---|\n| b |");
}

#[test]
fn a_presentation_without_its_diagrams_media_objects_and_comments_says_so() {
    let frame = |content: &str| {
        format!(
            "<p:graphicFrame><a:graphic><a:graphicData>{content}</a:graphicData></a:graphic></p:graphicFrame>"
        )
    };
    let media = |file: &str| {
        format!("<p:pic><p:nvPicPr><p:nvPr><a:{file} r:link=\"rId1\"/></p:nvPr></p:nvPicPr></p:pic>")
    };
    let shapes = [
        frame("<dgm:relIds r:dm=\"rId2\"/>"),
        frame("<p:oleObj progId=\"Excel\"><p:embed/><p:pic/></p:oleObj>"),
        media("videoFile"),
        media("wavAudioFile"),
        "<p:pic><p:nvPicPr><p:nvPr/></p:nvPicPr></p:pic>".to_owned(),
    ];
    let deck = pptx(&[("One", "a", "b")]);
    let deck = with_text(&deck, "ppt/slides/", "</p:spTree>", &format!("{}</p:spTree>", shapes.concat()));
    let deck = with_members(
        &deck,
        &[
            ("ppt/comments/comment1.xml", "<p:cmLst><p:cm><p:text>Why?</p:text></p:cm><p:cm/></p:cmLst>"),
            ("ppt/comments/modernComment_1.xml", "<p188:cmLst><p188:cm/></p188:cmLst>"),
        ],
    );
    let deck = extracted(Format::Pptx, &deck);
    assert_eq!(deck.left_out, ["1 image", "1 diagram", "2 media files", "1 embedded object", "3 comments"]);
    assert_eq!(deck.sections[0].text, "## One\n\n- a\n- b");
}

#[test]
fn links_that_are_fields_keep_their_targets() {
    let run = |content: &str| format!("<w:r>{content}</w:r>");
    let visible = |text: &str| run(&format!("<w:t xml:space=\"preserve\">{text}</w:t>"));
    let mark = |kind: &str| run(&format!("<w:fldChar w:fldCharType=\"{kind}\"/>"));
    let instruction = |text: &str| run(&format!("<w:instrText xml:space=\"preserve\">{text}</w:instrText>"));
    let field = |code: &str, result: &str| {
        [mark("begin"), instruction(code), mark("separate"), result.to_owned(), mark("end")].concat()
    };
    let paragraph = |content: &str| text(Format::Docx, &docx(&format!("<w:p>{content}</w:p>")));
    let link = field(" HYPERLINK \"http://b.example/\" \\o \"tip\" ", &(visible("the ") + &visible("site ")));
    assert_eq!(
        paragraph(&(visible("See ") + &link + &visible("now."))),
        "See [the site](http://b.example/) now."
    );
    // Word splits instructions.
    let split = [
        mark("begin"),
        instruction(" HYPER"),
        instruction("LINK http://b.example/ "),
        mark("separate"),
        visible("x"),
        mark("end"),
    ];
    assert_eq!(paragraph(&split.concat()), "[x](http://b.example/)");
    let simple = format!(
        "<w:fldSimple w:instr=\" HYPERLINK &quot;http://b.example/&quot;\">{}</w:fldSimple>",
        visible("x")
    );
    assert_eq!(paragraph(&simple), "[x](http://b.example/)");
    // Other fields, and links to a bookmark, keep their result only.
    for code in [" PAGE ", " HYPERLINK \\l \"end\" ", " REF a "] {
        assert_eq!(paragraph(&field(code, &visible("x"))), "x", "{code}");
    }
    let contents = field(" TOC \\o ", &(visible("Start ") + &field(" PAGEREF a ", &visible("2"))));
    assert_eq!(paragraph(&contents), "Start 2");
    // A field over several paragraphs keeps its text.
    let begin =
        [mark("begin"), instruction(" HYPERLINK \"http://b.example/\" "), mark("separate"), visible("one")];
    let both = format!("<w:p>{}</w:p><w:p>{}{}</w:p>", begin.concat(), visible("two"), mark("end"));
    assert_eq!(text(Format::Docx, &docx(&both)), "one\n\ntwo");
    assert_eq!(
        extracted(
            Format::Docx,
            &docx(&format!("<w:p>{}</w:p>", run("<w:drawing><dgm:relIds/></w:drawing>")))
        )
        .left_out,
        ["1 diagram"]
    );
}
