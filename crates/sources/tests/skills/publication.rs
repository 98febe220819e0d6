//! Which folders are published as skills, and how they are described.

use libris_core::{ContentBody, Context, Error, SkillResources, Source};
use libris_sources::skills::Config;
use libris_sources::{Files, Skills, files};
use serde_json::json;
use tempfile::TempDir;

use crate::shelf::{SkillShelf, digest, files as manifest, skill_text, uri, write, write_skill};

#[tokio::test]
async fn a_skill_has_its_front_matter_and_all_its_files() {
    let shelf = SkillShelf::new(&["refunds", "acme/support/triage"]);
    let text =
        "---\nname: refunds\ndescription: Process refunds\nmetadata: { version: 2 }\n---\nRead templates/.\n";
    shelf.write("refunds/SKILL.md", text);
    shelf.write("refunds/templates/eu/email.md", "Dear customer");
    shelf.write("refunds/scripts/run", b"#!/bin/sh\necho \xff\n");
    shelf.write("notes.md", "not in a skill");
    shelf.write("acme/readme.md", "not in a skill");
    assert_eq!(shelf.published().await, ["skill://acme/support/triage/SKILL.md", "skill://refunds/SKILL.md"]);
    let skill = shelf.skill("skill://refunds/SKILL.md").await.unwrap();
    let expected =
        json!({ "name": "refunds", "description": "Process refunds", "metadata": { "version": 2 } });
    assert_eq!(serde_json::Value::Object(skill.frontmatter.clone()), expected);
    assert_eq!(
        shelf.verified(&skill).await,
        ["skill://refunds/SKILL.md", "skill://refunds/scripts/run", "skill://refunds/templates/eu/email.md"]
    );
    assert_eq!(
        shelf.listed().await,
        [
            "skill://acme/support/triage/SKILL.md",
            "skill://refunds/SKILL.md",
            "skill://refunds/scripts/run",
            "skill://refunds/templates/eu/email.md"
        ]
    );
    let page = shelf.skills.list(None, 2, &Context::default()).await.unwrap();
    let skill_file = page.resources.last().unwrap();
    assert_eq!(
        (&*skill_file.name, skill_file.description.as_deref(), skill_file.mime.as_deref()),
        ("refunds", Some("Process refunds"), Some("text/markdown"))
    );
    for missing in ["skill://notes.md", "skill://acme/readme.md", "skill://other/SKILL.md"] {
        assert!(shelf.read(missing).await.unwrap_err().is_not_found(), "{missing}");
    }
    for no_skill in
        ["skill://refunds", "skill://refunds/scripts/run", "skill://acme", "skill://refunds/SKILL.md/"]
    {
        assert!(matches!(shelf.skill(no_skill).await, Err(Error::NotFound(_))), "{no_skill}");
    }
}

#[tokio::test]
async fn every_level_is_a_directory() {
    let shelf = SkillShelf::with(&["one", "deep/two"], |mut config| {
        config.prefix = Some("acme/v1".into());
        config
    });
    shelf.write("one/a/b.txt", "b");
    std::fs::create_dir(shelf.path("one/empty")).unwrap();
    shelf.write("deep/no-skill/x.txt", "x");
    let directory = |path: &str| (format!("skill://{path}"), "inode/directory".to_owned());
    let file = |path: &str, mime: &str| (format!("skill://{path}"), mime.to_owned());
    for (of, children) in [
        ("skill://acme", vec![directory("acme/v1")]),
        ("skill://acme/v1", vec![directory("acme/v1/deep"), directory("acme/v1/one")]),
        ("skill://acme/v1/deep", vec![directory("acme/v1/deep/two")]),
        (
            "skill://acme/v1/one",
            vec![
                file("acme/v1/one/SKILL.md", "text/markdown"),
                directory("acme/v1/one/a"),
                directory("acme/v1/one/empty"),
            ],
        ),
        ("skill://acme/v1/one/a", vec![file("acme/v1/one/a/b.txt", "text/plain")]),
        ("skill://acme/v1/one/empty", vec![]),
    ] {
        assert_eq!(shelf.children(of).await.unwrap(), children, "{of}");
        assert_eq!(shelf.children(&format!("{of}/")).await.unwrap(), children, "{of}/");
        assert!(shelf.read(of).await.is_ok(), "{of}");
    }
    assert!(matches!(shelf.children("skill://acme/v1/one/SKILL.md").await, Err(Error::NotDirectory(_))));
    for missing in ["skill://acme/v2", "skill://acme/v1/deep/no-skill", "skill://other"] {
        assert!(matches!(shelf.children(missing).await, Err(Error::NotFound(_))), "{missing}");
    }
}

#[tokio::test]
async fn nested_skills_belong_to_the_outer_one_and_are_published_too() {
    let shelf = SkillShelf::new(&["outer", "outer/parts/inner"]);
    shelf.write("outer/parts/inner/notes.txt", "notes");
    shelf.write("outer/parts/broken/SKILL.md", "no front matter");
    assert_eq!(shelf.published().await, ["skill://outer/SKILL.md", "skill://outer/parts/inner/SKILL.md"]);
    let outer = shelf.skill("skill://outer/SKILL.md").await.unwrap();
    assert_eq!(
        shelf.verified(&outer).await,
        [
            "skill://outer/SKILL.md",
            "skill://outer/parts/broken/SKILL.md",
            "skill://outer/parts/inner/SKILL.md",
            "skill://outer/parts/inner/notes.txt"
        ]
    );
    let inner = shelf.skill("skill://outer/parts/inner/SKILL.md").await.unwrap();
    assert_eq!(
        shelf.verified(&inner).await,
        ["skill://outer/parts/inner/SKILL.md", "skill://outer/parts/inner/notes.txt"]
    );
    assert!(shelf.skill("skill://outer/parts/broken/SKILL.md").await.is_err());
}

#[tokio::test]
async fn a_skill_that_breaks_a_rule_is_not_there() {
    let shelf = SkillShelf::new(&["good"]);
    shelf.write("renamed/SKILL.md", skill_text("other"));
    shelf.write("Upper/SKILL.md", skill_text("Upper"));
    shelf.write("plain/SKILL.md", "# No front matter\n");
    shelf.write("plain/data.txt", "data");
    shelf.write("lower/skill.md", skill_text("lower"));
    assert_eq!(shelf.published().await, ["skill://good/SKILL.md"]);
    assert_eq!(shelf.listed().await, ["skill://good/SKILL.md"]);
    for missing in
        ["renamed/SKILL.md", "Upper/SKILL.md", "plain/SKILL.md", "plain/data.txt", "lower/skill.md"]
    {
        let missing = format!("skill://{missing}");
        assert!(shelf.read(&missing).await.unwrap_err().is_not_found(), "{missing}");
        assert!(matches!(shelf.skill(&missing).await, Err(Error::NotFound(_))), "{missing}");
    }
    // Once it keeps the rules, it is there.
    shelf.write("plain/SKILL.md", skill_text("plain"));
    let plain = shelf.skill("skill://plain/SKILL.md").await.unwrap();
    assert_eq!(shelf.verified(&plain).await, ["skill://plain/SKILL.md", "skill://plain/data.txt"]);
    // And once it breaks one, it is gone, with all its files.
    shelf.write("plain/SKILL.md", "---\nname: plain\n---\n");
    assert_eq!(shelf.listed().await, ["skill://good/SKILL.md"]);
}

#[tokio::test]
async fn a_folder_that_is_a_skill_itself_has_its_name() {
    let dir = TempDir::new().unwrap();
    write_skill(dir.path(), "refunds");
    write(&dir.path().join("refunds/a.txt"), "a");
    let skills = Skills::open(Config::new(dir.path().join("refunds"))).unwrap();
    let page = skills.skills(None, 9, &Context::default()).await.unwrap();
    assert_eq!(page.skills[0].uri.as_str(), "skill://refunds/SKILL.md");
    assert_eq!(manifest(&page.skills[0])[1].0, "skill://refunds/a.txt");
    let children = skills.children(&uri("skill://refunds"), None, 9, &Context::default()).await.unwrap();
    assert_eq!(children.resources.len(), 2);
}

#[tokio::test]
async fn files_are_served_byte_for_byte() {
    let shelf = SkillShelf::new(&["bytes"]);
    let odd: [(&str, &[u8]); 5] = [
        ("bom.txt", b"\xef\xbb\xbfwith a byte order mark\r\n"),
        ("latin1.txt", b"gr\xf6\xdfe"),
        ("utf16.txt", b"\xff\xfea\0b\0"),
        ("nul.txt", b"a\0b"),
        ("empty.txt", b""),
    ];
    for (name, data) in odd {
        shelf.write(&format!("bytes/{name}"), data);
    }
    let skill = shelf.skill("skill://bytes/SKILL.md").await.unwrap();
    assert_eq!(shelf.verified(&skill).await.len(), 6);
    let read = shelf.read("skill://bytes/bom.txt").await.unwrap();
    assert_eq!(read.body, ContentBody::Text("\u{feff}with a byte order mark\r\n".into()));
    assert!(matches!(shelf.read("skill://bytes/latin1.txt").await.unwrap().body, ContentBody::Bytes(_)));
}

#[tokio::test]
async fn a_change_between_list_and_get_is_in_the_entry() {
    let shelf = SkillShelf::new(&["live"]);
    shelf.write("live/data.txt", "before");
    let page = shelf.skills.skills(None, 9, &Context::default()).await.unwrap();
    let before = manifest(&page.skills[0]);
    // The same size, and within one tick of the clock of the file system.
    shelf.write("live/data.txt", "behind");
    let skill = shelf.skill("skill://live/SKILL.md").await.unwrap();
    assert_eq!(manifest(&skill)[1].1, digest(b"behind"));
    assert_ne!(manifest(&skill)[1].1, before[1].1);
    shelf.verified(&skill).await;
    shelf.write("live/more.txt", "new");
    std::fs::remove_file(shelf.path("live/data.txt")).unwrap();
    let skill = shelf.skill("skill://live/SKILL.md").await.unwrap();
    assert_eq!(shelf.verified(&skill).await, ["skill://live/SKILL.md", "skill://live/more.txt"]);
    shelf.write("live/SKILL.md", skill_text("live").replace("The skill", "Another"));
    let skill = shelf.skill("skill://live/SKILL.md").await.unwrap();
    assert_eq!(skill.frontmatter["description"], "Another live");
    shelf.verified(&skill).await;
}

#[tokio::test]
async fn dynamic_and_unlisted_skills_are_configured() {
    let shelf = SkillShelf::with(&["one", "reports/daily", "drafts/two"], |mut config| {
        config.dynamic = vec!["/reports/".into()];
        config.unlisted = vec!["drafts/".into()];
        config
    });
    shelf.write("drafts/two/a.txt", "a");
    assert_eq!(shelf.published().await, ["skill://one/SKILL.md", "skill://reports/daily/SKILL.md"]);
    let daily = shelf.skill("skill://reports/daily/SKILL.md").await.unwrap();
    assert_eq!(daily.resources, SkillResources::Dynamic);
    assert_eq!(daily.frontmatter["name"], "daily");
    let unlisted = shelf.skill("skill://drafts/two/SKILL.md").await.unwrap();
    assert_eq!(shelf.verified(&unlisted).await, ["skill://drafts/two/SKILL.md", "skill://drafts/two/a.txt"]);
}

#[tokio::test]
async fn a_folder_of_files_publishes_its_skills_if_told_so() {
    let dir = TempDir::new().unwrap();
    write_skill(dir.path(), "tools/refunds");
    write(&dir.path().join("tools/refunds/latin1.txt"), b"gr\xf6\xdfe");
    write(&dir.path().join("tools/refunds/large.txt"), vec![b'x'; 2000]);
    write(&dir.path().join("readme.md"), "readme");
    let open = |skills: bool, max_size: u64| {
        let mount = Some("docs".into());
        Files::open(files::Config { mount, skills, max_size, ..files::Config::new(dir.path()) }).unwrap()
    };
    let context = Context::default();
    let skill_file = uri("file:///docs/tools/refunds/SKILL.md");
    let files = open(true, 4000);
    let page = files.skills(None, 9, &context).await.unwrap();
    assert_eq!(page.skills.len(), 1);
    assert_eq!(page.skills[0].uri, skill_file);
    for (uri_text, file_digest, size) in manifest(&page.skills[0]) {
        let contents = files.read(&uri(&uri_text), &context).await.unwrap();
        let bytes = match &contents.parts[0].body {
            ContentBody::Text(text) => text.as_bytes(),
            ContentBody::Bytes(bytes) => bytes,
        };
        assert_eq!((digest(bytes), bytes.len() as u64), (file_digest, size), "{uri_text}");
    }
    assert_eq!(files.skill(&skill_file, &context).await.unwrap().0, page.skills[0]);
    let listed = files.list(None, 99, &context).await.unwrap();
    assert!(listed.resources.iter().any(|resource| resource.name == "readme.md"));
    // A file that cannot be read whole would make the skill useless.
    assert!(open(true, 1000).skills(None, 9, &context).await.unwrap().skills.is_empty());
    let without = open(false, 4000);
    assert!(without.skills(None, 9, &context).await.unwrap().skills.is_empty());
    assert!(without.skill(&skill_file, &context).await.unwrap_err().is_not_found());
}

#[cfg(unix)]
#[tokio::test]
async fn symbolic_links_are_no_files_unless_followed() {
    use std::os::unix::fs::symlink;
    let secret = TempDir::new().unwrap();
    write(&secret.path().join("secret.txt"), "secret");
    for follow in [false, true] {
        let shelf = SkillShelf::with(&["linked"], |mut config| {
            config.symlinks = follow;
            config
        });
        shelf.write("linked/real.txt", "real");
        symlink(secret.path().join("secret.txt"), shelf.path("linked/out.txt")).unwrap();
        symlink("real.txt", shelf.path("linked/in.txt")).unwrap();
        symlink("linked", shelf.path("other")).unwrap();
        let skill = shelf.skill("skill://linked/SKILL.md").await.unwrap();
        let mut expected = vec!["skill://linked/SKILL.md", "skill://linked/real.txt"];
        if follow {
            expected.insert(1, "skill://linked/in.txt");
        }
        assert_eq!(shelf.verified(&skill).await, expected);
        assert!(shelf.read("skill://linked/out.txt").await.unwrap_err().is_not_found());
        // A folder under another name is another skill, whose name is not that of the folder.
        assert_eq!(shelf.published().await, ["skill://linked/SKILL.md"]);
    }
}
