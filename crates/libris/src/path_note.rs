//! Notes on the resources below a path, from the configuration of a server.

use libris_core::Uri;

/// A note on the resources below a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathNote {
    /// The beginning of a URI, or a path such as `adr/`, which matches every URI that contains it after a slash.
    pub path: String,
    /// The note, such as "why things are as they are".
    pub note: String,
}

impl PathNote {
    /// Whether the note is about this resource.
    pub(crate) fn covers(&self, uri: &Uri) -> bool {
        let text = uri.as_str();
        let path = self.path.trim_start_matches('/');
        text.starts_with(&*self.path) || text.contains(&format!("/{path}"))
    }
}

#[cfg(test)]
mod tests {
    use super::PathNote;
    use libris_core::Uri;

    #[test]
    fn a_note_covers_a_folder_at_any_depth() {
        let note = |path: &str| PathNote { path: path.to_owned(), note: String::new() };
        let uri = Uri::parse("file:///docs/adr/0001.md").unwrap();
        assert!(note("adr/").covers(&uri) && note("/adr/").covers(&uri));
        assert!(note("file:///docs/").covers(&uri) && note("docs/adr").covers(&uri));
        assert!(!note("dr/").covers(&uri) && !note("file:///other").covers(&uri));
    }
}
