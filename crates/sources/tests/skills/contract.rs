//! The contract suite on a folder of skills.

use std::fs;
use std::time::Duration;

use async_trait::async_trait;
use libris_core::contract::{Fixture, check};
use libris_core::{Source, Uri};

use crate::shelf::{SkillShelf, uri};

struct Served {
    shelf: SkillShelf,
    /// What stands between the scheme and the path in the folder.
    prefix: &'static str,
}

impl Served {
    fn path(&self, uri: &Uri) -> std::path::PathBuf {
        let path = uri.as_str().strip_prefix("skill://").unwrap();
        self.shelf.path(path.strip_prefix(self.prefix).unwrap())
    }
}

#[async_trait]
impl Fixture for Served {
    fn source(&self) -> &dyn Source {
        &self.shelf.skills
    }

    fn unknown(&self) -> Uri {
        uri(&format!("skill://{}one/no/such/file", self.prefix))
    }

    fn invalid(&self) -> Vec<Uri> {
        [
            "one/..%2f..%2fetc%2fpasswd",
            "one/%00",
            "one/.git/config",
            "one/SKILL.md?lines=1",
            "one/a%2Fb",
            "notes.md",
        ]
        .map(|path| uri(&format!("skill://{}{path}", self.prefix)))
        .into()
    }

    async fn add(&self, number: usize) -> Option<Uri> {
        let uri = uri(&format!("skill://{}one/added-{number}.txt", self.prefix));
        fs::write(self.path(&uri), "added").unwrap();
        Some(uri)
    }

    async fn change(&self, uri: &Uri) -> bool {
        fs::write(self.path(uri), "changed").is_ok()
    }

    async fn remove(&self, uri: &Uri) -> bool {
        fs::remove_file(self.path(uri)).is_ok()
    }

    async fn deadline(&self) {
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

fn shelf(prefix: &'static str) -> Served {
    let shelf = SkillShelf::with(&["one", "one/sub/two", "deep/er/three"], |mut config| {
        config.prefix = Some(prefix.to_owned());
        config
    });
    for path in ["one/scripts/run.sh", "one/logo.png", "one/LICENSE", "deep/readme.md", "notes.md"] {
        shelf.write(path, path);
    }
    Served { shelf, prefix }
}

#[tokio::test]
async fn a_folder_of_skills() {
    check(&shelf("")).await;
}

#[tokio::test]
async fn a_folder_of_skills_below_a_prefix() {
    check(&shelf("acme/billing/")).await;
}
