//! Reads zip archives, such as the packages of office documents, with a limit on the decompressed bytes.

use std::io::Cursor;

use zip::ZipArchive;
use zip::result::ZipError;

use super::{ExtractFailure, ExtractResult};
use crate::decompress::read_up_to;

/// An archive with more members is refused.
pub(crate) const MAX_MEMBERS: usize = 100_000;

/// A zip archive. What is read from it may have at most `limit` bytes in total, decompressed.
pub(crate) struct ZipPackage<'a> {
    archive: ZipArchive<Cursor<&'a [u8]>>,
    /// How many more bytes may be decompressed.
    left: u64,
    limit: u64,
}

impl<'a> ZipPackage<'a> {
    pub(crate) fn open(data: &'a [u8], limit: u64) -> ExtractResult<Self> {
        let archive = ZipArchive::new(Cursor::new(data)).map_err(failure)?;
        if archive.len() > MAX_MEMBERS {
            return Err(ExtractFailure::damaged(format!("it has more than {MAX_MEMBERS} members")));
        }
        Ok(Self { archive, left: limit, limit })
    }

    pub(crate) fn archive(&mut self) -> &mut ZipArchive<Cursor<&'a [u8]>> {
        &mut self.archive
    }

    /// Whether there is a member of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.archive.index_for_name(name).is_some()
    }

    /// The decompressed data of a member; `None` if there is none of this name.
    pub(crate) fn read(&mut self, name: &str) -> ExtractResult<Option<Vec<u8>>> {
        match self.archive.index_for_name(name) {
            Some(index) => self.read_index(index).map(Some),
            None => Ok(None),
        }
    }

    /// The decompressed data of the member at an index.
    pub(crate) fn read_index(&mut self, index: usize) -> ExtractResult<Vec<u8>> {
        let member = self.archive.by_index(index).map_err(failure)?;
        // The declared size is not trusted.
        let data = read_up_to(member, self.left)?.ok_or(ExtractFailure::Expands(self.limit))?;
        self.left -= data.len() as u64;
        Ok(data)
    }

    /// Like [`read`](Self::read), but a missing member is an error: every document of the format has it.
    pub(crate) fn require(&mut self, name: &str) -> ExtractResult<Vec<u8>> {
        self.read(name)?.ok_or_else(|| ExtractFailure::damaged(format!("it has no part `{name}`")))
    }
}

/// Converts an error of the zip library.
pub(crate) fn failure(error: ZipError) -> ExtractFailure {
    match error {
        ZipError::UnsupportedArchive(ZipError::PASSWORD_REQUIRED) | ZipError::InvalidPassword => {
            ExtractFailure::Encrypted
        }
        error => ExtractFailure::damaged(error),
    }
}

/// Resolves a reference in a part of the package, such as `../media/image1.png`, against the folder of that part.
#[cfg(any(feature = "html", feature = "office"))]
pub(crate) fn resolve(folder: &str, target: &str) -> String {
    let mut path: Vec<&str> = match target.starts_with('/') {
        true => Vec::new(),
        false => folder.split('/').filter(|segment| !segment.is_empty()).collect(),
    };
    for segment in target.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(path.pop()),
            name => path.push(name),
        }
    }
    path.join("/")
}

/// The path of a part without its name and the slash before it.
#[cfg(any(feature = "html", feature = "office"))]
pub(crate) fn folder(part: &str) -> &str {
    part.rsplit_once('/').map_or("", |(folder, _)| folder)
}
