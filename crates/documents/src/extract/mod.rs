//! Extracts the text of a document from its bytes, as Markdown. Each format has a module.
//!
//! A hostile document can make these functions, or the libraries that they use, panic, loop or use much memory. So run
//! them only in a [child process](crate::child) with limits.

mod delimited;
#[cfg(feature = "office")]
mod docx;
#[cfg(feature = "office")]
mod docx_styles;
#[cfg(feature = "html")]
mod epub;
#[cfg(feature = "office")]
mod equation;
#[cfg(feature = "html")]
mod html;
#[cfg(feature = "mail")]
mod mail;
#[cfg(feature = "html")]
mod main_content;
#[cfg_attr(
    not(all(feature = "office", feature = "mail")),
    allow(dead_code, reason = "not every format has lists")
)]
mod markdown;
mod notebook;
#[cfg(feature = "office")]
mod odf;
#[cfg(any(feature = "archive", feature = "html", feature = "office"))]
#[cfg_attr(not(feature = "office"), allow(dead_code, reason = "archives need less of it than documents"))]
pub(crate) mod package;
#[cfg(feature = "pdf")]
mod pdf;
#[cfg(feature = "office")]
mod pptx;
mod rtf;
#[cfg(feature = "office")]
mod spreadsheet;
mod text;
#[cfg(any(feature = "html", feature = "office"))]
#[cfg_attr(not(feature = "office"), allow(dead_code, reason = "books need less of it than office files"))]
mod xml;

use serde::{Deserialize, Serialize};

use crate::{ExtractedText, ExtractionLimits, Format};

/// What to extract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub struct ExtractOptions {
    /// The format of the document.
    pub format: Format,
    /// Which part of an HTML page.
    pub content: HtmlContent,
    /// Whether the source already decoded the document to UTF-8, so that the charset that an HTML page declares is
    /// ignored.
    pub decoded: bool,
}

/// Which part of an HTML page is extracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HtmlContent {
    /// The main content, without navigation and other page furniture.
    #[default]
    Main,
    /// The whole page.
    All,
}

/// Why an extraction failed. The messages are sent to clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ExtractFailure {
    /// The document does not follow its format.
    #[error("the document is damaged: {0}")]
    Damaged(String),
    /// The document is encrypted.
    #[error("the document is encrypted and needs a password")]
    Encrypted,
    /// The document is larger than the limit when decompressed.
    #[error("the document has more than {0} bytes when decompressed")]
    Expands(u64),
    /// The document has only this many pages.
    #[error("the document has {0} pages")]
    NoPage(usize),
    /// The archive has no member of this name.
    #[error("the archive has no such member")]
    NoMember,
    /// This program was compiled without the format.
    #[error("this program was compiled without support for {0}: use a build with all features")]
    Unsupported(String),
}

impl ExtractFailure {
    pub(crate) fn damaged(what: impl std::fmt::Display) -> Self {
        // The message of a library may quote much of the document.
        Self::Damaged(what.to_string().chars().take(200).collect())
    }
}

/// The result of an extraction.
pub type ExtractResult<T, E = ExtractFailure> = std::result::Result<T, E>;

/// Extracts the text of a document.
#[cfg_attr(
    not(any(feature = "html", feature = "office")),
    allow(unused_variables, reason = "only formats in ZIP packages use `limits`")
)]
pub fn extract(
    data: &[u8],
    options: ExtractOptions,
    limits: &ExtractionLimits,
) -> ExtractResult<ExtractedText> {
    let mut text = match options.format {
        #[cfg(feature = "pdf")]
        Format::Pdf => pdf::extract(data),
        #[cfg(feature = "office")]
        Format::Docx => docx::extract(data, limits),
        #[cfg(feature = "office")]
        Format::Pptx => pptx::extract(data, limits),
        #[cfg(feature = "office")]
        Format::Odt | Format::Odp => odf::extract(data, options.format, limits),
        #[cfg(feature = "office")]
        Format::Xlsx | Format::Xlsb | Format::Xls | Format::Ods => {
            spreadsheet::extract(data, options.format, limits)
        }
        #[cfg(feature = "html")]
        Format::Epub => epub::extract(data, limits),
        #[cfg(feature = "html")]
        Format::Html => html::extract(data, options),
        #[cfg(feature = "mail")]
        Format::Eml | Format::Mbox => mail::extract(data, options.format),
        Format::Rtf => rtf::extract(data),
        Format::Ipynb => notebook::extract(data),
        Format::Csv | Format::Tsv => delimited::extract(data, options),
        #[allow(unreachable_patterns, reason = "formats without their feature")]
        other => Err(ExtractFailure::Unsupported(other.name().to_owned())),
    }?;
    for section in &mut text.sections {
        let end = section.text.trim_end().len();
        section.text.truncate(end);
    }
    Ok(text)
}
