//! The content of an inline resource.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use libris_core::{ContentBody, Error, Result};

use super::InlineEntry;
use crate::media;

/// The content of an inline resource.
#[derive(Clone, Debug)]
pub(super) enum InlineData {
    Text(String),
    Bytes(Bytes),
    File(PathBuf),
}

/// The metadata of a content.
pub(super) struct DataMetadata {
    pub(super) mime: String,
    pub(super) size: Option<u64>,
    pub(super) modified: Option<Timestamp>,
}

impl InlineData {
    /// The content of an entry. Errors do not name the URI; the caller adds it.
    pub(super) fn of<U>(entry: &InlineEntry<U>, folder: &Path) -> Result<Self, String> {
        match (&entry.text, &entry.base64, &entry.file) {
            (Some(text), None, None) => Ok(Self::Text(text.clone())),
            (None, Some(base64), None) => {
                // Long Base64 may have line breaks.
                let packed: String = base64.split_whitespace().collect();
                match STANDARD.decode(packed) {
                    Ok(bytes) => Ok(Self::Bytes(bytes.into())),
                    Err(cause) => Err(format!(
                        "its `base64` cannot be decoded: {cause}; hint: encode the data again, as `base64 --wrap=0` does"
                    )),
                }
            }
            (None, None, Some(file)) => {
                let path = folder.join(file);
                match std::fs::metadata(&path) {
                    Ok(metadata) if metadata.is_file() => Ok(Self::File(path)),
                    Ok(_) => {
                        Err(format!("its file `{}` is not a regular file; hint: name a file", file.display()))
                    }
                    Err(cause) => Err(format!(
                        "its file `{}` cannot be read: {cause}; hint: check the path",
                        file.display()
                    )),
                }
            }
            (None, None, None) => Err("it has no content: set `text`, `base64` or `file`".into()),
            _ => Err("it has several contents: set only one of `text`, `base64` and `file`".into()),
        }
    }

    /// Whether the content never changes.
    pub(super) fn is_fixed(&self) -> bool {
        !matches!(self, Self::File(_))
    }

    /// The metadata; `configured` is the media type in the configuration.
    pub(super) fn metadata(&self, configured: Option<&str>) -> DataMetadata {
        let mime = |found: &str| configured.unwrap_or(found).to_owned();
        match self {
            Self::Text(text) => {
                DataMetadata { mime: mime("text/plain"), size: Some(text.len() as u64), modified: None }
            }
            Self::Bytes(bytes) => {
                let found = media::by_content("", bytes);
                DataMetadata { mime: mime(found), size: Some(bytes.len() as u64), modified: None }
            }
            Self::File(path) => {
                let metadata = std::fs::metadata(path).ok().filter(Metadata::is_file);
                DataMetadata {
                    mime: configured.map_or_else(|| mime_of_file(path).to_owned(), str::to_owned),
                    size: metadata.as_ref().map(Metadata::len),
                    modified: metadata
                        .and_then(|metadata| Timestamp::try_from(metadata.modified().ok()?).ok()),
                }
            }
        }
    }

    /// The content. `Ok(Err(size))` means that it exceeds the limit.
    pub(super) fn body(&self, mime: &str, limit: u64) -> io::Result<Result<ContentBody, u64>> {
        let path = match self {
            Self::Text(text) => return Ok(Ok(ContentBody::Text(text.clone()))),
            Self::Bytes(bytes) => return Ok(Ok(ContentBody::Bytes(bytes.clone()))),
            Self::File(path) => path,
        };
        let (file, size) = open(path)?;
        if size > limit {
            return Ok(Err(size));
        }
        let mut data = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut data)?;
        if data.len() as u64 > limit {
            return Ok(Err(data.len() as u64));
        }
        Ok(Ok(media::body(data, mime)))
    }
}

fn mime_of_file(path: &Path) -> &'static str {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    media::by_name(&name).unwrap_or_else(|| {
        let mut head = Vec::new();
        let read =
            open(path).and_then(|(file, _)| file.take(media::HEAD_BYTES as u64).read_to_end(&mut head));
        if read.is_ok() { media::by_content(&name, &head) } else { "application/octet-stream" }
    })
}

/// Opens a regular file, and returns its size.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let regular = |metadata: Metadata| match metadata.is_file() {
        true => Ok(metadata.len()),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file any more")),
    };
    // Checked before opening, because opening a device may have side effects. Checked again after that, because
    // the file may have been replaced.
    regular(std::fs::metadata(path)?)?;
    let file = reading().open(path)?;
    let size = regular(file.metadata()?)?;
    Ok((file, size))
}

fn reading() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    // A named pipe would otherwise block until it is written to.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        rustix::fs::OFlags::NONBLOCK.bits().cast_signed(),
    );
    options
}

/// The error for an invalid entry.
pub(super) fn wrong(uri: &str, why: String) -> Error {
    Error::invalid(format!("the inline resource `{uri}`: {why}"))
}
