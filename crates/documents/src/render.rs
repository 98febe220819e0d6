//! Renders a page of a PDF as a PNG image, with the `hayro` crate.
//!
//! As in [`extract`](mod@crate::extract), a hostile document can make this panic, loop or use much memory, so only a
//! [child process](crate::child) calls it.

use serde::{Deserialize, Serialize};

use crate::extract::{ExtractFailure, ExtractResult};

/// The widths in pixels that can be requested.
pub(crate) const WIDTHS: std::ops::RangeInclusive<u16> = 50..=2000;

/// The width of an image if none is requested: text of 10 points is readable, for people and for models.
pub(crate) const DEFAULT_WIDTH: u16 = 1000;

/// The maximum number of pixels of an image. A page in A4 at the largest width has fewer.
#[cfg(feature = "pdf-images")]
const MAX_PIXELS: f64 = 6e6;

/// The maximum number of pixels of a side. The image of a page that is much longer than wide is smaller than requested.
#[cfg(feature = "pdf-images")]
const MAX_SIDE: f64 = 8000.0;

/// Which page to render, and how large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct PageRendering {
    /// The number of the page, from 1.
    pub page: usize,
    /// The width of the image in pixels. The image is smaller if it would have too many pixels.
    pub width: u16,
}

/// The properties of a rendered page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct PageImage {
    /// The number of pages of the document.
    pub pages: usize,
    /// The number of this page, from 1.
    pub page: usize,
    /// The width of the image in pixels.
    pub width: u16,
    /// The height of the image in pixels.
    pub height: u16,
}

/// Renders a page of a PDF. Returns the properties of the image, and the image as PNG.
#[cfg(not(feature = "pdf-images"))]
pub(crate) fn render(_data: Vec<u8>, _rendering: PageRendering) -> ExtractResult<(PageImage, Vec<u8>)> {
    let images = "images of PDF pages".to_owned();
    Err(ExtractFailure::Unsupported(images))
}

/// Renders a page of a PDF. Returns the properties of the image, and the image as PNG.
#[cfg(feature = "pdf-images")]
pub(crate) fn render(data: Vec<u8>, rendering: PageRendering) -> ExtractResult<(PageImage, Vec<u8>)> {
    use hayro::hayro_interpret::InterpreterSettings;
    use hayro::hayro_syntax::{LoadPdfError, Pdf};
    use hayro::vello_cpu::color::palette::css::WHITE;
    use hayro::{PixmapSettings, RenderCache, RenderSettings};

    let pdf = Pdf::new(data).map_err(|error| match error {
        LoadPdfError::Decryption(_) => ExtractFailure::Encrypted,
        LoadPdfError::Invalid => ExtractFailure::damaged("it is no valid PDF file"),
    })?;
    let pages = pdf.pages();
    let PageRendering { page: number, width } = rendering;
    let Some(page) = number.checked_sub(1).and_then(|index| pages.get(index)) else {
        return Err(match pages.len() {
            0 => ExtractFailure::damaged("it has no pages"),
            pages => ExtractFailure::NoPage(pages),
        });
    };
    let (page_width, page_height) = page.render_dimensions();
    let (width, height) = image_size(page_width.into(), page_height.into(), width)?;
    // The renderer rounds the product of scale and page size down.
    let scale = |pixels: u16, points: f32| (f32::from(pixels) + 0.25) / points;
    let settings = PixmapSettings {
        x_scale: scale(width, page_width),
        y_scale: scale(height, page_height),
        bg_color: WHITE,
    };
    let pixmap = hayro::render(
        page,
        &RenderCache::new(),
        &InterpreterSettings::default(),
        &RenderSettings::default(),
        &settings,
    );
    let image =
        PageImage { pages: pages.len(), page: number, width: pixmap.width(), height: pixmap.height() };
    let png = encode(&image, pixmap.data_as_u8_slice()).map_err(ExtractFailure::damaged)?;
    Ok((image, png))
}

/// The size in pixels of the image of a page, whose own size is in points.
#[cfg(feature = "pdf-images")]
fn image_size(width: f64, height: f64, requested: u16) -> ExtractResult<(u16, u16)> {
    let scale = (f64::from(requested) / width)
        .min((MAX_PIXELS / (width * height)).sqrt())
        .min(MAX_SIDE / width.max(height));
    let is_size = |points: f64| points.is_finite() && points > 0.0;
    if !(is_size(width) && is_size(height) && is_size(scale)) {
        return Err(ExtractFailure::damaged("a page has no size"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most `MAX_SIDE`")]
    let pixels = |points: f64| (points * scale).round().clamp(1.0, MAX_SIDE) as u16;
    Ok((pixels(width), pixels(height)))
}

/// Encodes opaque RGBA pixels as PNG, in grey if no pixel has a colour.
#[cfg(feature = "pdf-images")]
fn encode(image: &PageImage, pixels: &[u8]) -> Result<Vec<u8>, png::EncodingError> {
    let (pixels, _) = pixels.as_chunks::<4>();
    let is_grey = pixels.iter().all(|[red, green, blue, _]| red == green && green == blue);
    let (color, samples): (_, Vec<u8>) = match is_grey {
        true => (png::ColorType::Grayscale, pixels.iter().map(|pixel| pixel[0]).collect()),
        false => (
            png::ColorType::Rgb,
            pixels.iter().flat_map(|[red, green, blue, _]| [*red, *green, *blue]).collect(),
        ),
    };
    let mut data = Vec::new();
    let mut encoder = png::Encoder::new(&mut data, image.width.into(), image.height.into());
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&samples)?;
    writer.finish()?;
    Ok(data)
}

#[cfg(all(test, feature = "pdf-images"))]
mod tests {
    use super::{MAX_PIXELS, MAX_SIDE, WIDTHS, image_size};

    #[test]
    fn an_image_has_the_requested_width_within_the_limits() {
        assert_eq!(image_size(595.0, 842.0, 1000), Ok((1000, 1415)));
        assert_eq!(image_size(842.0, 595.0, 50), Ok((50, 35)));
        // A4 at the largest width.
        assert_eq!(image_size(595.0, 842.0, *WIDTHS.end()), Ok((2000, 2830)));
        for (width, height) in [(1.0, 14_400.0), (14_400.0, 1.0), (100.0, 390.0), (3.0, 1e30), (1e-30, 1.0)] {
            let (across, down) = image_size(width, height, *WIDTHS.end()).unwrap();
            let pixels = f64::from(across) * f64::from(down);
            assert!(
                across > 0 && down > 0 && pixels <= MAX_PIXELS + MAX_SIDE,
                "{width} × {height}: {across} × {down}"
            );
            assert!(f64::from(across.max(down)) <= MAX_SIDE);
        }
        for wrong in [0.0, f64::NAN, f64::INFINITY] {
            assert!(image_size(wrong, 100.0, 1000).is_err(), "{wrong}");
        }
    }
}
