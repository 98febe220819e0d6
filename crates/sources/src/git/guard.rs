//! Validates the files that the git library opens by itself. Each must be a small regular file or missing, and must not
//! redirect the library to an unrelated repository.
//!
//! The check is by path, shortly before the library opens the file. A process that replaces the file in between can
//! still make one thread block; [`blocking`](super::GitInner::blocking) limits the number of such threads.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gix::config::File as ConfigFile;
use libris_core::{Error, Result};

use super::ref_store::{MAX_LOOSE_REF_BYTES, MAX_PACKED_REFS_BYTES};
use super::regular::{self, GitFileStamp, UnreadableFile, is_absent};

/// The largest configuration file, in bytes.
const MAX_CONFIG_BYTES: u64 = 4 * 1024 * 1024;

/// The largest file that contains paths, such as `.git`, `commondir` or `alternates`, in bytes.
const MAX_PATH_FILE_BYTES: u64 = 64 * 1024;

/// The maximum number of alternate object directories of a repository.
const MAX_ALTERNATES: usize = 64;

/// The maximum number of replacement refs (`refs/replace/`).
const MAX_REPLACEMENT_REFS: usize = 100_000;

/// Validates the repository at a path before the library opens it. The error states the reason.
pub(super) fn check_repository(path: &Path) -> Result<(), String> {
    let inside = path.join(".git");
    let is_there = |path: &Path| std::fs::symlink_metadata(path).is_ok();
    let root = if path.ends_with(".git") || !is_there(&inside) { path } else { &inside };
    let own = match named_folder(root)? {
        Some(folder) => {
            check_git_file(root, &folder)?;
            folder
        }
        None => root.to_owned(),
    };
    let common = common_folder(&own)?;
    for folder in [&own, &common] {
        check_file(folder, "HEAD", MAX_LOOSE_REF_BYTES)?;
        check_file(folder, "packed-refs", MAX_PACKED_REFS_BYTES)?;
        check_file(folder, "config", MAX_CONFIG_BYTES)?;
        check_file(folder, "config.worktree", MAX_CONFIG_BYTES)?;
        check_file(folder, "gitdir", MAX_PATH_FILE_BYTES)?;
    }
    check_replacements(&common)?;
    Alternates::new(&common).check().map_err(|error| error.to_string())
}

fn check_file(folder: &Path, name: &str, limit: u64) -> Result<(), String> {
    regular::check(&folder.join(name), limit).map_err(|cause| explain(cause, name))
}

fn explain(cause: UnreadableFile, name: &str) -> String {
    match cause {
        UnreadableFile::Broken(why) => format!("`{name}` cannot be read: {why}"),
        UnreadableFile::System(cause) => format!("`{name}` cannot be read: {cause}"),
    }
}

/// The git directory that the `.git` file at `root` names; `None` if `root` is a directory or missing.
fn named_folder(root: &Path) -> Result<Option<PathBuf>, String> {
    let Some(file) = regular::read(root, MAX_PATH_FILE_BYTES).map_err(|cause| explain(cause, ".git"))? else {
        return Ok(None);
    };
    let named = file.data.strip_prefix(b"gitdir:").map(<[u8]>::trim_ascii);
    let named = named.filter(|named| !named.is_empty()).and_then(path_of);
    let named = named.ok_or("its `.git` is a file that names no repository")?;
    Ok(Some(root.parent().unwrap_or(Path::new("")).join(named)))
}

/// Checks that the git directory `named`, to which the `.git` file at `root` refers, belongs to the folder of
/// that file: it must be inside that folder, or refer back to it. Otherwise a `.git` file in an untrusted folder
/// could select any repository on this machine.
fn check_git_file(root: &Path, named: &Path) -> Result<(), String> {
    let folder = root.parent().unwrap_or(Path::new(""));
    let same = |one: &Path, other: &Path| {
        one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
    };
    let is_inside = folder
        .canonicalize()
        .is_ok_and(|folder| named.canonicalize().is_ok_and(|named| named.starts_with(folder)));
    if is_inside {
        return Ok(());
    }
    // A linked working tree.
    let link = regular::read(&named.join("gitdir"), MAX_PATH_FILE_BYTES)
        .map_err(|cause| explain(cause, "gitdir"))?;
    let link = link.as_ref().and_then(|link| path_of(link.data.trim_ascii()));
    if link.is_some_and(|link| same(&named.join(link), root)) {
        return Ok(());
    }
    // A submodule.
    for name in ["config", "config.worktree"] {
        let config =
            regular::read(&named.join(name), MAX_CONFIG_BYTES).map_err(|cause| explain(cause, name))?;
        let config = config.and_then(|config| ConfigFile::try_from(str::from_utf8(&config.data).ok()?).ok());
        let worktree = config.and_then(|config| config.raw_value("core.worktree").ok().map(Into::into));
        let worktree: Option<Vec<u8>> = worktree;
        if worktree.and_then(|path| path_of(&path)).is_some_and(|path| same(&named.join(path), folder)) {
            return Ok(());
        }
    }
    Err(format!(
        "its `.git` is a file that names `{0}`, which does not refer back to it; hint: to serve that repository, set \
         `path` to `{0}`",
        named.display()
    ))
}

/// The directory with the refs and objects of the repository whose git directory is `own`: the directory that the file
/// `commondir` names, as in a linked working tree, or `own` if there is no such file. Fails if `own` is not a linked
/// working tree of the repository that `commondir` names. Otherwise `commondir` in an untrusted folder could select any
/// repository on this machine.
fn common_folder(own: &Path) -> Result<PathBuf, String> {
    let file = regular::read(&own.join("commondir"), MAX_PATH_FILE_BYTES)
        .map_err(|cause| explain(cause, "commondir"))?;
    let Some(file) = file else { return Ok(own.to_owned()) };
    let named = path_of(file.data.trim_ascii_end()).filter(|named| !named.as_os_str().is_empty());
    let common = own.join(named.ok_or("its `commondir` names no folder")?);
    let worktrees = common.join("worktrees").canonicalize();
    let is_linked = own.canonicalize().is_ok_and(|own| {
        worktrees.is_ok_and(|worktrees| own.parent().is_some_and(|parent| parent == worktrees))
    });
    match is_linked {
        true => Ok(common),
        false => Err(format!(
            "its `commondir` names `{}`, which has no such linked working tree",
            common.display()
        )),
    }
}

/// Limits the number of replacement refs, because the library reads all of them when it opens a repository.
fn check_replacements(common: &Path) -> Result<(), String> {
    let failed = |cause: io::Error| explain(UnreadableFile::System(cause), "refs/replace");
    let entries = match std::fs::read_dir(common.join("refs/replace")) {
        Err(cause) if is_absent(&cause) => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for (count, entry) in entries.enumerate() {
        let entry = entry.map_err(failed)?;
        if count >= MAX_REPLACEMENT_REFS {
            return Err(format!(
                "it has more than {MAX_REPLACEMENT_REFS} replaced objects; hint: delete some with `git replace --delete`"
            ));
        }
        let name = format!("refs/replace/{}", entry.file_name().to_string_lossy());
        regular::check(&entry.path(), MAX_LOOSE_REF_BYTES).map_err(|cause| explain(cause, &name))?;
    }
    Ok(())
}

#[cfg(unix)]
fn path_of(bytes: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)))
}

#[cfg(not(unix))]
fn path_of(bytes: &[u8]) -> Option<PathBuf> {
    str::from_utf8(bytes).ok().map(PathBuf::from)
}

/// The `alternates` files of a repository, which name further object directories. The library reads them again
/// whenever it does not find an object.
pub(super) struct Alternates {
    objects: PathBuf,
    /// The files of the last successful check, with their stamps; empty before the first.
    verified: Mutex<Vec<(PathBuf, Option<GitFileStamp>)>>,
}

impl Alternates {
    pub(super) fn new(common: &Path) -> Self {
        Self { objects: common.join("objects"), verified: Mutex::default() }
    }

    /// Fails if there are too many `alternates` files, or if one is damaged or not a small regular file. If nothing has
    /// changed, this costs one `stat` call per object directory.
    pub(super) fn check(&self) -> Result<()> {
        const NAME: &str = "objects/info/alternates";
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |(path, stamp): &(PathBuf, Option<GitFileStamp>)| {
            GitFileStamp::of(path).is_ok_and(|now| now == *stamp)
        };
        if !verified.is_empty() && verified.iter().all(is_same) {
            return Ok(());
        }
        verified.clear();
        let mut found = Vec::new();
        let mut folders = vec![self.objects.clone()];
        while let Some(folder) = folders.pop() {
            let path = folder.join("info/alternates");
            if found.iter().any(|(known, _)| *known == path) {
                continue;
            }
            if found.len() > MAX_ALTERNATES {
                return Err(Error::Unavailable(format!(
                    "the repository borrows objects from more than {MAX_ALTERNATES} others; hint: run `git repack -a -d` in a copy of it and serve that"
                )));
            }
            let file = regular::read(&path, MAX_PATH_FILE_BYTES).map_err(|cause| cause.into_error(NAME))?;
            let stamp = file.as_ref().map(|file| file.stamp.clone());
            found.push((path, stamp));
            if let Some(file) = file {
                let named = gix::odb::alternate::parse(&file.data)
                    .map_err(|_| UnreadableFile::Broken("it is damaged").into_error(NAME))?;
                // The library resolves all relative paths against the first object directory.
                folders.extend(named.into_iter().map(|named| self.objects.join(named)));
            }
        }
        *verified = found;
        Ok(())
    }
}
