//! Changes of skills: of a file, and of all files that begin or cease to exist with it.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use libris_core::{Change, Source};

use crate::shelf::{SkillShelf, skill_text, uri};

#[tokio::test]
async fn a_skill_that_begins_to_keep_the_rules_appears_with_all_its_files() {
    let shelf = SkillShelf::new(&["one"]);
    shelf.write("two/SKILL.md", "no front matter");
    shelf.write("two/data.txt", "data");
    let mut changes = shelf.skills.watch().await.unwrap().unwrap();
    let expect = async |changes: &mut futures_util::stream::BoxStream<'static, Change>,
                        expected: &[Change]| {
        let mut missing: Vec<_> = expected.to_vec();
        let mut seen = Vec::new();
        while !missing.is_empty() {
            let change = tokio::time::timeout(Duration::from_secs(30), changes.next()).await;
            let change = change.unwrap_or_else(|_| panic!("{missing:?} is missing, after {seen:?}")).unwrap();
            missing.retain(|expected| *expected != change);
            seen.push(change);
        }
        seen.into_iter().map(|change| format!("{change:?}")).collect::<BTreeSet<_>>()
    };
    shelf.write("two/SKILL.md", skill_text("two"));
    let [folder, skill, data] = ["skill://two", "skill://two/SKILL.md", "skill://two/data.txt"].map(uri);
    let added = [&folder, &skill, &data].map(|uri| Change::Added(uri.clone()));
    expect(&mut changes, &added).await;
    shelf.write("two/data.txt", "other");
    expect(&mut changes, &[Change::Updated(data.clone())]).await;
    shelf.write("two/SKILL.md", skill_text("two").replace("The skill", "Another"));
    expect(&mut changes, &[Change::Updated(skill.clone()), Change::Described(skill.clone())]).await;
    shelf.write("two/SKILL.md", skill_text("renamed"));
    let removed = [&folder, &skill, &data].map(|uri| Change::Removed(uri.clone()));
    let seen = expect(&mut changes, &removed).await;
    assert!(!seen.iter().any(|change| change.contains("Added")), "{seen:?}");
}
