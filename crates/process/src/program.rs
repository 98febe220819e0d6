//! Where the executable of a program is.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf, is_separator};

/// The environment variables that programs need to start, besides `PATH`: none on Unix. On Windows, without
/// `SystemRoot` a program cannot load the libraries for sockets and random numbers.
pub const SYSTEM_VARIABLES: &[&str] = match cfg!(windows) {
    true => &["ComSpec", "PATHEXT", "SystemDrive", "SystemRoot", "TEMP", "TMP", "windir"],
    false => &[],
};

/// The extensions of programs that Windows can start. `PATHEXT` can name more, but those are scripts for an interpreter.
#[cfg(windows)]
const EXTENSIONS: [&str; 4] = ["exe", "com", "cmd", "bat"];

/// The executable of a program: relative to `base` if its name contains a path separator, otherwise from `PATH`. On
/// Windows, its extension may be omitted: `npx` is `npx.cmd`. `None` if there is no such executable.
pub fn executable(program: &OsStr, base: &Path) -> Option<PathBuf> {
    if program.as_encoded_bytes().iter().any(|byte| is_separator(char::from(*byte))) {
        return candidates(base.join(program)).find(|file| can_run(file));
    }
    let path = env::var_os("PATH")?;
    // A relative folder in `PATH` would depend on the working directory of the server.
    env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .flat_map(|folder| candidates(folder.join(program)))
        .find(|file| can_run(file))
}

#[cfg(not(windows))]
fn candidates(file: PathBuf) -> impl Iterator<Item = PathBuf> {
    std::iter::once(file)
}

/// The file itself, and the file with each extension.
#[cfg(windows)]
fn candidates(file: PathBuf) -> impl Iterator<Item = PathBuf> {
    let with = |extension: &str| {
        let mut name = file.clone().into_os_string();
        name.push(".");
        name.push(extension);
        PathBuf::from(name)
    };
    let extended: Vec<PathBuf> = EXTENSIONS.into_iter().map(with).collect();
    std::iter::once(file).chain(extended)
}

#[cfg(unix)]
fn can_run(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(windows)]
fn can_run(file: &Path) -> bool {
    let extension = file.extension().and_then(OsStr::to_str);
    let is_program =
        extension.is_some_and(|found| EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(found)));
    is_program && std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file())
}
