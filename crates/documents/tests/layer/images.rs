//! Pages of a PDF as images.

use std::collections::BTreeMap;
use std::fs;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use libris_core::{CompletionRequest, Content, ContentBody, Context, Result, Source};
use libris_documents::{Documents, PlainRead};
use serde_json::{Value, json};

use crate::samples::{letter, numbered_pdf, package, pdf_of};
use crate::{documents, folder, reader, refusal, uri};

/// The images at a URI.
async fn images(source: &dyn Source, text: &str) -> Result<Vec<Content>> {
    let parts = source.read(&uri(text), &Context::default()).await?.parts;
    assert!(parts.iter().all(|part| part.mime.as_deref() == Some("image/png")));
    Ok(parts)
}

/// The pixels of an image in RGB, and its width and height.
fn decode(content: &Content) -> (Vec<[u8; 3]>, u32, u32) {
    let ContentBody::Bytes(data) = &content.body else { panic!("no bytes") };
    let mut decoder = png::Decoder::new(Cursor::new(data));
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info().unwrap();
    let mut samples = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut samples).unwrap();
    let pixels = match info.color_type {
        png::ColorType::Grayscale => samples.iter().map(|grey| [*grey; 3]).collect(),
        png::ColorType::Rgb => samples.as_chunks::<3>().0.to_vec(),
        other => panic!("{other:?}"),
    };
    (pixels, info.width, info.height)
}

/// A PDF with one page of this size in points, and this content.
fn drawing(media_box: &str, stream: &str) -> Vec<u8> {
    pdf_of(&[
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        format!("<< /Type /Page /Parent 2 0 R /MediaBox [{media_box}] /Contents 4 0 R /Resources << /XObject << /X 5 0 R >> >> >>"),
        format!("<< /Length {} >>\nstream\n{stream}\nendstream", stream.len()),
        // A form that draws itself.
        "<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 5 0 R >> >> /Length 11 >>\nstream\n/X Do /X Do\nendstream".to_owned(),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_an_image_with_its_layout() {
    let dir = tempfile::tempdir().unwrap();
    // The left half is red.
    fs::write(dir.path().join("red.pdf"), drawing("0 0 200 100", "1 0 0 rg 0 0 100 100 re f")).unwrap();
    fs::write(dir.path().join("text.pdf"), numbered_pdf(3)).unwrap();
    let source = documents(dir.path());
    let red = images(&source, "file:///docs/red.pdf?as=image&width=400").await.unwrap();
    let (pixels, width, height) = decode(&red[0]);
    assert_eq!((width, height), (400, 200));
    assert_eq!((pixels[100 * 400 + 100], pixels[100 * 400 + 300]), ([255, 0, 0], [255, 255, 255]));

    let text = images(&source, "file:///docs/text.pdf?as=image&pages=2").await.unwrap();
    let (pixels, width, height) = decode(&text[0]);
    assert_eq!(text[0].uri, uri("file:///docs/text.pdf?as=image&pages=2"));
    assert_eq!(
        Value::from(text[0].meta.clone().unwrap()),
        json!({
            "dev.libris/format": "pdf", "dev.libris/pages": 3, "dev.libris/page": 2,
            "dev.libris/width": width, "dev.libris/height": height,
        })
    );
    assert_eq!(width, 1000);
    // The words, in the standard font that the document does not embed.
    let black = pixels.iter().filter(|pixel| pixel[0] < 100).count();
    assert!((1_000..100_000).contains(&black), "{black} dark pixels");
    let other = images(&source, "file:///docs/text.pdf?as=image&pages=3").await.unwrap();
    assert_ne!(text[0].body, other[0].body);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_pages_are_several_contents() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.pdf"), numbered_pdf(12)).unwrap();
    fs::write(dir.path().join("b.zip"), package(&[("c.pdf", numbered_pdf(1))])).unwrap();
    let source = documents(dir.path());
    let uris = async |text: &str| -> Vec<String> {
        let parts = images(&source, text).await.unwrap();
        parts.iter().map(|part| part.uri.to_string()).collect()
    };
    let first = "file:///docs/a.pdf?as=image&width=100";
    assert_eq!(uris(first).await, [first], "the first page if none is selected");
    assert_eq!(
        uris("file:///docs/a.pdf?width=100&as=image&pages=11-,2").await,
        [2, 11, 12].map(|page| format!("file:///docs/a.pdf?as=image&pages={page}&width=100"))
    );
    assert_eq!(uris("file:///docs/a.pdf?as=image&width=50&pages=1-10").await.len(), 10);
    let member = "file:///docs/b.zip/c.pdf?as=image&width=100";
    assert_eq!(uris(member).await, [member], "a document in an archive");
    // A change of the document is a change of its images, and who may not see it may not see them.
    let (image, document) = (uri("file:///docs/a.pdf?as=image&pages=2&width=300"), uri("file:///docs/a.pdf"));
    assert_eq!(source.subject(&image), source.subject(&document));
    assert!(source.aliases(&image).contains(&document));
    assert!(source.covers(&image).is_some() && source.may_appear(&image));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_image_says_why() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.pdf"), numbered_pdf(12)).unwrap();
    fs::write(dir.path().join("a.docx"), letter("words")).unwrap();
    fs::write(dir.path().join("a.md"), "# Words").unwrap();
    fs::write(dir.path().join("not.pdf"), "words").unwrap();
    let source = documents(dir.path());
    for (path, expected) in [
        (
            "a.pdf?as=image&pages=13-",
            "`file:///docs/a.pdf` has 12 pages, and 13 is after the last; hint: choose from 1 to 12",
        ),
        (
            "a.pdf?as=image&pages=2-&width=50",
            "`file:///docs/a.pdf`: 11 pages are selected, and one read gives at most 10 images; \
             hint: read a part of them, such as `pages=2-11`",
        ),
        (
            "a.pdf?as=image&width=2001",
            "`width=2001` is not supported; hint: use a number of pixels from 50 to 2000",
        ),
        (
            "a.pdf?as=image&sheet=1",
            "`as=image` cannot be combined with `sheet`; hint: use `pages` or `width`",
        ),
        (
            "a.docx?as=image",
            "`file:///docs/a.docx` is of the format docx, and only pages of PDF files have images; \
             hint: read it without `as=image`",
        ),
        (
            "a.md?as=image",
            "`file:///docs/a.md` is text/markdown, and only pages of PDF files have images; \
             hint: read it without `as=image`",
        ),
        (
            "not.pdf?as=image",
            "`file:///docs/not.pdf` is application/pdf, and only pages of PDF files have images; \
             hint: read it without `as=image`",
        ),
        (
            "none.pdf?as=image",
            "no resource at `file:///docs/none.pdf`: there is no `none.pdf` in `file:///docs/`; did you mean `not.pdf`?",
        ),
        ("a.pdf?as=images", "`as=images` is not supported; hint: did you mean `image`?"),
    ] {
        assert_eq!(refusal(&source, &format!("file:///docs/{path}")).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_rendered_once() {
    let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(dir.path().join("a.pdf"), numbered_pdf(3)).unwrap();
    fs::copy(dir.path().join("a.pdf"), dir.path().join("copy.pdf")).unwrap();
    let open = || {
        let reader = reader(|config| config.cache_folder = Some(cache.path().to_owned()));
        (Arc::new(Documents::new(folder(dir.path()), reader.clone(), PlainRead::Original)), reader)
    };
    let (source, reader) = open();
    let names = ["a", "a", "copy", "a"];
    let reads = names.map(|name| {
        let source = source.clone();
        let page = format!("file:///docs/{name}.pdf?as=image&pages=2&width=200");
        tokio::spawn(async move { images(&*source, &page).await.unwrap()[0].body.clone() })
    });
    let mut bodies = Vec::new();
    for read in reads {
        bodies.push(read.await.unwrap());
    }
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    assert_eq!(reader.extractions(), 1, "concurrent requests share one child process");
    // Another size and another page are other images.
    images(&*source, "file:///docs/a.pdf?as=image&pages=2-3&width=100").await.unwrap();
    assert_eq!(reader.extractions(), 3);
    images(&*source, "file:///docs/a.pdf?as=image&pages=3&width=100").await.unwrap();
    assert_eq!(reader.extractions(), 3);
    // The cache folder outlives the server.
    let (source, reader) = open();
    let again = images(&*source, "file:///docs/a.pdf?as=image&pages=2&width=200").await.unwrap();
    assert_eq!((&again[0].body, reader.extractions()), (&bodies[0], 0));
    // A change of the document is rendered anew.
    fs::write(dir.path().join("a.pdf"), numbered_pdf(1)).unwrap();
    assert!(refusal(&*source, "file:///docs/a.pdf?as=image&pages=2&width=200").await.contains("has 1 pages"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_templates_offer_the_images() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.pdf"), numbered_pdf(12)).unwrap();
    fs::write(dir.path().join("b.docx"), letter("words")).unwrap();
    for plain in [PlainRead::Original, PlainRead::Text] {
        let source = Documents::new(folder(dir.path()), reader(|_| {}), plain);
        let page = source.list(None, 10, &Context::default()).await.unwrap();
        let image = |name: &str| {
            let resource = page.resources.iter().find(|resource| resource.name == name).unwrap();
            resource.meta.clone().unwrap().get("dev.libris/image").cloned()
        };
        assert_eq!(image("a.pdf"), Some(json!("file:///docs/a.pdf?as=image")));
        assert_eq!(image("b.docx"), None);
        assert_eq!(images(&source, "file:///docs/a.pdf?as=image&width=50").await.unwrap().len(), 1);
    }
    let source = documents(dir.path());
    let templates = source.templates(&Context::default()).await.unwrap().templates;
    let template = templates.iter().find(|template| template.mime.as_deref() == Some("image/png")).unwrap();
    assert_eq!(template.uri.as_str(), "file:///docs/{+path}?as=image{&pages,width}");
    let complete = async |path: &str, variable: &str, typed: &str| {
        let known =
            BTreeMap::from([("path".to_owned(), path.to_owned()), ("width".to_owned(), "500".to_owned())]);
        let asked = CompletionRequest { template: &template.uri, variable, typed, known: &known, limit: 5 };
        source.complete(asked, &Context::default()).await.unwrap().values
    };
    assert_eq!(complete("", "path", "").await, ["a.pdf"]);
    assert_eq!(complete("a.pdf", "pages", "1").await, ["1", "10", "11", "12"]);
    assert_eq!(complete("a.pdf", "width", "1").await, ["1000", "1500"]);
    assert!(
        complete("b.docx", "pages", "").await.is_empty()
            && complete("none.pdf", "pages", "").await.is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_documents_end_within_the_limits() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, data: &[u8]| fs::write(dir.path().join(name), data).unwrap();
    let catalog = || "<< /Type /Catalog /Pages 2 0 R >>".to_owned();
    write(
        "loop.pdf",
        &pdf_of(&[
            catalog(),
            "<< /Type /Pages /Kids [3 0 R] /Count 1000000 >>".to_owned(),
            "<< /Type /Pages /Kids [2 0 R 3 0 R] /Count 5 /Parent 2 0 R >>".to_owned(),
        ]),
    );
    write("cut.pdf", &numbered_pdf(3)[..600]);
    write("noise.pdf", &[b"%PDF-1.7\n".to_vec(), (0..=255).cycle().take(20_000).collect()].concat());
    write("self.pdf", &drawing("0 0 99 99", "/X Do"));
    write("deep.pdf", &drawing("0 0 99 99", &"q ".repeat(300_000)));
    write("array.pdf", &drawing("0 0 99 99", &"[".repeat(300_000)));
    write("huge.pdf", &drawing("0 0 1e30 1e30", "0 0 1e30 1e30 re f"));
    write("thin.pdf", &drawing("0 0 1 1000000", "0 0 1 9 re f"));
    write("tall.pdf", &drawing("0 0 100 390", "0 0 9 9 re f"));
    write("nothing.pdf", &drawing("0 0 0 0", "0 0 9 9 re f"));
    let source = Documents::new(
        folder(dir.path()),
        reader(|config| config.limits.memory = 256 << 20),
        PlainRead::Original,
    );
    for name in ["loop", "cut", "noise", "self", "deep", "array", "huge", "thin", "tall", "nothing"] {
        let text = format!("file:///docs/{name}.pdf?as=image&width=2000");
        // An error or an image of what is there, but an end.
        let read =
            tokio::time::timeout(Duration::from_secs(300), images(&source, &text)).await.expect("it ends");
        match read {
            Ok(parts) => {
                let (_, width, height) = decode(&parts[0]);
                assert!(
                    width.max(height) <= 8_000 && u64::from(width) * u64::from(height) <= 6_010_000,
                    "{name}"
                );
            }
            Err(error) => assert!(error.to_string().contains(" has no image of page 1: "), "{name}: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rendering_that_needs_too_much_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let strokes = "0 0 m 99 99 l 50 3 l 7 80 l S ".repeat(400_000);
    fs::write(dir.path().join("slow.pdf"), drawing("0 0 99 99", &strokes)).unwrap();
    fs::write(dir.path().join("a.pdf"), numbered_pdf(1)).unwrap();
    let few = reader(|config| config.limits.cpu = Duration::from_secs(1));
    let source = Documents::new(folder(dir.path()), few.clone(), PlainRead::Original);
    let expected = "`file:///docs/slow.pdf` has no image of page 1: it needs more than 1 seconds of processor time; \
                    hint: `file:///docs/slow.pdf?as=original` gives the bytes";
    for _ in 0..2 {
        assert_eq!(refusal(&source, "file:///docs/slow.pdf?as=image&width=2000").await, expected);
    }
    assert_eq!(few.extractions(), 1, "the failure is cached");
    let small =
        Documents::new(folder(dir.path()), reader(|config| config.limits.image = 1_000), PlainRead::Original);
    let error = refusal(&small, "file:///docs/a.pdf?as=image").await;
    assert!(error.contains("has no image of page 1: its image has more than"), "{error}");
    #[cfg(target_os = "linux")]
    {
        let little = reader(|config| config.limits.memory = 20 << 20);
        let source = Documents::new(folder(dir.path()), little, PlainRead::Original);
        let error = refusal(&source, "file:///docs/a.pdf?as=image&width=2000").await;
        assert!(error.contains("has no image of page 1: it needs more than 20 MiB of memory"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_sends_no_image_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.pdf"), numbered_pdf(1)).unwrap();
    let image = r#"{"image":{"pages":1,"page":1,"width":9,"height":9}}"#;
    for script in [
        format!("read request; echo '{image}'; echo '<script>'"),
        format!("read request; echo '{image}'"),
        "read request; echo '{\"member\":3}'; echo abc".to_owned(),
    ] {
        let reader = reader(|config| {
            config.program = "/bin/sh".into();
            config.arguments = ["-c", &script].map(Into::into).into();
        });
        let source = Documents::new(folder(dir.path()), reader, PlainRead::Original);
        assert_eq!(
            refusal(&source, "file:///docs/a.pdf?as=image").await,
            "could not render the page of the document",
            "{script}"
        );
    }
}
