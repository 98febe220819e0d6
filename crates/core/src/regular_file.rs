//! Reads files that the configuration names. Such a path may lead to a file of any type.
//!
//! The file is opened with `O_NONBLOCK`, and its type and size are checked on the open descriptor. So a named pipe does
//! not block, and a huge file is not read.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::path::Path;

/// The bytes of a regular file; an error if the file is of another type or has more than `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut data = Vec::new();
    if metadata.len() <= limit {
        // The file may grow while it is read, and files in `/proc` report no size.
        file.take(limit.saturating_add(1)).read_to_end(&mut data)?;
    }
    match metadata.len().max(data.len() as u64) > limit {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit} bytes"))),
        false => Ok(data),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::read;

    #[test]
    fn only_regular_files_within_the_limit_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert_eq!(read(&path, 4).unwrap_err().to_string(), "it has more than 4 bytes");
        assert_eq!(read(folder.path(), 5).unwrap_err().to_string(), "it is not a regular file");
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert_eq!(read(&pipe, 5).unwrap_err().to_string(), "it is not a regular file");
    }
}
