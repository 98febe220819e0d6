//! Recognises documents, such as PDF files, whose extracted text is searched and shown to models instead of their
//! bytes.

use libris_core::Uri;

/// The file name extensions of documents whose text a source can extract.
const EXTENSIONS: [&str; 25] = [
    "pdf", "docx", "docm", "dotx", "xlsx", "xlsm", "xltx", "xlsb", "xls", "pptx", "pptm", "ppsx", "odt",
    "ott", "ods", "odp", "rtf", "epub", "ipynb", "eml", "mbox", "zip", "tar", "tgz", "tar.gz",
];

/// Prefixes of the media types of such documents.
const MEDIA_TYPES: [&str; 9] = [
    "application/pdf",
    "application/vnd.openxmlformats-officedocument.",
    "application/vnd.ms-excel",
    "application/vnd.oasis.opendocument.",
    "application/rtf",
    "application/epub+zip",
    "application/x-ipynb+json",
    "application/mbox",
    "message/rfc822",
];

/// The URI of the extracted text of a document; `None` for other resources, and for a URI that already has the
/// parameter `as`. A read of this URI may fail, because not every source extracts text.
pub(crate) fn text_uri(uri: &Uri, mime: Option<&str>) -> Option<Uri> {
    let is_mime = || mime.is_some_and(|mime| MEDIA_TYPES.iter().any(|start| mime.starts_with(start)));
    if has_parameter(uri, "as") || !(has_extension(uri) || is_mime()) {
        return None;
    }
    with_parameter(uri, "as", "text")
}

fn has_extension(uri: &Uri) -> bool {
    let path = uri.path();
    EXTENSIONS.iter().any(|extension| {
        let start = path.len().checked_sub(extension.len() + 1);
        start
            .and_then(|start| path.get(start..))
            .is_some_and(|end| end.starts_with('.') && end[1..].eq_ignore_ascii_case(extension))
    })
}

/// Whether the query of a URI has this parameter.
pub(crate) fn has_parameter(uri: &Uri, name: &str) -> bool {
    let pairs = uri.query().unwrap_or_default().split('&');
    pairs.map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name)).any(|found| found == name)
}

/// The URI with a parameter added to its query, and without its fragment; `None` if the result is not a valid URI.
pub(crate) fn with_parameter(uri: &Uri, name: &str, value: &str) -> Option<Uri> {
    let text = uri.as_str().split('#').next().unwrap_or_default();
    let separator = if text.contains('?') { '&' } else { '?' };
    let value = Uri::encode_segment(value.as_bytes()).replace('&', "%26");
    Uri::parse(&format!("{text}{separator}{name}={value}")).ok()
}

#[cfg(test)]
mod tests {
    use super::text_uri;
    use libris_core::Uri;

    #[test]
    fn documents_have_a_text() {
        for (uri, mime, expected) in [
            ("file:///a/b.PDF", None, Some("file:///a/b.PDF?as=text")),
            ("file:///a/b.pdf?as=original", None, None),
            ("http://x/y?id=1", Some("application/pdf"), Some("http://x/y?id=1&as=text")),
            ("file:///a/b.md", Some("text/markdown"), None),
            ("file:///a/pdf", None, None),
            ("file:///a/b.csv", Some("text/csv"), None),
        ] {
            let uri = Uri::parse(uri).unwrap();
            assert_eq!(text_uri(&uri, mime).as_ref().map(Uri::as_str), expected);
        }
    }
}
