//! What a client gets from a folder of skills.

use crate::shelf::SkillShelf;

#[path = "../transcripts/mod.rs"]
mod transcripts;

#[tokio::test]
async fn what_a_client_gets() {
    let shelf = SkillShelf::new(&["refunds", "acme/triage"]);
    shelf.write("refunds/scripts/run", "#!/bin/sh\necho refund\n");
    let mut transcript = transcripts::Transcript::of(&shelf.skills);
    transcript.list().await;
    transcript.templates().await;
    for uri in [
        "skill://refunds/SKILL.md",
        "skill://refunds",
        "skill://acme/",
        "skill://refunds/scripts/run",
        "skill://refund/SKILL.md",
        "skill://refunds/scripts/rum",
        "skill://refunds/SKILL.md?lines=1-2",
    ] {
        transcript.read(uri).await;
    }
    insta::with_settings!({ filters => [(r"\d{4}-\d\d-\d\d", "[date]")] }, {
        insta::assert_snapshot!("skills", transcript.text());
    });
}
