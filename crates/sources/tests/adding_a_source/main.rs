//! The example source of CONTRIBUTING.md: it compiles, passes the contract suite, and its diff applies.

#[allow(unreachable_pub, reason = "in a source, it is public")]
mod environment;

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use libris_core::contract::{Fixture, check};
use libris_core::{Source, Uri};
use libris_sources::registry;

use environment::{Config, Environment};
use registry::{ConfigFile, Section};

struct Variables(Environment);

#[async_trait]
impl Fixture for Variables {
    fn source(&self) -> &dyn Source {
        &self.0
    }

    fn unknown(&self) -> Uri {
        Uri::parse("env://process/NO_SUCH_VARIABLE").unwrap()
    }

    async fn deadline(&self) {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

fn config() -> Config {
    toml::from_str("variables = ['HOME', 'LANG', 'PATH', 'TZ']").unwrap()
}

#[tokio::test]
async fn the_example_passes_the_contract() {
    check(&Variables(Environment::new(&config()).unwrap())).await;
}

#[test]
fn the_example_is_defined_by_a_section() {
    let definitions = Some(config()).definitions(&ConfigFile::default());
    assert_eq!(definitions.len(), 1);
    assert_eq!(definitions[0].label(), "environment");
    assert!(definitions[0].open().unwrap().root.is_none());
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files of a diff, each with its lines.
fn files(diff: &str) -> Vec<(&str, Vec<&str>)> {
    diff.split("+++ b/")
        .skip(1)
        .map(|file| {
            let mut lines = file.lines();
            let path = lines.next().unwrap();
            (path, lines.take_while(|line| !line.starts_with("--- ")).collect())
        })
        .collect()
}

#[test]
fn the_diff_in_the_guide_applies_and_holds_the_example() {
    let guide = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let diff = guide.split("```diff\n").nth(1).and_then(|rest| rest.split("\n```").next()).expect("a diff");
    let files = files(diff);
    assert_eq!(files.len(), 6, "{files:?}");
    for (path, lines) in files {
        let is_new = lines.iter().all(|line| line.starts_with('+'));
        if path.ends_with("environment/mod.rs") {
            let added: String = lines.iter().map(|line| format!("{}\n", &line[1..])).collect();
            assert_eq!(added, include_str!("environment.rs"), "hint: copy the file into CONTRIBUTING.md");
        } else if !is_new {
            let before: String = lines
                .iter()
                .filter(|line| !line.starts_with('+'))
                .map(|line| format!("{}\n", &line[1..]))
                .collect();
            let text = std::fs::read_to_string(root().join(path)).unwrap();
            assert!(text.contains(&before), "`{path}` has no lines\n{before}");
        }
    }
}
