//! The limit over stdio: a blocking loop with buffered I/O of the standard library.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::{BEFORE, Ready};

/// Responds to lines until the end of input. Flushes responses when the input buffer is empty.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let ready = Ready::new(folder)?;
    let mut input = BufReader::new(io::stdin().lock());
    // `Stdout` is line-buffered and searches all output for line ends.
    let mut output = BufWriter::new(File::from(io::stdout().as_fd().try_clone_to_owned()?));
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        let (id, rest) = ready.answer(&line).context("there is no such resource")?;
        output.write_all(BEFORE)?;
        output.write_all(&line[id])?;
        output.write_all(rest)?;
        output.write_all(b"\n")?;
        if input.buffer().is_empty() {
            output.flush()?;
        }
        line.clear();
    }
    Ok(())
}
