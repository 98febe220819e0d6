//! Zero-copy output of large responses that are written to a pipe repeatedly, with `splice` from memory files.
//!
//! The files (`memfd`) are never modified after they are filled, so the pages in the pipe stay valid. Filling a file
//! costs more than one write to the pipe, so a response gets a file only when it is written a second time.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{FileType, MemfdFlags, fstat, memfd_create};
use rustix::io::retry_on_intr;
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size};
use rustix::process::{Resource, getrlimit};

/// For at least this many bytes, `splice` is faster than a copy.
const MIN_SPLICED: usize = 128 << 10;

/// The maximum number of cached responses, and their maximum size in bytes together.
const MAX_RESPONSES: usize = 16;
const MAX_BYTES: usize = 32 << 20;

/// The pipe capacity to request. A large one costs nothing: spliced pages are shared with the file.
const PIPE_CAPACITY: usize = 1 << 20;

/// Responses written before, most recently used first (LRU).
pub(crate) struct SpliceCache {
    /// Whether the output is a pipe.
    usable: bool,
    /// Whether the pipe's capacity was increased.
    grown: bool,
    responses: VecDeque<WrittenResponse>,
}

struct WrittenResponse {
    /// Keeps the allocation alive, so that bytes at the same address are the same response.
    bytes: Bytes,
    /// Filled when the response is written a second time.
    file: Option<Arc<File>>,
}

impl SpliceCache {
    /// Creates the cache for this output.
    pub(crate) fn new(output: impl AsFd) -> Self {
        let usable = fstat(output).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        Self { usable, grown: false, responses: VecDeque::new() }
    }

    /// The file with these bytes. `None` when they are written for the first time; if nothing else, such as a response
    /// cache, references them, so that they will not be written again; if their size is not suitable; or if the output
    /// is not a pipe.
    pub(crate) fn file(&mut self, bytes: &Bytes) -> Option<Arc<File>> {
        if !self.usable || !(MIN_SPLICED..=MAX_BYTES).contains(&bytes.len()) || bytes.is_unique() {
            return None;
        }
        // A response that nothing else references will not be written again.
        self.responses.retain(|response| !response.bytes.is_unique());
        let same = |response: &WrittenResponse| {
            (response.bytes.as_ptr(), response.bytes.len()) == (bytes.as_ptr(), bytes.len())
        };
        let Some(at) = self.responses.iter().position(same) else {
            self.remember(WrittenResponse { bytes: bytes.clone(), file: None });
            return None;
        };
        let mut response = self.responses.remove(at)?;
        if response.file.is_none() {
            match filled(bytes) {
                Ok(file) => response.file = Some(Arc::new(file)),
                Err(cause) => {
                    tracing::debug!(%cause, "could not create a memory file");
                    self.usable = false;
                    return None;
                }
            }
        }
        let file = response.file.clone();
        self.remember(response);
        file
    }

    /// Adds a response as the most recently used, and removes the least recently used ones over the limits.
    fn remember(&mut self, response: WrittenResponse) {
        self.responses.push_front(response);
        self.responses.truncate(MAX_RESPONSES);
        let mut bytes = 0;
        self.responses.retain(|response| {
            bytes += response.bytes.len();
            bytes <= MAX_BYTES
        });
    }

    /// Splices the contents of a file into the pipe.
    pub(crate) fn splice(&mut self, file: &File, size: usize, pipe: impl AsFd) -> io::Result<()> {
        if !std::mem::replace(&mut self.grown, true) {
            // An error is ignored: the size is above the system's limit.
            let _ = fcntl_setpipe_size(&pipe, PIPE_CAPACITY);
        }
        let mut at = 0;
        loop {
            let left = size - at as usize;
            if left == 0 {
                return Ok(());
            }
            let flags = SpliceFlags::empty();
            if retry_on_intr(|| rustix::pipe::splice(file, Some(&mut at), &pipe, None, left, flags))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
    }
}

/// Creates a memory file with these bytes.
fn filled(bytes: &[u8]) -> io::Result<File> {
    // Exceeding `RLIMIT_FSIZE` would kill the process (`SIGXFSZ`).
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < bytes.len() as u64) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut file = File::from(memfd_create("mcp-answer", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, MAX_RESPONSES, MIN_SPLICED, SpliceCache};
    use bytes::Bytes;
    use std::io::Read as _;

    fn answer(byte: u8) -> Bytes {
        vec![byte; MIN_SPLICED + 5].into()
    }

    #[test]
    fn a_response_gets_a_file_when_it_is_written_again() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut splice_cache = SpliceCache::new(&writer);
        let answers = [answer(1), answer(2)];
        for bytes in &answers {
            assert!(splice_cache.file(&bytes.clone()).is_none());
        }
        for _ in 0..3 {
            for bytes in &answers {
                let file = splice_cache.file(&bytes.clone()).unwrap();
                let mut read = vec![0; bytes.len()];
                std::thread::scope(|scope| {
                    scope.spawn(|| reader.read_exact(&mut read).unwrap());
                    splice_cache.splice(&file, bytes.len(), &writer).unwrap();
                });
                assert!(read == *bytes);
            }
        }
    }

    #[test]
    fn a_response_without_other_references_is_removed() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let mut splice_cache = SpliceCache::new(&writer);
        let only = answer(1);
        assert!(splice_cache.file(&only).is_none() && splice_cache.file(&only).is_none());
        assert_eq!(splice_cache.responses.len(), 0);
        let kept = only.clone();
        assert!(splice_cache.file(&kept).is_none() && splice_cache.file(&kept).is_some());
        drop((only, kept));
        let others: Vec<_> = (0..2 * MAX_RESPONSES).map(|_| answer(2)).collect();
        for other in &others {
            assert!(splice_cache.file(&other.clone()).is_none());
        }
        assert_eq!(splice_cache.responses.len(), MAX_RESPONSES);
        assert!(splice_cache.responses.iter().all(|response| response.bytes[0] == 2));
    }

    #[test]
    fn the_bytes_of_responses_that_were_written_once_are_bounded() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let mut splice_cache = SpliceCache::new(&writer);
        let responses: Vec<Bytes> = (0..4_u8).map(|byte| vec![byte; MAX_BYTES / 2 - 1].into()).collect();
        assert!(responses.iter().all(|bytes| splice_cache.file(&bytes.clone()).is_none()));
        let remembered: Vec<_> = splice_cache.responses.iter().map(|response| response.bytes[0]).collect();
        assert_eq!(remembered, [3, 2]);
    }

    #[test]
    fn only_responses_of_a_suitable_size_to_a_pipe_get_a_file() {
        let (_reader, writer) = std::io::pipe().unwrap();
        let mut splice_cache = SpliceCache::new(&writer);
        for size in [MIN_SPLICED - 1, MAX_BYTES + 1] {
            let bytes = Bytes::from(vec![0; size]);
            assert!((0..3).all(|_| splice_cache.file(&bytes.clone()).is_none()));
        }
        let mut splice_cache = SpliceCache::new(std::fs::File::open("/dev/null").unwrap());
        let large = answer(1);
        assert!((0..3).all(|_| splice_cache.file(&large.clone()).is_none()));
    }
}
