//! The contents of a command resource are the output of its program.

use super::{Bench, kind};
use libris_core::{CompletionRequest, ContentBody, Context, Source as _, Uri, UriTemplate};
use std::collections::BTreeMap;

#[tokio::test]
async fn parts_are_taken_from_the_output() {
    let bench = Bench::new(
        r#"
        [[command]]
        uri = "count://{to}{?lines,bytes}"
        run = ["seq", "{{to}}"]

        [[command]]
        uri = "log://system{?lines,bytes}"
        run = ["seq", "100"]
        default = { lines = "-2" }

        [[command]]
        uri = "passed://on{?lines}"
        run = ["seq", "{{lines}}"]
        default = { lines = "3" }
        "#,
    );
    let mut said = String::new();
    for uri in [
        "count://3",
        "count://9?lines=2-3",
        "count://9?lines=-2",
        "count://9?bytes=2-4",
        "count://9?lines=",
        "count://9?lines=20-",
        "count://9?lines=x",
        "count://9?lines=1&bytes=1-2",
        "log://system",
        "log://system?lines=1",
        "log://system?bytes=-4",
        "passed://on",
        "passed://on?lines=1",
    ] {
        said += &format!("{uri} {:?}\n", bench.text(uri).await);
    }
    insta::assert_snapshot!(said, @r#"
    count://3 "1\n2\n3\n"
    count://9?lines=2-3 "2\n3\n"
    count://9?lines=-2 "8\n9\n"
    count://9?bytes=2-4 "2\n3"
    count://9?lines= "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
    count://9?lines=20- "invalid: `count://9?lines=20-` begins past the end: the output has only 9 lines"
    count://9?lines=x "invalid: `lines=x` is not a range: write `lines=10-20`, `lines=20`, `lines=10-` or `lines=-20`"
    count://9?lines=1&bytes=1-2 "invalid: `?lines=1&bytes=1-2` asks for several ranges: read one at a time"
    log://system "99\n100\n"
    log://system?lines=1 "1\n"
    log://system?bytes=-4 "100\n"
    passed://on "1\n2\n3\n"
    passed://on?lines=1 "1\n"
    "#);
    let listed = bench.commands.list(None, 10, &Context::default()).await.unwrap().resources;
    assert_eq!(
        listed.iter().map(|one| one.uri.as_str()).collect::<Vec<_>>(),
        ["log://system", "passed://on"]
    );
    let subject = |uri: &str| bench.commands.subject(&Uri::parse(uri).unwrap()).to_string();
    assert_eq!(subject("log://system?lines=-5"), "log://system");
    assert_eq!(subject("count://9?bytes=0-1"), "count://9");
    assert_eq!(subject("passed://on?lines=1"), "passed://on?lines=1");
}

#[tokio::test]
async fn braces_without_a_variable_are_for_the_program() {
    let config = "[[command]]\nuri = \"names://all\"\nrun = [\"echo\", \"{{.Names}}\", \"{{json .}}\"]";
    assert_eq!(Bench::new(config).text("names://all").await, "{{.Names}} {{json .}}\n");
}

#[tokio::test]
async fn exit_codes_mean_what_was_said() {
    let bench = Bench::with(
        r#"
        [[command]]
        uri = "exit://{code}"
        run = ["./exits", "{{code}}"]
        exit = { 1 = "not-found", 2 = "denied", 3 = "invalid", 4 = "unavailable", 5 = "ok" }
        "#,
        &[("exits", "#!/bin/sh\necho printed\necho secret >&2\n[ $1 = signal ] && kill -9 $$\nexit $1\n")],
    );
    let mut said = String::new();
    for code in ["0", "1", "2", "3", "4", "5", "6", "signal"] {
        said += &format!("{code} {}\n", bench.text(&format!("exit://{code}")).await.trim_end());
    }
    insta::assert_snapshot!(said, @r#"
    0 printed
    1 not found: no resource at `exit://1`
    2 denied: access to `exit://2` is denied
    3 invalid: `exit://3` is rejected by its command as invalid
    4 unavailable: `exit://4` is unavailable now
    5 printed
    6 unavailable: the command of `exit://6` failed with exit code 6
    signal unavailable: the command of `exit://signal` was killed by signal 9
    "#);
}

#[tokio::test]
async fn standard_error_is_sent_only_if_the_configuration_says_so() {
    let script = "#!/bin/sh\n[ $1 = much ] && { yes error | head -c 100000 >&2; exit 6; }\n[ $1 = binary ] && { printf 'a\\0b' >&2; exit 6; }\nprintf 'no such \\033[31mday\\n' >&2\nexit $1\n";
    let bench = Bench::with(
        r#"
        [[command]]
        uri = "exit://{code}"
        run = ["./exits", "{{code}}"]
        exit = { 1 = "not-found", 2 = "denied", 3 = "invalid", 4 = "unavailable" }
        stderr = "send"
        [[command]]
        uri = "log://{code}"
        run = ["./exits", "{{code}}"]
        exit = { 1 = "not-found" }
        stderr = "log"
        "#,
        &[("exits", script)],
    );
    let mut said = String::new();
    for uri in
        ["exit://1", "exit://2", "exit://3", "exit://4", "exit://6", "exit://binary", "log://1", "log://6"]
    {
        said += &format!("{}\n", bench.text(uri).await.trim_end());
    }
    insta::assert_snapshot!(said, @r#"
    another: no resource at `exit://1`: the command reported: no such [31mday
    denied: access to `exit://2` is denied
    invalid: `exit://3` is rejected by its command as invalid: no such [31mday
    unavailable: `exit://4` is unavailable now: no such [31mday
    unavailable: the command of `exit://6` failed with exit code 6: no such [31mday
    unavailable: the command of `exit://binary` failed with exit code 6
    not found: no resource at `log://1`
    unavailable: the command of `log://6` failed with exit code 6
    "#);
    let much = bench.text("exit://much").await;
    assert!(much.ends_with("error\nerro…") && much.chars().count() < 1_100, "{}", much.chars().count());
}

#[tokio::test]
async fn a_part_says_what_is_left() {
    let bench = Bench::new(
        r#"
        [[command]]
        uri = "count://{to}{?lines,bytes}"
        run = ["seq", "{{to}}"]
        "#,
    );
    let mut said = String::new();
    for uri in [
        "count://5",
        "count://5?lines=1-2",
        "count://5?lines=3-4",
        "count://5?lines=5-6",
        "count://5?lines=-2",
        "count://5?bytes=0-3",
        "count://5?bytes=8-",
    ] {
        let contents = bench.read(uri).await.unwrap();
        let meta = contents.parts[0].meta.as_ref().map(|meta| serde_json::to_string(meta).unwrap());
        said += &format!("{uri} {}\n", meta.unwrap_or_default());
    }
    said += &bench.text("count://5?lines=6-").await;
    insta::assert_snapshot!(said, @r#"
    count://5 
    count://5?lines=1-2 {"dev.libris/next":"count://5?lines=3-4"}
    count://5?lines=3-4 {"dev.libris/next":"count://5?lines=5-6"}
    count://5?lines=5-6 {"dev.libris/totalLines":5}
    count://5?lines=-2 {"dev.libris/totalLines":5}
    count://5?bytes=0-3 {"dev.libris/next":"count://5?bytes=4-7"}
    count://5?bytes=8- {"dev.libris/totalBytes":10}
    invalid: `count://5?lines=6-` begins past the end: the output has only 5 lines
    "#);
}

#[tokio::test]
async fn a_part_is_given_before_the_program_goes_on() {
    let bench = Bench::with(
        "[[command]]\nuri = \"log://follow{?lines}\"\nrun = [\"./follow\"]\ntimeout = \"1m\"",
        &[("follow", "#!/bin/sh\nprintf 'a\\nb\\n'\nexec sleep 1000\n")],
    );
    let part = bench.read("log://follow?lines=1-2").await.unwrap().parts.remove(0);
    assert_eq!(part.body, ContentBody::Text("a\nb\n".into()));
    assert_eq!(part.meta.unwrap()["dev.libris/next"], "log://follow?lines=3-4");
}

#[tokio::test]
async fn the_environment_is_only_what_was_named() {
    let bench = Bench::new(
        r#"
        [[command]]
        uri = "env://all"
        run = ["env"]
        inherit = ["HOME", "LIBRIS_NOT_SET"]
        env = { GREETING = "hello; $(id)" }

        [[command]]
        uri = "env://folder"
        run = ["pwd"]
        folder = "/"

        [[command]]
        uri = "env://input"
        run = ["cat"]
        "#,
    );
    let all = bench.text("env://all").await;
    let mut names: Vec<_> =
        all.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    names.sort_unstable();
    assert_eq!(names, ["GREETING", "HOME", "PATH"]);
    assert!(all.contains("GREETING=hello; $(id)\n"));
    assert_eq!(bench.text("env://folder").await, "/\n");
    // Standard input is empty, so `cat` ends.
    assert_eq!(bench.text("env://input").await, "");
}

#[tokio::test]
async fn the_media_type_is_declared_or_looked_at() {
    let bench = Bench::new(
        r#"
        [[command]]
        uri = "type://text"
        run = ["echo", "hello"]

        [[command]]
        uri = "type://json"
        run = ["echo", "{}"]
        mime = "application/json"

        [[command]]
        uri = "type://png{?lines}"
        run = ["printf", "\\211PNG\\r\\n\\032\\n\\000\\000\\000\\rIHDR"]
        "#,
    );
    let mime = async |uri| {
        let part = bench.read(uri).await.unwrap().parts.remove(0);
        (part.mime.unwrap(), matches!(part.body, ContentBody::Text(_)))
    };
    assert_eq!(mime("type://text").await, ("text/plain".into(), true));
    assert_eq!(mime("type://json").await, ("application/json".into(), true));
    assert_eq!(mime("type://png").await, ("image/png".into(), false));
    assert_eq!(kind(&bench.read("type://png?lines=1").await.unwrap_err()), "invalid");
}

#[tokio::test]
async fn values_are_completed() {
    let bench = Bench::with(
        r#"
        [[command]]
        uri = "say://{fixed}/{printed}/{broken}"
        run = ["echo", "{{fixed}}", "{{printed}}", "{{broken}}"]
        complete = { fixed = ["Paris", "Park City", "Oslo"], printed = { run = ["./values"] }, broken = { run = ["false"] } }
        "#,
        &[("values", "#!/bin/sh\necho x >> runs\nprintf 'ada\\n-rf\\n\\nalan\\n../etc\\nbo'\n")],
    );
    let template = UriTemplate::parse("say://{fixed}/{printed}/{broken}").unwrap();
    let complete = async |variable, typed| {
        let asked =
            CompletionRequest { template: &template, variable, typed, known: &BTreeMap::new(), limit: 100 };
        bench.commands.complete(asked, &Context::default()).await.map(|completion| completion.values)
    };
    assert_eq!(complete("fixed", "par").await.unwrap(), ["Paris", "Park City"]);
    assert_eq!(complete("printed", "").await.unwrap(), ["ada", "alan", "bo"]);
    assert_eq!(complete("printed", "a").await.unwrap(), ["ada", "alan"]);
    assert_eq!(std::fs::read_to_string(bench.dir.path().join("runs")).unwrap(), "x\n");
    assert_eq!(kind(&complete("broken", "").await.unwrap_err()), "unavailable");
}

#[tokio::test]
async fn a_completion_that_fails_fails_once_for_all() {
    let bench = Bench::with(
        r#"
        [[command]]
        uri = "say://{what}"
        run = ["echo", "{{what}}"]
        complete = { what = { run = ["./hangs"] } }
        timeout = "1s"
        "#,
        &[("hangs", "#!/bin/sh\necho x >> runs\nexec sleep 1000\n")],
    );
    let template = UriTemplate::parse("say://{what}").unwrap();
    let known = BTreeMap::new();
    let asked =
        CompletionRequest { template: &template, variable: "what", typed: "", known: &known, limit: 100 };
    let outcomes = futures_util::future::join_all(
        (0..6).map(async |_| bench.commands.complete(asked, &Context::default()).await),
    )
    .await;
    for outcome in outcomes {
        assert_eq!(kind(&outcome.unwrap_err()), "unavailable");
    }
    assert_eq!(std::fs::read_to_string(bench.dir.path().join("runs")).unwrap(), "x\n");
}
