//! Standard input and output as they are, without the buffers that the standard library puts before them.

#[cfg(unix)]
use std::fs::File;
use std::io;

/// How much a pipe should hold: with what it holds by default, each large answer would be handed over in
/// many pieces, with a switch to the client and back for each. With far more, what is written has left the
/// processor's caches before it is read.
#[cfg(target_os = "linux")]
const ROOM: usize = 256 << 10;

/// Standard input and output, with pipes that hold more where the system allows it.
#[cfg(unix)]
pub fn standard() -> io::Result<(File, File)> {
    use std::os::fd::AsFd as _;
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    #[cfg(target_os = "linux")]
    for pipe in [&input, &output] {
        // It may be no pipe, or more than we are allowed.
        let _ = rustix::pipe::fcntl_setpipe_size(pipe, ROOM);
    }
    Ok((input, output))
}

/// Standard input and output.
#[cfg(not(unix))]
pub fn standard() -> io::Result<(io::Stdin, io::Stdout)> {
    Ok((io::stdin(), io::stdout()))
}
