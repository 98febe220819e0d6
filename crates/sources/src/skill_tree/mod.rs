//! The skills in a directory tree: found by their `SKILL.md`, checked, and described with the digests of their files.
//!
//! A scan visits all directories and returns a [`SkillSnapshot`], which stays valid while its evidence holds. A skill
//! that breaks a rule is not in the snapshot, and the log says why.

mod digest;
mod front_matter;
mod scan;
mod verify;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use libris_core::{
    Error, Freshness, Meta, Proof, Result, Sha256Digest, Skill, SkillFile, SkillPage, SkillResources, Uri,
};

use crate::patterns::ConfiguredPatterns;
use crate::tree::{LruCache, ProofBuilder, StatStamp, Tree, is_missing};
use digest::CachedDigest;
use scan::{CachedSkillFile, Scan};

pub use verify::{check_entry, relative_path, verify};

/// The name of the file that makes a directory a skill.
pub(crate) const SKILL_FILE: &str = "SKILL.md";

/// The maximum number of files of a skill. A host need not accept more.
const MAX_FILES: usize = 512;

/// The maximum number of bytes of all files of a skill. A host need not accept more.
pub(crate) const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// A page of skills ends when the skills on it have this many files.
const MAX_PAGE_FILES: usize = 8 * 1024;

/// A page of skills ends when this many bytes were read to compute its digests.
const MAX_PAGE_BYTES: u64 = 64 * 1024 * 1024;

/// The size of the cache of digests, and of the cache of front matter, in bytes.
const MAX_CACHED_BYTES: usize = 8 * 1024 * 1024;

/// The maximum number of warnings that are remembered, so that each is logged once.
const MAX_WARNED: usize = 10_000;

/// The maximum number of scans of one request, if files vanish while their digests are computed.
const MAX_SCANS: usize = 3;

/// Finds the skills of one tree.
pub(crate) struct SkillTree {
    options: SkillOptions,
    latest: Mutex<Option<Arc<SkillSnapshot>>>,
    skill_files: LruCache<CachedSkillFile>,
    digests: LruCache<CachedDigest>,
    warned: Mutex<HashSet<String>>,
}

/// Which folders are published as skills, and how.
#[derive(Default)]
pub(crate) struct SkillOptions {
    /// The name of the root, as the last segment of its URI.
    pub(crate) root_name: String,
    /// The size of the largest file that can be read whole, in bytes.
    pub(crate) max_size: u64,
    /// Whether the first directory of a path is the authority of its URI.
    pub(crate) authority: bool,
    /// The skills that are published without digests.
    pub(crate) dynamic: ConfiguredPatterns,
    /// The skills that are not listed.
    pub(crate) unlisted: ConfiguredPatterns,
}

/// The skills of a tree at one time.
#[derive(Default)]
pub(crate) struct SkillSnapshot {
    /// The skills, by the key of their `SKILL.md`.
    skills: BTreeMap<String, FoundSkill>,
    /// Evidence that nothing in the tree has changed since the scan.
    evidence: Option<ProofBuilder>,
    entries: OnceLock<BTreeMap<String, SkillTreeEntry>>,
}

/// A skill that breaks no rule.
pub(crate) struct FoundSkill {
    pub(crate) front_matter: Arc<Meta>,
    /// The digest and the size of `SKILL.md`, from the same read as the front matter.
    skill_file: (Sha256Digest, u64),
    /// All files, in the order of their keys.
    files: Vec<Arc<SkillFileEntry>>,
    /// The keys of the directories in the skill, with a slash at the end.
    folders: Vec<String>,
    dynamic: bool,
    listed: bool,
}

/// A file of a skill as it was when it was scanned.
pub(crate) struct SkillFileEntry {
    pub(crate) key: String,
    pub(crate) stamp: StatStamp,
}

/// A file or directory of a skill, or a directory above skills.
#[derive(Clone)]
pub(crate) enum SkillTreeEntry {
    Folder,
    File(Arc<SkillFileEntry>),
}

impl FoundSkill {
    /// The text of a field of the front matter.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.front_matter.get(key)?.as_str()
    }
}

impl SkillSnapshot {
    /// The skill with this `SKILL.md`.
    pub(crate) fn skill(&self, key: &str) -> Option<&FoundSkill> {
        self.skills.get(key)
    }

    /// By key: the files of all skills, the directories in the skills, and the directories above them. Here, keys
    /// of directories have no slash at the end. The root is not included.
    pub(crate) fn entries(&self) -> &BTreeMap<String, SkillTreeEntry> {
        self.entries.get_or_init(|| {
            let mut entries = BTreeMap::new();
            for (key, skill) in &self.skills {
                let above = key.match_indices('/').map(|(slash, _)| &key[..slash]);
                let folders = skill.folders.iter().map(|key| key.trim_end_matches('/'));
                for folder in above.chain(folders).filter(|key| !key.is_empty()) {
                    if !entries.contains_key(folder) {
                        entries.insert(folder.to_owned(), SkillTreeEntry::Folder);
                    }
                }
                for file in &skill.files {
                    entries.insert(file.key.clone(), SkillTreeEntry::File(Arc::clone(file)));
                }
            }
            entries
        })
    }

    /// The freshness of a response that depends only on this snapshot and on files of the tree that were read after it.
    pub(crate) fn freshness(self: &Arc<Self>) -> Freshness {
        let snapshot = Arc::clone(self);
        let proof = self.holds().then(|| Proof::new(move || snapshot.holds()));
        Freshness::proven(proof)
    }

    fn holds(&self) -> bool {
        self.evidence.as_ref().is_some_and(ProofBuilder::holds)
    }
}

impl SkillTree {
    pub(crate) fn new(options: SkillOptions) -> Self {
        Self {
            options,
            latest: Mutex::default(),
            skill_files: LruCache::new(MAX_CACHED_BYTES),
            digests: LruCache::new(MAX_CACHED_BYTES),
            warned: Mutex::default(),
        }
    }

    /// The skills as they are now. Concurrent callers share one scan if its evidence holds; otherwise each scans in
    /// turn.
    pub(crate) fn snapshot(&self, tree: &Tree) -> io::Result<Arc<SkillSnapshot>> {
        let mut latest = lock(&self.latest);
        if let Some(snapshot) = latest.as_ref().filter(|snapshot| snapshot.holds()) {
            return Ok(Arc::clone(snapshot));
        }
        let snapshot = Arc::new(Scan::run(self, tree)?);
        *latest = Some(Arc::clone(&snapshot));
        Ok(snapshot)
    }

    /// One page of the listed skills after a URI; `uri` maps keys to URIs.
    pub(crate) fn page(
        &self,
        tree: &Tree,
        uri: &dyn Fn(&str) -> Option<Uri>,
        after: Option<&Uri>,
        limit: usize,
    ) -> Result<SkillPage> {
        self.with_snapshot(tree, |snapshot| {
            let mut page = SkillPage { freshness: snapshot.freshness(), ..SkillPage::default() };
            let (mut files, mut bytes) = (0, 0);
            for (key, found) in snapshot.skills.iter().filter(|(_, found)| found.listed) {
                let Some(skill_uri) = uri(key) else { continue };
                if after.is_some_and(|after| skill_uri <= *after) {
                    continue;
                }
                if page.skills.len() == limit || files >= MAX_PAGE_FILES || bytes >= MAX_PAGE_BYTES {
                    page.more = true;
                    break;
                }
                page.skills.push(self.describe(tree, key, found, skill_uri, uri, &mut bytes)?);
                files += found.files.len();
            }
            Ok(page)
        })
    }

    /// The skill whose `SKILL.md` has this key; `None` if there is none.
    pub(crate) fn skill(
        &self,
        tree: &Tree,
        uri: &dyn Fn(&str) -> Option<Uri>,
        key: &str,
    ) -> Result<Option<(Skill, Freshness)>> {
        self.with_snapshot(tree, |snapshot| {
            let Some((found, skill_uri)) = snapshot.skill(key).zip(uri(key)) else { return Ok(None) };
            let skill = self.describe(tree, key, found, skill_uri, uri, &mut 0)?;
            Ok(Some((skill, snapshot.freshness())))
        })
    }

    /// Runs `work` with the current snapshot, and again with a new one if a file vanished meanwhile.
    fn with_snapshot<T>(
        &self,
        tree: &Tree,
        work: impl Fn(&Arc<SkillSnapshot>) -> io::Result<T>,
    ) -> Result<T> {
        let failed = |cause| Error::failed("read the skills", cause);
        let mut scans = 0;
        loop {
            scans += 1;
            match work(&self.snapshot(tree).map_err(failed)?) {
                Err(cause) if is_missing(&cause) && scans < MAX_SCANS => *lock(&self.latest) = None,
                done => return done.map_err(failed),
            }
        }
    }

    /// The published entry of a skill: its URI, its front matter, and the digests of its files. Adds the bytes
    /// that were read to `bytes`.
    fn describe(
        &self,
        tree: &Tree,
        key: &str,
        found: &FoundSkill,
        skill_uri: Uri,
        uri: &dyn Fn(&str) -> Option<Uri>,
        bytes: &mut u64,
    ) -> io::Result<Skill> {
        let mut files = Vec::new();
        for entry in found.files.iter().filter(|_| !found.dynamic) {
            let (digest, size) = match entry.key == key {
                true => found.skill_file,
                false => self.digest(tree, entry, bytes)?,
            };
            // A file whose URI would be too long cannot be read.
            let Some(uri) = uri(&entry.key) else { continue };
            files.push(SkillFile { uri, digest, size });
        }
        let resources = match found.dynamic {
            true => SkillResources::Dynamic,
            false => SkillResources::Files(files),
        };
        Ok(Skill { uri: skill_uri, frontmatter: Meta::clone(&found.front_matter), resources })
    }

    /// Logs why the skill in a folder is not published, once.
    fn warn(&self, folder: &str, reason: &str) {
        let folder = match folder.trim_end_matches('/') {
            "" => &self.options.root_name,
            folder => folder,
        };
        if self.record_warning(format!("{folder}\n{reason}")) {
            tracing::warn!(folder, reason, "a skill is not published");
        }
    }

    /// Records that a warning is logged. Returns whether it was not logged before.
    fn record_warning(&self, warning: String) -> bool {
        let mut warned = lock(&self.warned);
        if warned.len() >= MAX_WARNED {
            warned.clear();
        }
        warned.insert(warning)
    }
}

impl SkillSnapshot {
    /// The entries directly in a directory, by their keys.
    pub(crate) fn children<'a>(
        &'a self,
        folder: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a SkillTreeEntry)> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let start = Bound::Included(prefix.clone());
        let length = prefix.len();
        let below = self.entries().range((start, Bound::Unbounded));
        below
            .take_while(move |(key, _)| key.starts_with(&prefix))
            .filter(move |(key, _)| !key[length..].contains('/'))
            .map(|(key, entry)| (key.as_str(), entry))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
