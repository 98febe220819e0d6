//! Skills through the binary.

use serde_json::{Value, json};

use crate::session::{LEGACY, Session, libris, write};

fn skill_text(name: &str) -> String {
    format!("---\nname: {name}\ndescription: The skill {name}\n---\n\n# {name}\n")
}

fn folder(rules: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["alpha", "beta", "gamma"] {
        write(folder.path(), &format!("skills/{name}/SKILL.md"), skill_text(name));
    }
    write(folder.path(), "skills/alpha/private/key.txt", "key");
    write(folder.path(), "skills/alpha/public.txt", "public");
    let config = format!(
        "[server]\npage_size = 2\n[[skills]]\npath = \"skills\"\nttl = \"5m\"\nscope = \"public\"\n{rules}"
    );
    write(folder.path(), "libris.toml", config);
    folder
}

fn uris(skill: &Value) -> Vec<&str> {
    skill["resources"].as_array().unwrap().iter().map(|file| file["uri"].as_str().unwrap()).collect()
}

#[test]
fn skills_are_listed_in_pages_with_the_fields_of_the_revision() {
    let folder = folder("");
    let mut session = Session::modern(folder.path());
    let discovered = session.result("server/discover", json!({}));
    let extensions = &discovered["capabilities"]["extensions"];
    assert_eq!(*extensions, json!({ "io.modelcontextprotocol/skills": { "directoryRead": true } }));
    assert!(discovered["capabilities"]["resources"].is_object());
    let (skills, pages) = session.pages("skills/list", "skills", &json!({}));
    assert_eq!((skills.len(), pages), (3, 2));
    let names: Vec<_> = skills.iter().map(|skill| skill["frontmatter"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["alpha", "beta", "gamma"]);
    let first = session.result("skills/list", json!({}));
    assert_eq!((&first["ttlMs"], &first["cacheScope"]), (&json!(300_000), &json!("public")));
    let got = session.result("skills/get", json!({ "uri": "skill://alpha/SKILL.md" }));
    assert_eq!(
        (&got["ttlMs"], &got["cacheScope"], &got["resultType"]),
        (&json!(300_000), &json!("public"), &json!("complete"))
    );
    assert_eq!(got["skill"], skills[0]);
    assert!(got["nextCursor"].is_null());
    let size = skill_text("alpha").len();
    assert_eq!(got["skill"]["resources"][0]["size"], size);
    for revision in LEGACY {
        let (mut session, _) = Session::legacy(folder.path(), revision);
        let (listed, _) = session.pages("skills/list", "skills", &json!({}));
        assert_eq!(listed, skills, "{revision}");
        let got = session.result("skills/get", json!({ "uri": "skill://alpha/SKILL.md" }));
        assert!(
            got["ttlMs"].is_null() && got["cacheScope"].is_null() && got["resultType"].is_null(),
            "{got}"
        );
        assert_eq!(session.error("skills/get", json!({ "uri": "skill://alpha/public.txt" })).0, -32602);
    }
    for (params, why) in [
        (json!({}), "`uri` is missing"),
        (json!({ "uri": "skill://delta/SKILL.md" }), "no skill is served at `skill://delta/SKILL.md`"),
        (json!({ "uri": "skill://alpha" }), "no skill is served at `skill://alpha`"),
        (json!({ "uri": "file:///x/SKILL.md" }), "no skill is served at `file:///x/SKILL.md`"),
    ] {
        let (code, message) = session.error("skills/get", params);
        assert!(code == -32602 && message.starts_with(why), "{code} {message}");
    }
    let cursor = first["nextCursor"].as_str().unwrap();
    assert_eq!(session.error("resources/list", json!({ "cursor": cursor })).0, -32602);
    assert_eq!(session.error("skills/list", json!({ "cursor": "forged" })).0, -32602);
}

#[test]
fn hidden_skills_and_files_do_not_exist() {
    let rules = "[[rule]]\nuri = \"skill://alpha/private/**\"\naction = \"deny\"\n\
                 [[rule]]\nuri = \"skill://beta/**\"\naction = \"deny\"\n\
                 [[rule]]\nuri = \"skill://gamma/**\"\noperation = \"list\"\naction = \"deny\"\n\
                 [[rule]]\naction = \"allow\"\n";
    let folder = folder(rules);
    let mut session = Session::modern(folder.path());
    let (skills, _) = session.pages("skills/list", "skills", &json!({}));
    assert_eq!(skills.len(), 1);
    assert_eq!(uris(&skills[0]), ["skill://alpha/SKILL.md", "skill://alpha/public.txt"]);
    let hidden = session.error("skills/get", json!({ "uri": "skill://beta/SKILL.md" }));
    let absent = session.error("skills/get", json!({ "uri": "skill://nope/SKILL.md" }));
    assert_eq!((hidden.0, hidden.1.replace("beta", "nope")), absent);
    // It is not listed, and whoever knows it may have it.
    let unlisted = session.result("skills/get", json!({ "uri": "skill://gamma/SKILL.md" }));
    assert_eq!(unlisted["skill"]["frontmatter"]["name"], "gamma");
    assert_eq!(unlisted["cacheScope"], "private");
}

#[test]
fn check_says_why_a_skill_is_not_published() {
    let folder = folder("");
    write(folder.path(), "skills/delta/SKILL.md", skill_text("other"));
    write(folder.path(), "skills/Upper/SKILL.md", skill_text("Upper"));
    write(folder.path(), "skills/plain/SKILL.md", "# Plain\n");
    for number in 0..512 {
        write(folder.path(), &format!("skills/many/{number}"), "");
    }
    write(folder.path(), "skills/many/SKILL.md", skill_text("many"));
    let large = std::fs::File::create(folder.path().join("skills/beta/large.bin")).unwrap();
    large.set_len(16 << 20).unwrap();
    let (ok, said) = libris(folder.path(), &["check", "--config", "libris.toml"]);
    assert!(ok, "{said}");
    for line in [
        "4 resources",
        "2 skills",
        "a skill is not published (folder: Upper) (reason: its name `Upper` may have only the letters a to z",
        "a skill is not published (folder: delta) (reason: its name is `other` and its folder is `delta`; hint:",
        "a skill is not published (folder: many) (reason: it has 513 files, and 512 is the most)",
        "a skill is not published (folder: plain) (reason: its `SKILL.md` has no front matter; hint:",
        "a skill is not published (folder: beta) (reason: its files have 16777",
    ] {
        assert!(said.contains(line), "{line} is missing:\n{said}");
    }
    let (_, said) = libris(folder.path(), &["check", "--config", "libris.toml", "--json"]);
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["sources"][0]["skills"][0]["uri"], "skill://alpha/SKILL.md");
    assert_eq!(report["sources"][0]["warnings"].as_array().unwrap().len(), 5);
}

#[test]
fn changes_are_live() {
    let folder = folder("");
    let (mut session, _) = Session::legacy(folder.path(), "2025-11-25");
    session.result("resources/subscribe", json!({ "uri": "skill://alpha/public.txt" }));
    session.result("resources/list", json!({}));
    write(folder.path(), "skills/alpha/public.txt", "changed");
    let update = session.notified("notifications/resources/updated");
    assert_eq!(update["params"]["uri"], "skill://alpha/public.txt");
    let got = session.result("skills/get", json!({ "uri": "skill://alpha/SKILL.md" }));
    assert_eq!(got["skill"]["resources"][2]["size"], 7);
    write(folder.path(), "skills/delta/SKILL.md", skill_text("delta"));
    session.notified("notifications/resources/list_changed");
    let (skills, _) = session.pages("skills/list", "skills", &json!({}));
    assert_eq!(skills.len(), 4);
}

#[test]
fn documents_that_are_read_as_text_have_no_digests() {
    let folder = folder("[[files]]\npath = \"docs\"\nskills = true\n");
    write(folder.path(), "docs/tools/SKILL.md", skill_text("tools"));
    write(folder.path(), "docs/tools/table.csv", "a,b\n1,2\n");
    let config = std::fs::read_to_string(folder.path().join("libris.toml")).unwrap();
    let manifest = |session: &mut Session| {
        session.result("skills/get", json!({ "uri": "file:///docs/tools/SKILL.md" }))["skill"]["resources"]
            .clone()
    };
    assert_eq!(manifest(&mut Session::modern(folder.path())).as_array().unwrap().len(), 2);
    write(folder.path(), "libris.toml", format!("documents = \"text\"\n{config}"));
    assert_eq!(manifest(&mut Session::modern(folder.path())), "dynamic");
}
