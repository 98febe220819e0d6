//! Reading, parsing and caching ignore files (`.gitignore`, `.ignore`, `.git/info/exclude`).
//!
//! This fails closed: if an ignore file cannot be read, its directory does not exist for callers. If that
//! directory is the root, the whole tree is unavailable. A failure of the system, such as too many open files,
//! fails the request instead and is not cached.
//!
//! Memory is bounded whatever the files contain:
//! - The cache counts the bytes that it holds. A cached entry holds only the files of its own directory. So it
//!   keeps no parent's files in memory, and it is not parsed again when those change.
//! - Apart from the cache, only open directories hold rules. The rules on one path take at most
//!   [`MAX_ON_PATH`], which is 1.3 MiB, and as much again if symbolic links are followed. A source reads on at
//!   most 32 threads, so its requests hold at most 83 MiB.
//! - Cached open directories hold at most 4 MiB, since [their cache](super::open_folders) counts rules too.

use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use cap_std::fs::File;

use super::filter::{IgnoreFiles, IgnoreRules, RulesSize};
use super::metadata::Metadata;
use super::root::{ControlFile, DirectoryHandle};
use super::stamp::StatStamp;
use super::{OpenFolder, Tree, TreePath};
use crate::ignore_patterns::IgnorePatterns;

/// The largest ignore file that is read, in bytes.
const MAX_FILE_SIZE: u64 = 256 * 1024;

/// The maximum number of patterns that an ignore file may have.
const MAX_PATTERNS: usize = 4096;

/// The maximum size of the text, and the maximum number of patterns, of all ignore files from the root to a directory
/// together. Every name in the directory is matched against all of them.
const MAX_ON_PATH: RulesSize = RulesSize { text: 1024 * 1024, patterns: 16_384 };

/// The weight limit of the cache, in bytes.
pub(super) const MAX_CACHED: usize = 8 * 1024 * 1024;

/// The weight of a cached directory in addition to that of its ignore files and its key.
const OVERHEAD: usize = 640;

/// The parsed ignore files of a directory, with the inputs that must be unchanged for the entry to be reused.
pub(super) struct CachedRules {
    stamps: [Option<StatStamp>; 3],
    /// Whether equal stamps prove equal texts.
    settled: bool,
    texts: [Option<Arc<[u8]>>; 3],
    outcome: Result<Arc<IgnoreFiles>, UnreadableRules>,
    /// The identity of these rules together with those of the ancestors.
    identity: u64,
    /// The identity of the rules of the parent directory.
    parent: Option<u64>,
}

impl CachedRules {
    fn size(&self) -> RulesSize {
        let patterns = self.outcome.iter().flat_map(|files| files.iter().flatten());
        RulesSize {
            text: self.texts.iter().flatten().map(|text| text.len()).sum(),
            patterns: patterns.map(IgnorePatterns::len).sum(),
        }
    }

    fn weight(&self, key: &str) -> usize {
        OVERHEAD + key.len() + self.size().bytes()
    }
}

/// An ignore file exists, but its rules cannot be determined.
#[derive(Clone, Debug)]
struct UnreadableRules {
    /// The key of the ignore file.
    file: String,
    why: String,
}

impl UnreadableRules {
    /// The error that hides the directory of the ignore file.
    fn into_error(self) -> io::Error {
        io::Error::new(io::ErrorKind::NotFound, self)
    }
}

impl fmt::Display for UnreadableRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the ignore file `{}` cannot be read: {}", self.file, self.why)
    }
}

impl std::error::Error for UnreadableRules {}

/// Whether a directory could not be opened because its ignore files cannot be read.
pub(super) fn hides_folder(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<UnreadableRules>())
}

impl Tree {
    /// The current ignore rules of a directory and its ancestors; `None` if there are none. Fails with an error that
    /// [hides the directory](hides_folder) if an ignore file cannot be read.
    pub(super) fn ignore_rules(
        &self,
        handle: &DirectoryHandle,
        path: &Path,
        key: &str,
        parent: Option<&Arc<IgnoreRules>>,
    ) -> io::Result<Option<Arc<IgnoreRules>>> {
        if !self.gitignore {
            return Ok(None);
        }
        let [first, second] = IgnoreRules::FILES;
        let seen = SystemTime::now();
        let files = [
            self.open_ignore_file(handle, key, &[first])?,
            self.open_ignore_file(handle, key, &[second])?,
            // Only `.git/info/exclude` of the root applies. If `.git` is a file or a symbolic link, as in a worktree,
            // the repository is elsewhere and its excludes do not apply.
            if key.is_empty() {
                self.open_ignore_file(handle, key, &[".git", "info", "exclude"])?
            } else {
                None
            },
        ];
        if files.iter().all(Option::is_none) {
            return Ok(parent.cloned());
        }
        let stamps = files.each_ref().map(|file| file.as_ref().map(|file| StatStamp::of(&file.metadata)));
        let parent_identity = parent.map(|parent| parent.identity);
        let cached = self.cached_rules.get(key);
        let unchanged = cached.as_ref().filter(|cached| cached.settled && cached.stamps == stamps);
        let rules = match unchanged {
            Some(unchanged) if unchanged.parent == parent_identity => Arc::clone(unchanged),
            _ => {
                let texts = match unchanged {
                    Some(unchanged) => unchanged.texts.clone(),
                    None => self.texts(&files)?,
                };
                let outcome = match cached.filter(|cached| cached.texts == texts) {
                    Some(same) => same.outcome.clone(),
                    None => self.parse(&files, &texts),
                };
                let settled = stamps.iter().flatten().all(|stamp| stamp.settled(seen));
                self.cached_rules.update(key, |cached| {
                    // Another thread may have parsed the same text meanwhile.
                    let same = cached.filter(|it| it.parent == parent_identity && it.texts == texts);
                    let identity = same.map_or_else(|| self.new_identity(), |same| same.identity);
                    let outcome = same.map_or(outcome, |same| same.outcome.clone());
                    let rules =
                        CachedRules { stamps, settled, texts, outcome, identity, parent: parent_identity };
                    (rules.weight(key), Arc::new(rules))
                })
            }
        };
        let parsed = rules.outcome.clone().map_err(UnreadableRules::into_error)?;
        let size = rules.size() + parent.map(|parent| parent.size).unwrap_or_default();
        if let Some(excess) = size.exceeded_limit()
            && let Some(file) = files.into_iter().flatten().next()
        {
            let why = format_args!("together with those of the directories above, it has more than {excess}");
            return Err(self.unreadable_rules(file.key, why).into_error());
        }
        let base = path.as_os_str().len() + usize::from(!key.is_empty());
        let parent = parent.cloned();
        Ok(Some(Arc::new(IgnoreRules { identity: rules.identity, base, parent, files: parsed, size })))
    }

    /// The total size of the ignore rules that apply to the targets of the symbolic links on the path to a
    /// directory. `parent` is its logical parent. `physical` is its real parent, if a link was followed; if it is
    /// the same object as `parent.physical`, the directory itself is not a link. Fails with an error that hides
    /// the directory if the total exceeds the limit.
    pub(super) fn linked_rules(
        &self,
        parent: &OpenFolder,
        logical: &TreePath,
        physical: Option<&TreePath>,
    ) -> io::Result<RulesSize> {
        let linked = match physical {
            Some(physical) if !parent.physical.as_ref().is_some_and(|it| std::ptr::eq(it, physical)) => {
                parent.linked_rules + physical.rules_size()
            }
            _ => parent.linked_rules,
        };
        match linked.exceeded_limit() {
            Some(excess) => {
                let why = format_args!(
                    "the symbolic links on its path lead to ignore files with more than {excess}"
                );
                Err(self.unreadable_rules(logical.key.clone(), why).into_error())
            }
            None => Ok(linked),
        }
    }

    fn new_identity(&self) -> u64 {
        self.last_identity.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Opens an ignore file; `None` if it does not exist.
    fn open_ignore_file(
        &self,
        handle: &DirectoryHandle,
        key: &str,
        path: &[&str],
    ) -> io::Result<Option<IgnoreFile>> {
        let key = || format!("{key}{}", path.join("/"));
        match handle.open_control_file(path) {
            Ok(ControlFile::Regular(file, metadata)) => Ok(Some(IgnoreFile { key: key(), file, metadata })),
            Ok(ControlFile::Missing) => Ok(None),
            Ok(ControlFile::Other) => {
                Err(self.unreadable_rules(key(), "it is not a regular file").into_error())
            }
            Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                Err(self.unreadable_rules(key(), cause).into_error())
            }
            Err(cause) => Err(cause),
        }
    }

    /// Reads the ignore files of a directory.
    fn texts(&self, files: &[Option<IgnoreFile>; 3]) -> io::Result<[Option<Arc<[u8]>>; 3]> {
        let mut texts = [const { None }; 3];
        for (file, text) in files.iter().zip(&mut texts) {
            *text = file.as_ref().map(|file| self.text(file)).transpose()?;
        }
        Ok(texts)
    }

    /// Reads an ignore file, unless it is too large.
    fn text(&self, rules: &IgnoreFile) -> io::Result<Arc<[u8]>> {
        let mut text = Vec::new();
        if rules.metadata.len() <= MAX_FILE_SIZE {
            (&rules.file).take(MAX_FILE_SIZE + 1).read_to_end(&mut text)?;
        }
        if rules.metadata.len().max(text.len() as u64) > MAX_FILE_SIZE {
            let why = format_args!("it has more than {MAX_FILE_SIZE} bytes");
            return Err(self.unreadable_rules(rules.key.clone(), why).into_error());
        }
        Ok(text.into())
    }

    /// Parses the ignore files of a directory.
    fn parse(
        &self,
        files: &[Option<IgnoreFile>; 3],
        texts: &[Option<Arc<[u8]>>; 3],
    ) -> Result<Arc<IgnoreFiles>, UnreadableRules> {
        let mut parsed = [const { None }; 3];
        for ((file, text), parsed) in files.iter().zip(texts).zip(&mut parsed) {
            if let (Some(file), Some(text)) = (file, text) {
                *parsed = Some(IgnorePatterns::parse(text, MAX_PATTERNS).ok_or_else(|| {
                    let why = format_args!("it has more than {MAX_PATTERNS} patterns");
                    self.unreadable_rules(file.key.clone(), why)
                })?);
            }
        }
        Ok(Arc::new(parsed))
    }

    /// Creates the error that hides a directory, and logs it once for each ignore file.
    fn unreadable_rules(&self, file: String, why: impl fmt::Display) -> UnreadableRules {
        if self.record_warning(&file) {
            tracing::warn!(
                path = file,
                %why,
                "a folder is hidden because its ignore file cannot be read; hint: mend the file, or set `gitignore = false`"
            );
        }
        UnreadableRules { file, why: why.to_string() }
    }
}

/// An open ignore file.
struct IgnoreFile {
    key: String,
    file: File,
    metadata: Metadata,
}

impl RulesSize {
    /// The limit for the ignore files on one path that this size exceeds; `None` if it exceeds none.
    fn exceeded_limit(self) -> Option<String> {
        if self.text > MAX_ON_PATH.text {
            Some(format!("{} bytes", MAX_ON_PATH.text))
        } else if self.patterns > MAX_ON_PATH.patterns {
            Some(format!("{} patterns", MAX_ON_PATH.patterns))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;
