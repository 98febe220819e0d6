//! The limit over stdio: a loop that blocks, with the buffers of the standard library.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::{BEFORE, Ready};

/// Answers lines until there are no more. What was answered is flushed when the input is used up.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let ready = Ready::new(folder)?;
    let mut input = BufReader::new(io::stdin().lock());
    // Standard output of the library looks for line ends in all that is written.
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
