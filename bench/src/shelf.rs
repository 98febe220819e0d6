//! The files of a folder in memory, for the limit and the minimal rmcp server.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, Result};

/// The number of resources on a page.
pub(crate) const PAGE: usize = 100;

/// All files of one folder, in the order of their URIs.
pub(crate) struct Shelf {
    pub(crate) books: Vec<Book>,
    /// The index in `books` by URI.
    places: HashMap<String, usize>,
}

/// One file.
pub(crate) struct Book {
    pub(crate) uri: String,
    pub(crate) name: String,
    pub(crate) mime: &'static str,
    pub(crate) size: u64,
    pub(crate) modified: String,
    pub(crate) content: Content,
}

/// The content of a file.
pub(crate) enum Content {
    Text(String),
    Blob(Vec<u8>),
}

impl Content {
    /// The current content of a file.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let bytes = std::fs::read(file)?;
        let text = file.extension().is_some_and(|extension| extension == "txt");
        Ok(if text { Self::Text(String::from_utf8(bytes)?) } else { Self::Blob(bytes) })
    }
}

impl Shelf {
    /// Reads all files directly in a folder.
    pub(crate) fn load(folder: &Path) -> Result<Self> {
        let mount = folder.file_name().context("the folder has no name")?.to_string_lossy();
        let mut books = Vec::new();
        for entry in folder.read_dir().with_context(|| format!("could not list `{}`", folder.display()))? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if !metadata.is_file() {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            let content = Content::read(&entry.path())?;
            let mime = match content {
                Content::Text(_) => "text/plain",
                Content::Blob(_) => "application/octet-stream",
            };
            let modified = jiff::Timestamp::try_from(metadata.modified()?)?;
            books.push(Book {
                uri: format!("file:///{mount}/{name}"),
                name,
                mime,
                size: metadata.len(),
                modified: modified.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                content,
            });
        }
        books.sort_by(|one, other| one.uri.cmp(&other.uri));
        let places = books.iter().enumerate().map(|(at, book)| (book.uri.clone(), at)).collect();
        Ok(Self { books, places })
    }

    pub(crate) fn find(&self, uri: &str) -> Option<&Book> {
        self.places.get(uri).map(|&at| &self.books[at])
    }

    /// A page and the cursor of the next one; `None` if the cursor is invalid.
    pub(crate) fn page(&self, cursor: Option<&str>) -> Option<(&[Book], Option<String>)> {
        let start = cursor.map_or(Some(0), |cursor| cursor.parse().ok())?;
        let end = self.books.len().min(start + PAGE);
        Some((self.books.get(start..end)?, (end < self.books.len()).then(|| end.to_string())))
    }
}
