//! The error for a folder or file that cannot be opened, with a hint for common mistakes.

use std::io;
use std::path::{Path, PathBuf};

use libris_core::{Error, suggest};

/// How many names of a folder are compared with the missing one, which bounds the time of the error message.
const MAX_COMPARED_NAMES: usize = 10_000;

/// The error for a folder or file that cannot be opened, with a hint for common mistakes.
pub(super) fn cannot_open(path: &Path, cause: io::Error) -> Error {
    // `~` may begin any component, because relative paths of the configuration file were joined with its folder.
    let has_tilde = path.iter().any(|name| name.as_encoded_bytes().starts_with(b"~"));
    let shown = path.display();
    Error::Unavailable(match cause.kind() {
        io::ErrorKind::NotFound if has_tilde => format!(
            "there is no file or folder `{shown}`; hint: `~` is expanded by the shell and not here, so write the whole path"
        ),
        io::ErrorKind::NotFound => match similar_path(path) {
            Some(similar) => format!(
                "there is no file or folder `{shown}`; hint: check the path; did you mean `{}`?",
                similar.display()
            ),
            None => format!("there is no file or folder `{shown}`; hint: check the path"),
        },
        io::ErrorKind::PermissionDenied => format!(
            "`{shown}` cannot be opened: permission denied; hint: let the user that runs Libris read it"
        ),
        _ => format!("`{shown}` cannot be opened: {cause}; hint: check the path"),
    })
}

/// The path in the same folder as the missing one, whose name is most similar to it; `None` if there is no similar
/// name. Names that are not UTF-8 are not compared.
fn similar_path(missing: &Path) -> Option<PathBuf> {
    let wrong = missing.file_name()?.to_str()?;
    let folder = missing.parent()?;
    let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = listed.read_dir().ok()?.take(MAX_COMPARED_NAMES).flatten();
    let names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let similar = suggest::closest(wrong, names.iter().map(String::as_str));
    similar.first().map(|name| folder.join(name))
}
