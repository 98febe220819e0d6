//! The text of a document, divided into pages, slides, sheets, chapters or cells.

use serde::{Deserialize, Serialize};

use crate::Format;

/// The text of a document.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ExtractedText {
    /// The format of the document.
    pub format: Format,
    /// The title in the document's metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The sections in reading order; exactly one for formats without sections.
    pub sections: Vec<DocumentSection>,
    /// Phrases for what the text lacks, such as "2 images".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

/// A page, slide, sheet, chapter, cell or mail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct DocumentSection {
    /// The name of a sheet or the title of a chapter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The text as Markdown.
    pub text: String,
    /// If the section is one table: how many lines of `text` come before its first row. A selection of rows keeps them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_head: Option<usize>,
}

impl DocumentSection {
    /// A section without a name.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

/// What a section of a document is, by its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionUnit {
    /// Pages of a PDF.
    Page,
    /// Slides of a presentation, selected by `pages` as well.
    Slide,
    /// Sheets of a spreadsheet.
    Sheet,
    /// Chapters of a book.
    Chapter,
    /// Cells of a notebook.
    Cell,
    /// Mails of a mailbox.
    Mail,
    /// The document has one section.
    Whole,
}

impl SectionUnit {
    /// The unit of a format.
    pub fn of(format: Format) -> Self {
        match format {
            Format::Pdf => Self::Page,
            Format::Pptx | Format::Odp => Self::Slide,
            Format::Xlsx | Format::Xlsb | Format::Xls | Format::Ods => Self::Sheet,
            Format::Epub => Self::Chapter,
            Format::Ipynb => Self::Cell,
            Format::Mbox => Self::Mail,
            Format::Docx
            | Format::Odt
            | Format::Rtf
            | Format::Html
            | Format::Eml
            | Format::Csv
            | Format::Tsv => Self::Whole,
        }
    }

    /// The URI parameter that selects sections.
    pub fn parameter(self) -> Option<&'static str> {
        match self {
            Self::Page | Self::Slide => Some("pages"),
            Self::Sheet => Some("sheet"),
            Self::Chapter => Some("chapter"),
            Self::Cell => Some("cells"),
            Self::Mail => Some("mails"),
            Self::Whole => None,
        }
    }

    /// The plural of the unit, for messages and `_meta`.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Page => "pages",
            Self::Slide => "slides",
            Self::Sheet => "sheets",
            Self::Chapter => "chapters",
            Self::Cell => "cells",
            Self::Mail => "mails",
            Self::Whole => "sections",
        }
    }
}

impl ExtractedText {
    /// The memory that the text uses, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let section = |section: &DocumentSection| {
            size_of::<DocumentSection>() + section.text.len() + section.name.as_ref().map_or(0, String::len)
        };
        size_of::<Self>()
            + self.sections.iter().map(section).sum::<usize>()
            + self.left_out.iter().map(String::len).sum::<usize>()
    }
}
