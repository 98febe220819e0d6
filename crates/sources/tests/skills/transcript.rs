//! What a client gets from a folder of skills.

use std::sync::Arc;

use libris_core::{Context, Error, Source as _, Uri, Visibility};

use crate::shelf::{SkillShelf, uri};

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

/// A caller with restricted rights, who sees everything nevertheless.
struct Restricted;

impl Visibility for Restricted {
    fn sees(&self, _: &Uri) -> bool {
        true
    }
}

#[tokio::test]
async fn hints_are_for_callers_with_all_rights() {
    let shelf = SkillShelf::new(&["refunds"]);
    let restricted = Context::default().with_visibility(Arc::new(Restricted));
    for wrong in ["skill://refund/SKILL.md", "skill://refunds/x", "skill://refunds/SKILL.md/x"] {
        let error = shelf.skills.read(&uri(wrong), &restricted).await.unwrap_err();
        assert!(matches!(error, Error::NotFound(_)), "{wrong}: {error}");
        let error = shelf.skills.read(&uri(wrong), &Context::default()).await.unwrap_err();
        assert!(matches!(error, Error::Missing { .. }), "{wrong}: {error}");
    }
}
