//! A scan of a tree for skills.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use libris_core::{Meta, Sha256Digest};

use super::{
    FoundSkill, MAX_BYTES, MAX_FILES, SKILL_FILE, SkillFileEntry, SkillSnapshot, SkillTree, digest,
    front_matter,
};
use crate::tree::walk::{self, FileEntry};
use crate::tree::{DirectoryHandle, OpenFolder, ProofBuilder, StatStamp, Tree, check_cancelled};

/// The maximum number of directories that a scan visits.
const MAX_FOLDERS: usize = 100_000;

/// The maximum number of directories of a skill that are recorded. Further ones are left out of the skill's entries.
const MAX_SKILL_FOLDERS: usize = 4_096;

/// The maximum number of files of all skills together. The files of a nested skill count for each skill that they
/// belong to.
const MAX_TOTAL_FILES: usize = 200_000;

/// The memory of cached front matter besides its text, in bytes.
const ENTRY_OVERHEAD: usize = 512;

/// The parsed `SKILL.md` that had this stamp.
#[derive(Clone)]
pub(super) struct CachedSkillFile {
    stamp: StatStamp,
    file: Arc<ParsedSkillFile>,
}

/// A parsed `SKILL.md`.
struct ParsedSkillFile {
    /// The front matter, or what is wrong with it.
    front_matter: Result<Arc<Meta>, String>,
    digest: Sha256Digest,
    size: u64,
}

/// A scan in progress.
pub(super) struct Scan<'a> {
    skills: &'a SkillTree,
    tree: &'a Tree,
    evidence: ProofBuilder,
    snapshot: SkillSnapshot,
    /// The skills around the current directory, the outermost first.
    open: Vec<OpenSkill>,
    /// The number of directories visited.
    folders: usize,
    /// The number of files of all skills that were added to the snapshot.
    files: usize,
}

/// A skill whose directory is being visited.
#[derive(Default)]
struct OpenSkill {
    /// The key of its directory: the percent-encoded path from the root, with a slash at the end.
    key: String,
    /// Its first files, at most one more than a skill may have.
    files: Vec<Arc<SkillFileEntry>>,
    folders: Vec<String>,
    /// The number of all its files.
    count: usize,
    /// The total size of all its files.
    bytes: u64,
    /// The path in the skill of the first file that is too large to be read whole.
    too_large: Option<String>,
}

impl<'a> Scan<'a> {
    /// Scans the whole tree.
    pub(super) fn run(skills: &'a SkillTree, tree: &'a Tree) -> io::Result<SkillSnapshot> {
        let root = tree.watched_root()?;
        let mut scan = Self {
            skills,
            tree,
            evidence: ProofBuilder::new(&tree.prover),
            snapshot: SkillSnapshot::default(),
            open: Vec::new(),
            folders: 0,
            files: 0,
        };
        scan.visit(&root)?;
        Ok(SkillSnapshot { evidence: Some(scan.evidence), entries: OnceLock::new(), ..scan.snapshot })
    }

    /// Scans a directory and everything below it.
    fn visit(&mut self, folder: &Arc<OpenFolder>) -> io::Result<()> {
        check_cancelled()?;
        let key = &folder.logical.key;
        self.folders += 1;
        if self.folders > MAX_FOLDERS {
            if self.skills.record_warning("too many folders".to_owned()) {
                tracing::warn!(
                    folder = self.skills.options.root_name,
                    "the folder has too many subfolders; only the first {MAX_FOLDERS} are searched for skills"
                );
            }
            self.evidence.invalidate();
            return Ok(());
        }
        self.evidence.add_directory(folder);
        let names = match self.tree.names(folder) {
            Ok(names) => names,
            Err(cause) => return walk::skip_unreadable(self.tree, key, cause),
        };
        for skill in self.open.iter_mut().filter(|skill| skill.folders.len() < MAX_SKILL_FOLDERS) {
            skill.folders.push(key.clone());
        }
        let is_skill = names.contains(SKILL_FILE);
        if is_skill {
            self.open.push(OpenSkill { key: key.clone(), ..OpenSkill::default() });
        }
        for name in names.iter() {
            if name.ends_with('/') {
                let child = walk::open_listed_folder(self.tree, folder, name, Some(&mut self.evidence))?;
                if let Some(child) = child {
                    self.visit(&child)?;
                }
            } else if !self.open.is_empty()
                && let Some(entry) = walk::file_entry(self.tree, folder, name)?
            {
                self.add(entry);
            }
        }
        if is_skill && let Some(skill) = self.open.pop() {
            self.close(folder, skill)?;
        }
        Ok(())
    }

    /// Adds a file to all skills that it belongs to.
    fn add(&mut self, entry: FileEntry) {
        let FileEntry { key, stamp, hard_linked, .. } = entry;
        if hard_linked {
            self.evidence.invalidate();
        }
        let (size, max_size) = (stamp.size, self.skills.options.max_size);
        let entry = Arc::new(SkillFileEntry { key, stamp });
        for skill in &mut self.open {
            skill.count += 1;
            skill.bytes = skill.bytes.saturating_add(size);
            if size > max_size {
                let name = entry.key.strip_prefix(&skill.key).unwrap_or(&entry.key);
                skill.too_large.get_or_insert_with(|| name.to_owned());
            }
            if skill.files.len() <= MAX_FILES {
                skill.files.push(Arc::clone(&entry));
            }
        }
    }

    /// Adds a skill whose directory was visited to the snapshot, unless it breaks a rule.
    fn close(&mut self, folder: &OpenFolder, skill: OpenSkill) -> io::Result<()> {
        let key = format!("{}{SKILL_FILE}", skill.key);
        let Some(entry) = skill.files.iter().find(|file| file.key == key) else {
            // The `SKILL.md` is gone, or too many files come before it.
            if let Err(reason) = check_limits(&skill, self.skills.options.max_size) {
                self.skills.warn(&skill.key, &reason);
            }
            return Ok(());
        };
        let Some(parsed) = self.skills.skill_file(self.tree, folder, entry)? else { return Ok(()) };
        match self.check(&skill, &parsed) {
            Err(reason) => self.skills.warn(&skill.key, &reason),
            Ok(front_matter) => {
                let path = skill.key.trim_end_matches('/').as_bytes();
                let path =
                    libris_core::Uri::decode_segment(&String::from_utf8_lossy(path)).unwrap_or_default();
                let options = &self.skills.options;
                let found = FoundSkill {
                    front_matter,
                    skill_file: (parsed.digest, parsed.size),
                    files: skill.files,
                    folders: skill.folders,
                    dynamic: options.dynamic.matches_path_or_parent(&path, true),
                    listed: !options.unlisted.matches_path_or_parent(&path, true),
                };
                self.files += found.files.len();
                self.snapshot.skills.insert(key, found);
            }
        }
        Ok(())
    }

    /// The front matter of a valid skill; otherwise the rule that it breaks.
    fn check(&self, skill: &OpenSkill, parsed: &ParsedSkillFile) -> Result<Arc<Meta>, String> {
        let options = &self.skills.options;
        let front_matter = parsed.front_matter.clone()?;
        let path = skill.key.trim_end_matches('/');
        let name = match path.rsplit('/').next().unwrap_or_default() {
            "" => &options.root_name,
            name => name,
        };
        front_matter::check(&front_matter, name)?;
        let first = path.split('/').next().unwrap_or_default();
        if options.authority && first.contains([':', '@']) {
            return Err(format!(
                "the folder `{first}` cannot be the authority of a URI; hint: set `prefix`; the folder is then a path \
                 segment of the URI"
            ));
        }
        check_limits(skill, options.max_size)?;
        if self.files + skill.files.len() > MAX_TOTAL_FILES {
            return Err(format!("the skills of the folder have more than {MAX_TOTAL_FILES} files together"));
        }
        Ok(front_matter)
    }
}

/// Checks the number and the sizes of the files.
fn check_limits(skill: &OpenSkill, max_size: u64) -> Result<(), String> {
    if skill.count > MAX_FILES {
        return Err(format!("it has {} files, and {MAX_FILES} is the most", skill.count));
    }
    if skill.bytes > MAX_BYTES {
        return Err(format!("its files have {} bytes together, and {MAX_BYTES} is the most", skill.bytes));
    }
    match &skill.too_large {
        Some(name) => {
            Err(format!("its file `{name}` has more than {max_size} bytes, and cannot be read whole"))
        }
        None => Ok(()),
    }
}

impl SkillTree {
    /// The parsed `SKILL.md`; `None` if it is gone or cannot be read.
    fn skill_file(
        &self,
        tree: &Tree,
        folder: &OpenFolder,
        entry: &SkillFileEntry,
    ) -> io::Result<Option<Arc<ParsedSkillFile>>> {
        let cached = self.skill_files.get(&entry.key).filter(|cached| cached.stamp == entry.stamp);
        if let Some(CachedSkillFile { file, .. }) = cached {
            return Ok(Some(file));
        }
        let seen = SystemTime::now();
        let (file, metadata) = match tree.with_target(folder, OsStr::new(SKILL_FILE), DirectoryHandle::open) {
            Ok(opened) => opened,
            Err(cause) => return walk::skip_unreadable(tree, &entry.key, cause).map(|()| None),
        };
        let stamp = StatStamp::of(&metadata);
        let mut bytes = Vec::new();
        // If the file is larger, `check_limits` refuses the skill, whatever was parsed from the first bytes.
        file.into_std().take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        let parsed = Arc::new(ParsedSkillFile {
            front_matter: front_matter::parse(&bytes).map(Arc::new),
            digest: digest::of(&bytes),
            size: bytes.len() as u64,
        });
        if stamp.settled(seen) {
            let texts = parsed.front_matter.as_ref().map_or(0, |_| bytes.len().min(64 * 1024));
            let weight = ENTRY_OVERHEAD + entry.key.len() + texts;
            let cached = CachedSkillFile { stamp, file: Arc::clone(&parsed) };
            self.skill_files.insert_within(super::MAX_CACHED_BYTES, &entry.key, weight, cached);
        }
        Ok(Some(parsed))
    }
}
