//! File name extensions by media type, for resources whose URIs have none.

/// The media types whose extension helps to open a file.
const EXTENSIONS: [(&str, &str); 45] = [
    ("application/epub+zip", "epub"),
    ("application/gzip", "gz"),
    ("application/javascript", "js"),
    ("application/json", "json"),
    ("application/msword", "doc"),
    ("application/pdf", "pdf"),
    ("application/rtf", "rtf"),
    ("application/toml", "toml"),
    ("application/vnd.ms-excel", "xls"),
    ("application/vnd.oasis.opendocument.spreadsheet", "ods"),
    ("application/vnd.oasis.opendocument.text", "odt"),
    ("application/vnd.openxmlformats-officedocument.presentationml.presentation", "pptx"),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
    ("application/x-ndjson", "ndjson"),
    ("application/xml", "xml"),
    ("application/yaml", "yaml"),
    ("application/zip", "zip"),
    ("audio/flac", "flac"),
    ("audio/mpeg", "mp3"),
    ("audio/ogg", "ogg"),
    ("audio/wav", "wav"),
    ("image/avif", "avif"),
    ("image/bmp", "bmp"),
    ("image/gif", "gif"),
    ("image/jpeg", "jpg"),
    ("image/png", "png"),
    ("image/svg+xml", "svg"),
    ("image/tiff", "tiff"),
    ("image/webp", "webp"),
    ("text/calendar", "ics"),
    ("text/css", "css"),
    ("text/csv", "csv"),
    ("text/html", "html"),
    ("text/javascript", "js"),
    ("text/markdown", "md"),
    ("text/tab-separated-values", "tsv"),
    ("text/vcard", "vcf"),
    ("text/x-diff", "diff"),
    ("text/x-python", "py"),
    ("text/x-rust", "rs"),
    ("text/xml", "xml"),
    ("text/yaml", "yaml"),
    ("video/mp4", "mp4"),
    ("video/webm", "webm"),
];

/// The extension of plain text. Resources whose URIs contain file names do not get it: a `LICENSE` has no extension.
const PLAIN: &str = "txt";

/// The extension that a resource without one gets.
pub(super) fn of(uri: &str, mime: &str) -> Option<&'static str> {
    let essence = mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "text/plain" {
        let has_file_names = ["file:", "git:", "skill:"].iter().any(|scheme| uri.starts_with(scheme));
        return (!has_file_names).then_some(PLAIN);
    }
    if let Ok(at) = EXTENSIONS.binary_search_by(|(known, _)| (*known).cmp(essence.as_str())) {
        return Some(EXTENSIONS[at].1);
    }
    // Such as `application/problem+json`.
    if essence.ends_with("+json") {
        return Some("json");
    }
    essence.ends_with("+xml").then_some("xml")
}

/// A name with the extension of its media type, if it has none.
pub(super) fn with_extension(mut name: String, uri: &str, mime: Option<&str>) -> String {
    if !name.contains('.')
        && let Some(extension) = mime.and_then(|mime| of(uri, mime))
    {
        name.push('.');
        name.push_str(extension);
    }
    name
}

/// Splits a name into its base and its extension, if [`with_extension`] may have added the extension.
pub(super) fn split(name: &str) -> Option<(&str, &str)> {
    let (base, extension) = name.split_once('.')?;
    let is_known = extension == PLAIN || EXTENSIONS.iter().any(|(_, known)| *known == extension);
    (is_known && !base.is_empty()).then_some((base, extension))
}

#[cfg(test)]
mod tests {
    use super::{EXTENSIONS, of, split, with_extension};

    #[test]
    fn the_table_is_sorted() {
        assert!(EXTENSIONS.is_sorted_by(|one, other| one.0 < other.0));
    }

    #[test]
    fn only_names_without_an_extension_get_one() {
        let named = |name: &str, uri, mime| with_extension(name.to_owned(), uri, Some(mime));
        assert_eq!(named("schema", "sqlite://shop/schema", "text/markdown"), "schema.md");
        assert_eq!(named("v1.2", "git://p/log/v1.2", "text/markdown"), "v1.2");
        assert_eq!(named("LICENSE", "file:///docs/LICENSE", "text/plain"), "LICENSE");
        assert_eq!(named("motd", "config://app/motd", "text/plain; charset=utf-8"), "motd.txt");
        assert_eq!(named("x", "a:x", "application/problem+json"), "x.json");
        assert_eq!(named("x", "a:x", "application/x-unknown"), "x");
        assert_eq!(of("a:x", "IMAGE/PNG"), Some("png"));
        assert_eq!(split("schema.json"), Some(("schema", "json")));
        assert_eq!(split("a.b.json"), None);
        assert_eq!(split(".json"), None);
        assert_eq!(split("a.exe"), None);
    }
}
