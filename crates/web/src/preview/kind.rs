//! Decides how a content is rendered.

/// How a content is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PreviewKind {
    /// Rendered Markdown.
    Markdown,
    /// A tree that can be folded.
    Json,
    /// Rows and columns.
    Table,
    /// The cells of a Jupyter notebook.
    Notebook,
    /// Highlighted lines.
    Source,
    /// Bytes in hexadecimal.
    Hex,
}

impl PreviewKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::Json => "json",
            Self::Table => "table",
            Self::Notebook => "notebook",
            Self::Source => "source",
            Self::Hex => "hex",
        }
    }
}

/// The kind of a text by its media type; if that is missing or generic, by the extension of its URI. The extension
/// `ipynb` overrides every media type except that of Markdown.
pub(super) fn of(mime: Option<&str>, uri: &str) -> PreviewKind {
    let mime = mime.unwrap_or_default();
    let mime = mime.split(';').next().unwrap_or_default().trim();
    let extension = extension(uri);
    if extension == "ipynb" && mime != "text/markdown" {
        return PreviewKind::Notebook;
    }
    match mime {
        "text/markdown" | "inode/directory" => PreviewKind::Markdown,
        "application/x-ipynb+json" => PreviewKind::Notebook,
        "application/json" => PreviewKind::Json,
        "text/csv" | "text/tab-separated-values" => PreviewKind::Table,
        mime if mime.ends_with("+json") => PreviewKind::Json,
        "" | "text/plain" | "application/octet-stream" => match &*extension {
            "md" | "markdown" => PreviewKind::Markdown,
            "json" | "geojson" => PreviewKind::Json,
            "csv" | "tsv" => PreviewKind::Table,
            _ => PreviewKind::Source,
        },
        _ => PreviewKind::Source,
    }
}

/// The extension of the last segment of a URI's path, in lower case.
pub(super) fn extension(uri: &str) -> String {
    let path = uri.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase()).unwrap_or_default()
}

/// The separator of a table: tab for `.tsv`, otherwise the most frequent candidate in the first line.
pub(super) fn separator(uri: &str, text: &str) -> char {
    if extension(uri) == "tsv" {
        return '\t';
    }
    let first = text.lines().next().unwrap_or_default();
    let mut best = (',', 0);
    for candidate in [',', ';', '\t'] {
        let count = first.matches(candidate).count();
        if count > best.1 {
            best = (candidate, count);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::{PreviewKind, of, separator};

    #[test]
    fn the_media_type_decides_before_the_extension() {
        for (mime, uri, kind) in [
            (Some("text/markdown"), "file:///a/b", PreviewKind::Markdown),
            (Some("text/markdown"), "file:///a/b.ipynb?as=text", PreviewKind::Markdown),
            (None, "file:///a/README.MD?lines=1-2", PreviewKind::Markdown),
            (Some("text/plain"), "file:///a/b.csv", PreviewKind::Table),
            (Some("text/x-rust"), "file:///a/b.csv", PreviewKind::Source),
            (Some("application/json; charset=utf-8"), "db://rows", PreviewKind::Json),
            (Some("application/geo+json"), "db://rows", PreviewKind::Json),
            (Some("application/json"), "file:///a.ipynb", PreviewKind::Notebook),
            (None, "file:///a.b/c", PreviewKind::Source),
        ] {
            assert_eq!(of(mime, uri), kind, "{mime:?} {uri}");
        }
    }

    #[test]
    fn the_separator_is_the_most_frequent() {
        assert_eq!(separator("a:b.csv", "a;b;c,d\n"), ';');
        assert_eq!(separator("a:b.csv", "a\n"), ',');
        assert_eq!(separator("a:b.tsv", "a,b\n"), '\t');
    }
}
