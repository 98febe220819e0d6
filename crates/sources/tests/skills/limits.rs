//! The limits of the extension: 512 files and 16 MiB for each skill.

use libris_core::{ContentBody, Context, Source};

use crate::shelf::{SkillShelf, files, skill_text};

const MIB_16: u64 = 16 * 1024 * 1024;

#[tokio::test]
async fn a_skill_has_512_files_at_most() {
    let shelf = SkillShelf::new(&["many", "other"]);
    for number in 1..512 {
        shelf.write(&format!("many/{}/file-{number}.txt", number % 7), number.to_string());
    }
    let skill = shelf.skill("skill://many/SKILL.md").await.unwrap();
    assert_eq!(files(&skill).len(), 512);
    shelf.write("many/one-more.txt", "");
    assert!(shelf.skill("skill://many/SKILL.md").await.is_err());
    assert_eq!(shelf.published().await, ["skill://other/SKILL.md"]);
    assert_eq!(shelf.listed().await, ["skill://other/SKILL.md"]);
    std::fs::remove_file(shelf.path("many/0/file-7.txt")).unwrap();
    assert_eq!(files(&shelf.skill("skill://many/SKILL.md").await.unwrap()).len(), 512);
}

#[tokio::test]
async fn files_before_the_skill_file_count_too() {
    let shelf = SkillShelf::new(&["early"]);
    // All sorted before `SKILL.md`.
    for number in 0..600 {
        shelf.write(&format!("early/A{number}"), "");
    }
    assert!(shelf.published().await.is_empty());
}

#[tokio::test]
async fn a_skill_has_16_mib_at_most() {
    let shelf = SkillShelf::new(&["large"]);
    let rest = MIB_16 - skill_text("large").len() as u64;
    let file = std::fs::File::create(shelf.path("large/data.bin")).unwrap();
    file.set_len(rest).unwrap();
    let skill = shelf.skill("skill://large/SKILL.md").await.unwrap();
    assert_eq!(files(&skill).iter().map(|(_, _, size)| size).sum::<u64>(), MIB_16);
    let read = shelf.read("skill://large/data.bin").await.unwrap();
    assert!(matches!(read.body, ContentBody::Bytes(bytes) if bytes.len() as u64 == rest));
    file.set_len(rest + 1).unwrap();
    assert!(shelf.skill("skill://large/SKILL.md").await.is_err());
    assert!(shelf.published().await.is_empty());
}

#[tokio::test]
async fn pages_hold_whole_skills() {
    let names: Vec<_> = (0..40).map(|number| format!("skill-{number:02}")).collect();
    let shelf = SkillShelf::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for name in &names {
        for file in 0..300 {
            shelf.write(&format!("{name}/{file}"), "");
        }
    }
    let (mut after, mut pages, mut seen) = (None, 0, Vec::new());
    loop {
        let page = shelf.skills.skills(after.as_ref(), 1000, &Context::default()).await.unwrap();
        pages += 1;
        assert!(page.skills.iter().all(|skill| files(skill).len() == 301));
        seen.extend(page.skills.iter().map(|skill| skill.frontmatter["name"].as_str().unwrap().to_owned()));
        after = page.skills.last().map(|skill| skill.uri.clone());
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, names);
    assert_eq!(pages, 2, "12,040 files are too many for one page");
    let page = shelf.skills.skills(None, 3, &Context::default()).await.unwrap();
    assert_eq!((page.skills.len(), page.more), (3, true));
}
