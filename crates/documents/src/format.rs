//! The formats of documents and archives, recognised by name, media type and content.

use serde::{Deserialize, Serialize};

/// A format whose text can be extracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Format {
    /// PDF.
    Pdf,
    /// Word.
    Docx,
    /// Excel in XML, also with macros.
    Xlsx,
    /// Excel in binary XML.
    Xlsb,
    /// Excel before 2007.
    Xls,
    /// OpenDocument spreadsheet.
    Ods,
    /// PowerPoint.
    Pptx,
    /// OpenDocument text.
    Odt,
    /// OpenDocument presentation.
    Odp,
    /// Rich Text Format.
    Rtf,
    /// EPUB.
    Epub,
    /// HTML.
    Html,
    /// Jupyter notebook.
    Ipynb,
    /// One mail.
    Eml,
    /// A mailbox of several mails.
    Mbox,
    /// Comma-separated values.
    Csv,
    /// Tab-separated values.
    Tsv,
}

/// The formats with their extensions and media types. The first extension and media type are the usual ones.
const FORMATS: &[(Format, &[&str], &[&str])] = &[
    (Format::Pdf, &["pdf"], &["application/pdf"]),
    (
        Format::Docx,
        &["docx", "docm", "dotx"],
        &["application/vnd.openxmlformats-officedocument.wordprocessingml.document"],
    ),
    (
        Format::Xlsx,
        &["xlsx", "xlsm", "xltx"],
        &["application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"],
    ),
    (Format::Xlsb, &["xlsb"], &["application/vnd.ms-excel.sheet.binary.macroEnabled.12"]),
    (Format::Xls, &["xls"], &["application/vnd.ms-excel"]),
    (Format::Ods, &["ods"], &["application/vnd.oasis.opendocument.spreadsheet"]),
    (
        Format::Pptx,
        &["pptx", "pptm", "ppsx"],
        &["application/vnd.openxmlformats-officedocument.presentationml.presentation"],
    ),
    (Format::Odt, &["odt", "ott"], &["application/vnd.oasis.opendocument.text"]),
    (Format::Odp, &["odp"], &["application/vnd.oasis.opendocument.presentation"]),
    (Format::Rtf, &["rtf"], &["application/rtf", "text/rtf"]),
    (Format::Epub, &["epub"], &["application/epub+zip"]),
    (Format::Html, &["html", "htm", "xhtml"], &["text/html", "application/xhtml+xml"]),
    (Format::Ipynb, &["ipynb"], &["application/x-ipynb+json"]),
    (Format::Eml, &["eml"], &["message/rfc822"]),
    (Format::Mbox, &["mbox"], &["application/mbox"]),
    (Format::Csv, &["csv"], &["text/csv"]),
    (Format::Tsv, &["tsv"], &["text/tab-separated-values"]),
];

impl Format {
    /// All formats.
    pub fn all() -> impl Iterator<Item = Self> {
        FORMATS.iter().map(|(format, ..)| *format)
    }

    /// The usual extension, which is also the name of the format in messages and in `_meta`.
    pub fn name(self) -> &'static str {
        self.row().1[0]
    }

    /// The usual media type.
    pub fn mime(self) -> &'static str {
        self.row().2[0]
    }

    fn row(self) -> &'static (Self, &'static [&'static str], &'static [&'static str]) {
        FORMATS.iter().find(|(format, ..)| *format == self).unwrap_or(&FORMATS[0])
    }

    /// The format of a file with this name or path, by its extension.
    pub fn by_name(path: &str) -> Option<Self> {
        let dot = path.len() - path.bytes().rev().take(6).position(|byte| byte == b'.')?;
        let extension = &path[dot..];
        let is = |known: &&str| known.eq_ignore_ascii_case(extension);
        FORMATS.iter().find(|(_, extensions, _)| extensions.iter().any(&is)).map(|row| row.0)
    }

    /// The format of a media type, without its parameters.
    pub fn by_mime(mime: &str) -> Option<Self> {
        let mime = mime.split(';').next().unwrap_or_default().trim();
        let is = |known: &&str| known.eq_ignore_ascii_case(mime);
        FORMATS.iter().find(|(_, _, mimes)| mimes.iter().any(&is)).map(|row| row.0)
    }

    /// The format of a document: by its content if that is conclusive, otherwise by its extension, then by its media
    /// type.
    pub fn of(path: &str, mime: Option<&str>, data: &[u8]) -> Option<Self> {
        let named = Self::by_name(path).or_else(|| mime.and_then(Self::by_mime));
        match LeadingBytes::of(data) {
            Some(LeadingBytes::Certain(format)) => Some(format),
            // The extension or media type says which kind of package it is; otherwise, the names of its members do.
            Some(LeadingBytes::Zip) => named.filter(|named| named.is_zip()).or_else(|| zip_format(data)),
            Some(LeadingBytes::Ole) => named.filter(|named| *named == Self::Xls),
            None => named.filter(|named| named.is_text()),
        }
    }

    /// Whether documents of this format are zip archives.
    pub fn is_zip(self) -> bool {
        use Format::{Docx, Epub, Odp, Ods, Odt, Pptx, Xlsb, Xlsx};
        matches!(self, Docx | Xlsx | Xlsb | Ods | Pptx | Odt | Odp | Epub)
    }

    /// Whether documents of this format are text files without a signature.
    fn is_text(self) -> bool {
        matches!(self, Self::Html | Self::Ipynb | Self::Eml | Self::Mbox | Self::Csv | Self::Tsv)
    }

    /// Whether a document of this format is itself text, and so readable without an extraction.
    pub fn is_readable(self) -> bool {
        self.is_text() || self == Self::Rtf
    }
}

/// What the first bytes of a document reveal about its format.
enum LeadingBytes {
    Certain(Format),
    Zip,
    /// Microsoft's compound file, the format of office files before 2007.
    Ole,
}

impl LeadingBytes {
    fn of(data: &[u8]) -> Option<Self> {
        let head = &data[..data.len().min(1024)];
        match data {
            // Some producers write a few bytes before the signature, and readers accept them.
            _ if head.windows(5).any(|window| window == b"%PDF-") => Some(Self::Certain(Format::Pdf)),
            [b'{', b'\\', b'r', b't', b'f', ..] => Some(Self::Certain(Format::Rtf)),
            [b'P', b'K', 3 | 5, 4 | 6, ..] => Some(Self::Zip),
            [0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1, ..] => Some(Self::Ole),
            _ => None,
        }
    }
}

/// The format of a zip archive, guessed from its first 64 KiB: member names, and the member `mimetype`, are not
/// compressed.
fn zip_format(data: &[u8]) -> Option<Format> {
    let head = &data[..data.len().min(64 * 1024)];
    let has = |text: &str| head.windows(text.len()).any(|window| window == text.as_bytes());
    let mimetype = |format: Format| has(&format!("mimetype{}", format.mime()));
    if let Some(format) =
        [Format::Epub, Format::Odt, Format::Ods, Format::Odp].into_iter().find(|f| mimetype(*f))
    {
        return Some(format);
    }
    let parts =
        [("word/document.xml", Format::Docx), ("xl/workbook.xml", Format::Xlsx), ("ppt/", Format::Pptx)];
    parts.into_iter().find(|(name, _)| has(name)).map(|(_, format)| format)
}

/// A format of archives whose members are resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ArchiveFormat {
    /// zip.
    Zip,
    /// tar.
    Tar,
    /// tar, compressed with gzip.
    TarGz,
}

impl ArchiveFormat {
    /// The extensions, in lower case. If one is a suffix of another, the longer one comes first.
    pub(crate) const EXTENSIONS: [(&'static str, Self); 4] =
        [(".tar.gz", Self::TarGz), (".tgz", Self::TarGz), (".tar", Self::Tar), (".zip", Self::Zip)];

    /// The format of an archive with this name or path, by its extension.
    pub fn by_name(path: &str) -> Option<Self> {
        let ends = |extension: &str| {
            let start = path.len().checked_sub(extension.len());
            start.is_some_and(|start| {
                start > 0 && path.as_bytes()[start..].eq_ignore_ascii_case(extension.as_bytes())
            })
        };
        Self::EXTENSIONS.iter().find(|(extension, _)| ends(extension)).map(|(_, format)| *format)
    }
}

#[cfg(test)]
mod tests {
    use super::{ArchiveFormat, Format};

    #[test]
    fn formats_are_recognised_by_content_before_name_before_media_type() {
        let of = |path, mime, data: &[u8]| Format::of(path, mime, data);
        assert_eq!(of("a.txt", None, b"\n%PDF-1.7\n"), Some(Format::Pdf));
        assert_eq!(of("a.pdf", None, b"no pdf"), None);
        assert_eq!(of("report", Some("application/pdf"), b"%PDF-1.4"), Some(Format::Pdf));
        assert_eq!(of("a.DOCX", None, b"PK\x03\x04 rest"), Some(Format::Docx));
        assert_eq!(of("a.bin", None, b"PK\x03\x04 xx xl/workbook.xml"), Some(Format::Xlsx));
        assert_eq!(of("a.zip", None, b"PK\x03\x04 other"), None);
        assert_eq!(of("a.xls", None, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), Some(Format::Xls));
        assert_eq!(of("a.doc", None, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), None);
        assert_eq!(of("a.csv", Some("text/plain"), b"a,b"), Some(Format::Csv));
        assert_eq!(of("page", Some("text/html; charset=utf-8"), b"<p>"), Some(Format::Html));
        assert_eq!(of("a.rtf", None, b"plain"), None);
        assert_eq!(of("", None, b""), None);
    }

    #[test]
    fn archives_are_recognised_by_their_whole_extension() {
        assert_eq!(ArchiveFormat::by_name("a.tar.gz"), Some(ArchiveFormat::TarGz));
        assert_eq!(ArchiveFormat::by_name("a.TGZ"), Some(ArchiveFormat::TarGz));
        assert_eq!(ArchiveFormat::by_name("a.gz"), None);
        assert_eq!(ArchiveFormat::by_name(".zip"), None);
        assert_eq!(Format::by_name("a.zip/é"), None);
    }
}
