//! PDF, page by page, with the `unpdf` crate.

use std::ops::ControlFlow;

use unpdf::model::Block;
use unpdf::render::{BlockRenderer, RenderOptions};
use unpdf::{Error, ErrorMode, Page, PageSelection, PageStreamOptions, ParseEvent, ParseOptions, PdfParser};

use super::markdown::count;
use super::{ExtractFailure, ExtractResult};
use crate::{DocumentSection, ExtractedText, Format};

pub(super) fn extract(data: &[u8]) -> ExtractResult<ExtractedText> {
    let options = ParseOptions::new().with_error_mode(ErrorMode::Lenient).with_resources(false).sequential();
    let parser = PdfParser::from_bytes_with_options(data, options).map_err(failure)?;
    // Without threads: the server runs several child processes at once. All fields are listed because
    // `PageStreamOptions::default()` would start a thread pool.
    let streaming = PageStreamOptions {
        error_mode: ErrorMode::Lenient,
        extract_text: true,
        extract_resources: false,
        min_image_dimension: 0,
        pages: PageSelection::All,
        password: None,
        parallel: false,
        suppress_low_confidence_ocr: true,
        window_size: 1,
        emit_progress_every: u32::MAX,
    };
    let renderer =
        BlockRenderer::new(RenderOptions::new().with_table_fallback(unpdf::TableFallback::Markdown));
    let mut sections: Vec<DocumentSection> = Vec::new();
    let mut title = None;
    let mut failed = 0;
    let mut unreadable_runs = 0;
    let (mut images, mut fills) = (0, 0);
    let push = |number: u32, text: String, sections: &mut Vec<DocumentSection>| {
        // Empty sections stand for missing pages, so that the others keep their numbers.
        let at = usize::try_from(number).unwrap_or(1).max(1);
        sections.resize_with(at.max(sections.len()), DocumentSection::default);
        sections[at - 1].text = text;
    };
    let quality = parser.for_each_page(streaming, |event| {
        match event {
            ParseEvent::DocumentStart { metadata, .. } => title = metadata.title,
            ParseEvent::PageParsed(page) => {
                unreadable_runs += page.suppressed_text_runs;
                images += usize::try_from(page.image_op_count).unwrap_or_default();
                fills += page.fill_op_count;
                push(page.number, page_text(&renderer, &page), &mut sections);
            }
            ParseEvent::PageFailed { page, .. } => {
                failed += 1;
                push(page, String::new(), &mut sections);
            }
            ParseEvent::Progress { .. } | ParseEvent::DocumentEnd { .. } => {}
        }
        ControlFlow::Continue(())
    });
    let quality = quality.map_err(failure)?;
    if sections.is_empty() {
        return Err(ExtractFailure::damaged("it has no pages"));
    }
    let mut left_out = Vec::new();
    let empty = sections.iter().filter(|page| page.text.trim().is_empty()).count();
    // Letters can also be drawn as filled shapes.
    if empty == sections.len() && (images > 0 || fills > 0) {
        let pages = count(empty, "page").unwrap_or_default();
        left_out.push(format!(
            "everything: {pages} without text, as in a scan; text recognition is not available"
        ));
    } else {
        left_out.extend(count(images, "image"));
        left_out.extend(count(empty, "page").map(|pages| format!("{pages} without text")));
    }
    left_out.extend(count(failed, "page").map(|pages| format!("{pages} that could not be parsed")));
    left_out.extend(
        count(unreadable_runs, "passage").map(|runs| format!("{runs} in fonts without a Unicode mapping")),
    );
    if quality.pages_incomplete {
        left_out.push("pages that the damaged page tree does not reach".to_owned());
    }
    let title = title.map(|title| title.trim().to_owned()).filter(|title| !title.is_empty());
    Ok(ExtractedText { format: Format::Pdf, title, sections, left_out })
}

fn page_text(renderer: &BlockRenderer, page: &Page) -> String {
    let mut out = String::new();
    let mut previous: Option<&Block> = None;
    for block in &page.elements {
        if !matches!(block, Block::Image { .. }) {
            out.push_str(&renderer.render_block_after(previous, block));
        }
        previous = Some(block);
    }
    out
}

fn failure(error: Error) -> ExtractFailure {
    match error {
        Error::Encrypted | Error::InvalidPassword => ExtractFailure::Encrypted,
        error => ExtractFailure::damaged(error),
    }
}
