//! Small documents, written by the tests.

#![allow(dead_code, reason = "not every test needs every sample")]

use std::fmt::Write as _;
use std::io::{Cursor, Write as _};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// A zip archive of these members.
pub(crate) fn package<D: AsRef<[u8]>>(members: &[(&str, D)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, data) in members {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(data.as_ref()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// A zip archive with one stored member that declares this decompressed size.
pub(crate) fn zip_declaring(name: &str, data: &[u8], size: u64) -> Vec<u8> {
    let mut checksum = flate2::Crc::new();
    checksum.update(data);
    // The fields that the header of a member in the data and the one in the directory share.
    let shared = |out: &mut Vec<u8>| {
        out.extend([45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        out.extend(checksum.sum().to_le_bytes());
        out.extend((data.len() as u32).to_le_bytes());
        // The size is in the extra field.
        out.extend(u32::MAX.to_le_bytes());
        out.extend((name.len() as u16).to_le_bytes());
        out.extend(12_u16.to_le_bytes());
    };
    let extra: Vec<u8> = [&[1, 0, 8, 0][..], &size.to_le_bytes()].concat();
    let mut out = b"PK\x03\x04".to_vec();
    shared(&mut out);
    out.extend([name.as_bytes(), &extra, data].concat());
    let directory = out.len();
    out.extend(b"PK\x01\x02\x2d\0");
    shared(&mut out);
    out.extend([0; 14]);
    out.extend([name.as_bytes(), &extra].concat());
    let length = out.len() - directory;
    out.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    out.extend((length as u32).to_le_bytes());
    out.extend((directory as u32).to_le_bytes());
    out.extend([0, 0]);
    out
}

/// A tar archive whose only member declares this size.
pub(crate) fn tar_declaring(name: &str, data: &[u8], size: u64) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_path(name).unwrap();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    [header.as_bytes(), data].concat()
}

/// A compound file, the container of old Excel files, with these sectors after its header. The header refers to sector 0
/// for the allocation table, and to sector 1 for the directory. `calamine` 0.38 panics if it has no sectors, and follows
/// a table of zeros for ever.
pub(crate) fn compound_file(sectors: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..8].copy_from_slice(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1");
    let mut set = |at: usize, value: u32| header[at..at + 4].copy_from_slice(&value.to_le_bytes());
    // Version 3 in the high half; sectors of 2^9 bytes, and of 2^6 bytes for short streams; one sector of the table.
    set(24, 3 << 16);
    set(30, 9 | 6 << 16);
    set(44, 1);
    set(48, 1);
    set(56, 4096);
    set(60, 0xffff_fffe);
    set(68, 0xffff_fffe);
    (80..512).step_by(4).for_each(|at| set(at, u32::MAX));
    [&header, sectors].concat()
}

/// A PDF from its objects, the first of which is the catalog.
pub(crate) fn pdf_of(objects: &[String]) -> Vec<u8> {
    let mut out = "%PDF-1.4\n".to_owned();
    let mut offsets = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        offsets.push(out.len());
        let _ = write!(out, "{} 0 obj\n{object}\nendobj\n", number + 1);
    }
    let start = out.len();
    let _ = write!(out, "xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for offset in offsets {
        let _ = writeln!(out, "{offset:010} 00000 n ");
    }
    let _ =
        write!(out, "trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n", objects.len() + 1);
    out.into_bytes()
}

/// A PDF with one line of text on each page; an empty one has no text.
pub(crate) fn pdf(pages: &[String]) -> Vec<u8> {
    let kids: Vec<String> = (0..pages.len()).map(|page| format!("{} 0 R", 4 + page * 2)).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!("<< /Type /Pages /Kids [{}] /Count {} >>", kids.join(" "), pages.len()),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned(),
    ];
    for (number, text) in pages.iter().enumerate() {
        let content = if text.is_empty() {
            String::new()
        } else {
            let mut lines = String::new();
            for line in text.lines() {
                let _ = write!(lines, "({line}) Tj T* ");
            }
            format!("BT /F1 12 Tf 14 TL 72 720 Td {lines}ET")
        };
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {} 0 R /Resources << /Font << /F1 3 0 R >> >> >>",
            5 + number * 2
        ));
        objects.push(format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()));
    }
    pdf_of(&objects)
}

/// A PDF with one page of this content stream and these annotations. It has the fonts `F1` (Helvetica) and `F2`
/// (Helvetica-Bold) and the image `Im`.
pub(crate) fn pdf_page(content: &str, annotations: &str) -> Vec<u8> {
    let font = |name: &str| {
        format!("<< /Type /Font /Subtype /Type1 /BaseFont /{name} /Encoding /WinAnsiEncoding >>")
    };
    let image = "<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8 \
                 /Length 1 >>\nstream\nA\nendstream";
    pdf_of(&[
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Annots [{annotations}] \
             /Resources << /Font << /F1 5 0 R /F2 6 0 R >> /XObject << /Im 7 0 R >> >> >>"
        ),
        format!("<< /Length {} >>\nstream\n{content}\nendstream", content.len()),
        font("Helvetica"),
        font("Helvetica-Bold"),
        image.to_owned(),
    ])
}

/// The operators that show a line of text at a position of a page, in a font and size such as `/F1 12`.
pub(crate) fn pdf_line(font: &str, x: u32, y: u32, text: &str) -> String {
    format!("BT {font} Tf {x} {y} Td ({text}) Tj ET\n")
}

/// A PDF with this many pages, each with its number and some text.
pub(crate) fn numbered_pdf(pages: usize) -> Vec<u8> {
    let page = |number: usize| format!("Page number {number} of the report\nwith a second line of words");
    pdf(&(1..=pages).map(page).collect::<Vec<_>>())
}

/// A Word document with this body.
pub(crate) fn docx(body: &str) -> Vec<u8> {
    let word = "xmlns:w=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\" \
                xmlns:r=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships\"";
    let document = format!("<?xml version=\"1.0\"?><w:document {word}><w:body>{body}</w:body></w:document>");
    let styles = format!(
        "<w:styles {word}><w:style w:styleId=\"H1\"><w:name w:val=\"heading 1\"/></w:style></w:styles>"
    );
    let numbering = format!(
        "<w:numbering {word}><w:abstractNum w:abstractNumId=\"0\"><w:lvl><w:numFmt w:val=\"decimal\"/></w:lvl>\
         <w:lvl><w:numFmt w:val=\"bullet\"/></w:lvl></w:abstractNum>\
         <w:num w:numId=\"7\"><w:abstractNumId w:val=\"0\"/></w:num></w:numbering>"
    );
    let relationships = "<Relationships><Relationship Id=\"rId9\" Target=\"http://a.example/\" \
                         TargetMode=\"External\"/></Relationships>";
    let notes = format!(
        "<w:footnotes {word}><w:footnote w:id=\"2\"><w:p><w:r><w:t>A note.</w:t></w:r></w:p></w:footnote></w:footnotes>"
    );
    package(&[
        ("word/document.xml", document.as_str()),
        ("word/styles.xml", &styles),
        ("word/numbering.xml", &numbering),
        ("word/_rels/document.xml.rels", relationships),
        ("word/footnotes.xml", &notes),
    ])
}

/// A Word document with one paragraph.
pub(crate) fn letter(text: &str) -> Vec<u8> {
    docx(&format!("<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"))
}

/// A spreadsheet with sheets of rows; texts that are numbers become numbers.
pub(crate) fn xlsx(sheets: &[(&str, &[&[&str]])]) -> Vec<u8> {
    let main = "xmlns=\"http://schemas.openxmlformats.org/spreadsheetml/2006/main\" \
                xmlns:r=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships\"";
    let (mut list, mut relationships, mut parts) = (String::new(), String::new(), Vec::new());
    for (number, (name, rows)) in sheets.iter().enumerate() {
        let number = number + 1;
        let _ = write!(list, "<sheet name=\"{name}\" sheetId=\"{number}\" r:id=\"rId{number}\"/>");
        let _ = write!(
            relationships,
            "<Relationship Id=\"rId{number}\" Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet\" \
             Target=\"worksheets/sheet{number}.xml\"/>"
        );
        let mut data = String::new();
        for (row, cells) in rows.iter().enumerate() {
            let _ = write!(data, "<row r=\"{}\">", row + 1);
            for (column, cell) in cells.iter().enumerate() {
                let at = format!("{}{}", char::from(b'A' + u8::try_from(column).unwrap()), row + 1);
                let _ = match cell.trim().parse::<f64>() {
                    Ok(_) => write!(data, "<c r=\"{at}\" t=\"n\"><v>{cell}</v></c>"),
                    Err(_) => write!(data, "<c r=\"{at}\" t=\"inlineStr\"><is><t>{cell}</t></is></c>"),
                };
            }
            data.push_str("</row>");
        }
        parts.push((
            format!("xl/worksheets/sheet{number}.xml"),
            format!("<worksheet {main}><sheetData>{data}</sheetData></worksheet>"),
        ));
    }
    let types = "<Types xmlns=\"http://schemas.openxmlformats.org/package/2006/content-types\"/>";
    let root = "<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\">\
                <Relationship Id=\"rId1\" Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument\" \
                Target=\"xl/workbook.xml\"/></Relationships>";
    let book = format!("<workbook {main}><sheets>{list}</sheets></workbook>");
    let relationships = format!(
        "<Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\">{relationships}</Relationships>"
    );
    let mut members = vec![
        ("[Content_Types].xml", types),
        ("_rels/.rels", root),
        ("xl/workbook.xml", &book),
        ("xl/_rels/workbook.xml.rels", &relationships),
    ];
    members.extend(parts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    package(&members)
}

/// An EPUB with these chapters in XHTML.
pub(crate) fn epub(chapters: &[&str]) -> Vec<u8> {
    let container =
        "<container><rootfiles><rootfile full-path=\"OEBPS/content.opf\"/></rootfiles></container>";
    let (mut items, mut spine) = (String::new(), String::new());
    for number in 0..chapters.len() {
        let _ = write!(items, "<item id=\"c{number}\" href=\"text%20{number}.xhtml\"/>");
        let _ = write!(spine, "<itemref idref=\"c{number}\"/>");
    }
    let content = format!(
        "<package><metadata><dc:title xmlns:dc=\"x\">The book</dc:title></metadata><manifest>{items}</manifest>\
         <spine>{spine}</spine></package>"
    );
    let names: Vec<String> = (0..chapters.len()).map(|number| format!("OEBPS/text {number}.xhtml")).collect();
    let mut members = vec![
        ("mimetype", "application/epub+zip"),
        ("META-INF/container.xml", container),
        ("OEBPS/content.opf", &content),
    ];
    members.extend(names.iter().zip(chapters).map(|(name, text)| (name.as_str(), *text)));
    package(&members)
}

/// A presentation with these slides: a title and two lines each.
pub(crate) fn pptx(slides: &[(&str, &str, &str)]) -> Vec<u8> {
    let shape = |kind: &str, paragraphs: &str| {
        format!(
            "<p:sp><p:nvSpPr><p:nvPr><p:ph {kind}/></p:nvPr></p:nvSpPr><p:txBody>{paragraphs}</p:txBody></p:sp>"
        )
    };
    let paragraph = |text: &str| format!("<a:p><a:r><a:t>{text}</a:t></a:r></a:p>");
    let (mut list, mut relationships, mut parts) = (String::new(), String::new(), Vec::new());
    for (number, (title, first, second)) in slides.iter().enumerate() {
        let _ = write!(list, "<p:sldId id=\"{}\" r:id=\"rId{number}\"/>", 256 + number);
        let _ =
            write!(relationships, "<Relationship Id=\"rId{number}\" Target=\"slides/slide{number}.xml\"/>");
        let title = shape("type=\"title\"", &paragraph(title));
        let body = shape("idx=\"1\"", &(paragraph(first) + &paragraph(second)));
        parts.push((
            format!("ppt/slides/slide{number}.xml"),
            format!("<p:sld xmlns:p=\"p\" xmlns:a=\"a\"><p:cSld><p:spTree>{title}{body}</p:spTree></p:cSld></p:sld>"),
        ));
    }
    let main = format!(
        "<p:presentation xmlns:p=\"p\" xmlns:r=\"r\"><p:sldIdLst>{list}</p:sldIdLst></p:presentation>"
    );
    let relationships = format!("<Relationships>{relationships}</Relationships>");
    let mut members =
        vec![("ppt/presentation.xml", &*main), ("ppt/_rels/presentation.xml.rels", &relationships)];
    members.extend(parts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    package(&members)
}

/// An OpenDocument text with this body.
pub(crate) fn odt(body: &str) -> Vec<u8> {
    let content = format!(
        "<office:document-content xmlns:office=\"o\" xmlns:text=\"t\" xmlns:table=\"b\" xmlns:xlink=\"x\">\
         <office:body><office:text>{body}</office:text></office:body></office:document-content>"
    );
    package(&[("mimetype", "application/vnd.oasis.opendocument.text"), ("content.xml", &content)])
}
