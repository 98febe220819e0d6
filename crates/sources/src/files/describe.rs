//! What is known about a file: its kind, its title, and what the configuration says of it.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use ignore::gitignore::Gitignore;
use jiff::Timestamp;
use libris_core::{Annotations, Error, Resource, Result, Uri};

use super::config::Rule;
use crate::front_matter::{self, FrontMatter};
use crate::media;
use crate::patterns::patterns;
use crate::tree::walk::{self, Leaf};
use crate::tree::{Cache, Folder, Place, Stamp, Tree};

/// The media type of directories.
pub(super) const DIRECTORY: &str = "inode/directory";

/// How many bytes of what was found in files are kept in memory.
const KNOWN: usize = 32 * 1024 * 1024;

/// What a file takes there beside its key and its texts.
const OVERHEAD: usize = 192;

/// Describes files.
pub(super) struct Describe {
    rules: Vec<(Gitignore, Rule)>,
    known: Cache<Known>,
}

#[derive(Clone)]
struct Known {
    stamp: Stamp,
    facts: Facts,
}

/// What looking into a file tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) mime: &'static str,
    front_matter: Option<Arc<FrontMatter>>,
    /// Whether the file could be read, as far as that was necessary.
    pub(super) complete: bool,
}

impl Describe {
    pub(super) fn new(rules: &[Rule]) -> Result<Self> {
        let rules = rules.iter().map(|rule| Ok((check(rule)?, rule.clone()))).collect::<Result<_>>()?;
        Ok(Self { rules, known: Cache::new(KNOWN) })
    }

    pub(super) fn folder(&self, folder: &Folder, uri: Uri, name: String) -> Resource {
        let mut resource = Resource::new(uri, name);
        resource.mime = Some(DIRECTORY.into());
        self.apply_rules(&mut resource, &folder.way.path, true);
        resource.annotations.last_modified = folder.stamp.modified.and_then(timestamp);
        resource
    }

    pub(super) fn file(&self, folder: &Folder, leaf: &Leaf, facts: Facts, uri: Uri) -> Resource {
        let mut resource = Resource::new(uri, leaf.name.to_string_lossy());
        resource.mime = Some(facts.mime.into());
        resource.size = Some(leaf.stamp.size);
        if !self.rules.is_empty() {
            self.apply_rules(&mut resource, &folder.way.path.join(&leaf.name), false);
        }
        resource.annotations.last_modified = leaf.stamp.modified.and_then(timestamp);
        if let Some(matter) = facts.front_matter {
            resource.title.clone_from(&matter.title);
            resource.description = matter.description.clone().or(resource.description);
        }
        resource
    }

    /// What is known of a file without looking into it now.
    pub(super) fn known(&self, leaf: &Leaf) -> Option<Facts> {
        if let Some(mime) = media::by_name(&leaf.name.to_string_lossy())
            && !front_matter::may_be_in(mime)
        {
            return Some(Facts { mime, front_matter: None, complete: true });
        }
        self.known.find(&leaf.key).filter(|known| known.stamp == leaf.stamp).map(|known| known.facts)
    }

    /// What looking into a file tells; it is opened only where its name does not tell enough. A file that
    /// is gone, or that cannot be read for a reason of its own, is described by its name alone.
    pub(super) fn facts(&self, tree: &Tree, folder: &Folder, leaf: &Leaf) -> io::Result<Facts> {
        if let Some(known) = self.known(leaf) {
            return Ok(known);
        }
        let label = leaf.name.to_string_lossy();
        let named = media::by_name(&label);
        let seen = SystemTime::now();
        let Some((head, stamp)) = head(tree, folder, leaf)? else {
            let mime = named.unwrap_or("application/octet-stream");
            return Ok(Facts { mime, front_matter: None, complete: false });
        };
        let mime = named.unwrap_or_else(|| media::by_content(&label, &head));
        let front_matter =
            front_matter::may_be_in(mime).then(|| FrontMatter::parse(&head)).flatten().map(Arc::new);
        let facts = Facts { mime, front_matter, complete: true };
        if stamp.settled(seen) {
            self.keep(&leaf.key, Known { stamp, facts: facts.clone() });
        }
        Ok(facts)
    }

    fn keep(&self, key: &str, known: Known) {
        let texts = known.facts.front_matter.as_ref().map_or(0, |matter| matter.len());
        self.known.keep(key, OVERHEAD + key.len() + texts, known);
    }

    fn apply_rules(&self, resource: &mut Resource, path: &Path, directory: bool) {
        for (pattern, rule) in &self.rules {
            if path.as_os_str().is_empty()
                || !pattern.matched_path_or_any_parents(path, directory).is_ignore()
            {
                continue;
            }
            let Annotations { audience, priority, .. } = &mut resource.annotations;
            if let Some(said) = &rule.audience {
                audience.clone_from(said);
            }
            *priority = rule.priority.or(*priority);
            if let Some(said) = &rule.description {
                resource.description = Some(said.clone());
            }
        }
    }
}

/// The first bytes of a file, and the stamp of the file that was opened: the one that was listed may be
/// another by now. `None` where it is gone or cannot be read for a reason of its own.
fn head(tree: &Tree, folder: &Folder, leaf: &Leaf) -> io::Result<Option<(Vec<u8>, Stamp)>> {
    let (file, metadata) = match tree.at(folder, &leaf.name, Place::open) {
        Ok(opened) => opened,
        Err(cause) => return walk::pass_over(tree, &leaf.key, cause).map(|()| None),
    };
    let mut head = Vec::new();
    match file.take(media::HEAD as u64).read_to_end(&mut head) {
        Ok(_) => Ok(Some((head, Stamp::of(&metadata)))),
        // A damaged file must not keep the others from being listed.
        Err(cause) if is_damage(&cause) => {
            tree.warn(&leaf.key, &cause);
            Ok(None)
        }
        Err(cause) => Err(cause),
    }
}

/// Whether the data of a file could not be read from its disk.
#[cfg(unix)]
fn is_damage(cause: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(cause) == Some(rustix::io::Errno::IO)
}

#[cfg(not(unix))]
fn is_damage(_cause: &io::Error) -> bool {
    false
}

fn check(rule: &Rule) -> Result<Gitignore> {
    if rule.glob.is_empty() {
        return Err(Error::invalid("a `rule` has no `glob`"));
    }
    if let Some(priority) = rule.priority.filter(|priority| !(0.0..=1.0).contains(priority)) {
        return Err(Error::invalid(format!(
            "the rule for `{}` has the priority `{priority}`, which is not between 0 and 1",
            rule.glob
        )));
    }
    patterns("glob", std::slice::from_ref(&rule.glob))
}

fn timestamp(time: SystemTime) -> Option<Timestamp> {
    Timestamp::try_from(time).ok()
}

#[cfg(test)]
mod tests {
    use super::{Arc, Describe, Facts, FrontMatter, KNOWN, Known, Stamp};
    use crate::tree::Root;

    #[test]
    fn what_is_known_is_bounded_in_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let metadata = Root::open(folder.path()).unwrap().place().unwrap().metadata().unwrap();
        let describe = Describe::new(&[]).unwrap();
        let files = KNOWN / 3000 * 2;
        for file in 0..files {
            let matter = FrontMatter { title: None, description: Some("d".repeat(3000)) };
            let facts = Facts { mime: "text/markdown", front_matter: Some(Arc::new(matter)), complete: true };
            describe.keep(&file.to_string(), Known { stamp: Stamp::of(&metadata), facts });
        }
        let kept = (0..files).filter(|file| describe.known.find(&file.to_string()).is_some()).count();
        assert!(kept > 100 && kept * 3000 <= KNOWN, "{kept}");
    }
}
