//! What a client gets from commands.

use crate::Bench;

#[path = "../transcripts/mod.rs"]
mod transcripts;

#[tokio::test]
async fn what_a_client_gets() {
    let bench = Bench::with(
        r#"
        [[command]]
        uri = "uptime://now"
        title = "Uptime of this machine"
        run = ["echo", "12 days"]

        [[command]]
        uri = "log://files/{name}{?lines,bytes}"
        title = "A log file"
        description = "A log of this machine; read a part of a long one."
        run = ["./log", "{{name}}"]
        exit = { 1 = "not-found" }
        stderr = "send"
        complete = { name = ["boot", "mail"] }

        [[command]]
        uri = "calendar://events/{year}"
        run = ["./log", "{{year}}"]
        pattern = { year = "(19|20)[0-9][0-9]" }
        complete = { year = ["2025", "2026"] }
        "#,
        &[(
            "log",
            "#!/bin/sh\ncase $1 in boot) seq -f 'line %g' 6;; 2026) echo 'cannot open the calendar' >&2; exit 3;; *) echo \"there is no log $1\" >&2; exit 1;; esac\n",
        )],
    );
    let mut transcript = transcripts::Transcript::of(&bench.commands);
    transcript.list().await;
    transcript.templates().await;
    transcript.complete("log://files/{name}{?lines,bytes}", "name", "b").await;
    for uri in [
        "uptime://now",
        "log://files/boot",
        "log://files/boot?lines=1-2",
        "log://files/boot?lines=5-6",
        "log://files/boot?lines=7-8",
        "log://files/boot?line=1-2",
        "log://files/boots",
        "log://file/boot",
        "calendar://events/2026",
        "calendar://events/20255",
        "calendar://events",
    ] {
        transcript.read(uri).await;
    }
    insta::assert_snapshot!("command", transcript.text());
}
