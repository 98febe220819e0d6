//! Standard input and output without the buffers of the standard library.

#[cfg(unix)]
use std::fs::File;
use std::io;

/// The pipe capacity to request. With the default capacity, a large response would be transferred in many pieces, with
/// context switches for each. With a far larger one, the bytes would leave the processor's caches before the client
/// reads them.
#[cfg(target_os = "linux")]
const PIPE_CAPACITY: usize = 256 << 10;

/// Standard input and output, with larger pipe buffers if the system allows it.
#[cfg(unix)]
pub fn standard() -> io::Result<(File, File)> {
    use std::os::fd::AsFd as _;
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    #[cfg(target_os = "linux")]
    for pipe in [&input, &output] {
        // An error is ignored: the stream is not a pipe, or the size is above the system's limit.
        let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_CAPACITY);
    }
    Ok((input, output))
}

/// Standard input and output.
#[cfg(not(unix))]
pub fn standard() -> io::Result<(io::Stdin, io::Stdout)> {
    Ok((io::stdin(), io::stdout()))
}
