//! Prompts through the binary.

use serde_json::{Value, json};

use crate::session::{LEGACY, Session, libris, write};

const CONFIG: &str = r#"
[server]
page_size = 2

[[files]]
path = "docs"

[[inline.resource]]
uri = "test://picture"
mime = "image/png"
base64 = "iVBORw0KGgo="

[[inline.resource]]
uri = "test://sound"
mime = "audio/wav"
base64 = "UklGRg=="

[[inline.template]]
uri = "weather://{country}/{city}"
text = "sun in {{city}}, {{country}}"
complete = { country = ["Norway", "France"], city = ["Oslo", "Paris"] }

[[prompt]]
name = "review"
title = "Review"
description = "Review code"
text = """
Review {{code}}.

{{resource:file:///docs/style.md}}

Be kind."""

[[prompt.argument]]
name = "code"
title = "Code"
description = "What to review"

[[prompt]]
name = "page"
text = "{{resource:file:///docs/guide/{+page}.md}} Explain it in {{language}}."
argument = [{ name = "page" }, { name = "language", required = false, complete = ["English", "French", "German"] }]

[[prompt]]
name = "forecast"
text = "{{resource:weather://{country}/{city}}}"

[[prompt]]
name = "media"
message = [
    { text = "{{resource:test://picture}} {{resource:test://sound}}" },
    { role = "assistant", text = "I see." },
]

[[prompt]]
name = "any"
text = "{{resource:{+uri}}}"
"#;

fn folder(more: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "docs/style.md", "# Style\n");
    write(folder.path(), "docs/guide/start.md", "# Start\n");
    write(folder.path(), "docs/guide/stop.md", "# Stop\n");
    write(folder.path(), "docs/guide/secret.md", "# Secret\n");
    write(folder.path(), "libris.toml", format!("{CONFIG}{more}"));
    folder
}

fn names(prompts: &[Value]) -> Vec<&str> {
    prompts.iter().map(|prompt| prompt["name"].as_str().unwrap()).collect()
}

/// Each message as one line: its role, and its text, the URI of its resource, or its media type.
fn messages(session: &mut Session, name: &str, arguments: Value) -> Vec<String> {
    let result = session.result("prompts/get", json!({ "name": name, "arguments": arguments }));
    let line = |message: &Value| {
        let content = &message["content"];
        let shown = match content["type"].as_str().unwrap() {
            "text" => content["text"].as_str().unwrap().to_owned(),
            "resource" => format!("<{}>", content["resource"]["uri"].as_str().unwrap()),
            kind => format!(
                "{kind} {} {}",
                content["mimeType"].as_str().unwrap(),
                content["data"].as_str().unwrap()
            ),
        };
        format!("{}: {shown}", message["role"].as_str().unwrap())
    };
    result["messages"].as_array().unwrap().iter().map(line).collect()
}

fn completed(session: &mut Session, prompt: &str, argument: &str, typed: &str, known: Value) -> Vec<String> {
    let params = json!({
        "ref": { "type": "ref/prompt", "name": prompt },
        "argument": { "name": argument, "value": typed },
        "context": { "arguments": known },
    });
    let result = session.result("completion/complete", params);
    let values = result["completion"]["values"].as_array().unwrap();
    values.iter().map(|value| value.as_str().unwrap().to_owned()).collect()
}

#[test]
fn prompts_are_listed_in_pages_with_the_fields_of_the_revision() {
    let folder = folder("");
    let mut session = Session::modern(folder.path());
    let discovered = session.result("server/discover", json!({}));
    assert_eq!(discovered["capabilities"]["prompts"], json!({ "listChanged": true }));
    let (prompts, pages) = session.pages("prompts/list", "prompts", &json!({}));
    assert_eq!(names(&prompts), ["any", "forecast", "media", "page", "review", "use-resources"]);
    assert_eq!(pages, 3);
    assert_eq!(
        prompts[4],
        json!({
            "name": "review", "title": "Review", "description": "Review code",
            "arguments": [{ "name": "code", "title": "Code", "description": "What to review", "required": true }],
        })
    );
    let first = session.result("prompts/list", json!({}));
    assert!(first["ttlMs"].is_number() && first["cacheScope"] == "private", "{first}");
    let got = session.result("prompts/get", json!({ "name": "review", "arguments": { "code": "x" } }));
    assert!(got["ttlMs"].is_null() && got["description"] == "Review code", "{got}");
    for revision in LEGACY {
        let (mut session, welcome) = Session::legacy(folder.path(), revision);
        assert_eq!(welcome["capabilities"]["prompts"], json!({ "listChanged": true }));
        let (prompts, _) = session.pages("prompts/list", "prompts", &json!({}));
        let titles = revision >= "2025-06-18";
        assert_eq!(prompts[4]["title"].is_string(), titles, "{revision}");
        assert_eq!(prompts[4]["arguments"][0]["title"].is_string(), titles, "{revision}");
        let sound = if revision == "2024-11-05" { "<test://sound>" } else { "audio audio/wav UklGRg==" };
        assert_eq!(
            messages(&mut session, "media", json!({})),
            ["user: image image/png iVBORw0KGgo=", &*format!("user: {sound}"), "assistant: I see."]
        );
    }
}

#[test]
fn resources_are_embedded_and_values_are_only_text() {
    let folder = folder("");
    let mut session = Session::modern(folder.path());
    let hostile = "{{resource:file:///docs/guide/secret.md}}";
    assert_eq!(
        messages(&mut session, "review", json!({ "code": hostile })),
        [&*format!("user: Review {hostile}."), "user: <file:///docs/style.md>", "user: Be kind."]
    );
    let got = session.result("prompts/get", json!({ "name": "review", "arguments": { "code": "x" } }));
    let embedded = &got["messages"][1]["content"]["resource"];
    assert_eq!(
        *embedded,
        json!({ "uri": "file:///docs/style.md", "mimeType": "text/markdown", "text": "# Style\n" })
    );
    assert_eq!(
        messages(&mut session, "page", json!({ "page": "start" })),
        ["user: <file:///docs/guide/start.md>", "user: Explain it in ."]
    );
    assert_eq!(
        messages(&mut session, "forecast", json!({ "country": "a/b", "city": "?x" })),
        ["user: <weather://a%2Fb/%3Fx>"]
    );
    assert_eq!(
        messages(&mut session, "any", json!({ "uri": "file:///docs/style.md" })),
        ["user: <file:///docs/style.md>"]
    );
    for (name, arguments, why) in [
        ("nope", json!({}), "unknown prompt `nope`"),
        ("review", json!({}), "the prompt `review` needs the argument `code`"),
        (
            "review",
            json!({ "code": "x", "lang": "y" }),
            "the prompt `review` has no argument `lang`; it has `code`",
        ),
        ("page", json!({ "page": "absent" }), "resource not found"),
        ("page", json!({ "page": "../../../etc/passwd" }), "resource not found"),
        ("any", json!({ "uri": "no uri" }), "the arguments give the resource"),
        ("review", json!({ "code": 7 }), "the parameters are invalid"),
    ] {
        let (code, message) = session.error("prompts/get", json!({ "name": name, "arguments": arguments }));
        assert!(code == -32602 && message.starts_with(why), "{name}: {code} {message}");
    }
}

#[test]
fn arguments_complete_from_lists_and_from_the_templates_of_sources() {
    let folder = folder("");
    let mut session = Session::modern(folder.path());
    assert_eq!(completed(&mut session, "page", "language", "", json!({})), ["English", "French", "German"]);
    assert_eq!(completed(&mut session, "page", "language", "g", json!({})), ["German"]);
    assert_eq!(completed(&mut session, "page", "page", "st", json!({})), ["start", "stop"]);
    assert_eq!(completed(&mut session, "page", "page", "", json!({})), ["secret", "start", "stop"]);
    assert_eq!(completed(&mut session, "forecast", "country", "n", json!({})), ["Norway"]);
    assert_eq!(
        completed(&mut session, "forecast", "city", "", json!({ "country": "Norway" })),
        ["Oslo", "Paris"]
    );
    assert_eq!(
        completed(&mut session, "any", "uri", "file:///docs/st", json!({})),
        ["file:///docs/style.md"]
    );
    assert!(completed(&mut session, "review", "code", "x", json!({})).is_empty());
    for (prompt, argument, why) in [
        ("nope", "x", "unknown prompt `nope`"),
        ("review", "x", "the prompt `review` has no argument `x`; it has `code`"),
    ] {
        let params = json!({
            "ref": { "type": "ref/prompt", "name": prompt }, "argument": { "name": argument, "value": "" },
        });
        let (code, message) = session.error("completion/complete", params);
        assert!(code == -32602 && message.starts_with(why), "{code} {message}");
    }
}

#[test]
fn what_is_hidden_shows_through_no_prompt() {
    let rules = "[[rule]]\nuri = \"file:///docs/style.md\"\naction = \"deny\"\n\
                 [[rule]]\nuri = \"file:///docs/guide/secret.md\"\naction = \"deny\"\n\
                 [[rule]]\nuri = \"weather://**\"\naction = \"deny\"\n[[rule]]\naction = \"allow\"\n";
    let folder = folder(rules);
    let mut session = Session::modern(folder.path());
    let (prompts, _) = session.pages("prompts/list", "prompts", &json!({}));
    assert_eq!(names(&prompts), ["any", "media", "page", "use-resources"]);
    let error = |session: &mut Session, name: &str, arguments: Value| {
        session.error("prompts/get", json!({ "name": name, "arguments": arguments }))
    };
    let (hidden, absent) =
        (error(&mut session, "review", json!({})), error(&mut session, "absent", json!({})));
    assert_eq!((hidden.0, hidden.1.replace("review", "absent")), absent);
    let get = |session: &mut Session, page: &str| {
        session.ask("prompts/get", json!({ "name": "page", "arguments": { "page": page } }))["error"]
            .to_string()
    };
    let (hidden, absent) = (get(&mut session, "secret"), get(&mut session, "absent"));
    assert_eq!(hidden.replace("secret", "absent"), absent);
    assert_eq!(completed(&mut session, "page", "page", "s", json!({})), ["start", "stop"]);
    let uris = completed(&mut session, "any", "uri", "", json!({}));
    // The text, and the index of what is there.
    let overview = session.result("prompts/get", json!({ "name": "use-resources" })).to_string();
    for hidden in ["style", "secret", "weather"] {
        assert!(!overview.contains(hidden), "{overview}");
        assert!(!uris.iter().any(|uri| uri.contains(hidden)), "{uris:?}");
    }
    assert!(overview.contains("libris://index") && overview.contains("guide/start.md"), "{overview}");
}

#[test]
fn a_change_of_the_prompts_is_told() {
    let folder = folder("");
    let (mut legacy, _) = Session::legacy(folder.path(), "2025-06-18");
    let mut modern = Session::modern(folder.path());
    let wanted = json!({ "notifications": { "promptsListChanged": true } });
    modern.request("subscriptions/listen", wanted);
    let granted = modern.notified("notifications/subscriptions/acknowledged");
    assert_eq!(granted["params"]["notifications"], json!({ "promptsListChanged": true }));
    legacy.result("prompts/list", json!({}));
    // The subscription of the session is active once its first notification arrives.
    legacy.result("resources/list", json!({}));
    write(folder.path(), "docs/new.md", "new");
    legacy.notified("notifications/resources/list_changed");
    write(folder.path(), "libris.toml", format!("{CONFIG}\n[[prompt]]\nname = \"new\"\ntext = \"New\"\n"));
    for session in [&mut legacy, &mut modern] {
        session.notified("notifications/prompts/list_changed");
        let (prompts, _) = session.pages("prompts/list", "prompts", &json!({}));
        assert!(names(&prompts).contains(&"new"), "{prompts:?}");
    }
}

#[test]
fn the_built_in_prompt_shows_what_a_search_finds_and_can_be_removed() {
    let folder = folder("[search]\nenabled = true\n");
    write(folder.path(), "docs/guide/holidays.md", "# Holidays\n\nEverybody has thirty days of holidays.\n");
    let mut session = Session::modern(folder.path());
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let found = loop {
        // Until the index has the file. Without it, there are the text and `libris://index`.
        let shown = messages(&mut session, "use-resources", json!({ "topic": "how many holidays" }));
        if shown.len() > 2 {
            break shown;
        }
        assert!(std::time::Instant::now() < deadline, "{shown:?}");
        std::thread::yield_now();
    };
    assert!(found[0].contains("Task: how many holidays"), "{found:?}");
    assert_eq!(found[1], "user: <file:///docs/guide/holidays.md>");
    drop(session);
    let config = CONFIG.replace("page_size = 2", "page_size = 9\nuse_resources_prompt = false");
    write(folder.path(), "libris.toml", config);
    let (prompts, _) = Session::modern(folder.path()).pages("prompts/list", "prompts", &json!({}));
    assert!(!names(&prompts).contains(&"use-resources"));
    write(
        folder.path(),
        "libris.toml",
        format!("{CONFIG}\n[[prompt]]\nname = \"use-resources\"\ntext = \"Mine\"\n"),
    );
    assert_eq!(messages(&mut Session::modern(folder.path()), "use-resources", json!({})), ["user: Mine"]);
}

#[test]
fn check_lists_prompts_and_warns_of_missing_resources() {
    let folder = folder("[[prompt]]\nname = \"wrong\"\ntext = \"{{resource:other://nothing}}\"\n");
    let (ok, said) = libris(folder.path(), &["check"]);
    assert!(ok, "{said}");
    for line in [
        "0 resources, 0 templates, 6 prompts",
        "prompt forecast (country, city)",
        "warning: the prompt `wrong` embeds `other://nothing`, which no source has",
    ] {
        assert!(said.contains(line), "{line} is missing:\n{said}");
    }
    assert_eq!(said.matches("which no source has").count(), 1);
    let config = format!("{CONFIG}\n[[prompt]]\nname = \"broken\"\ntext = \"{{{{x\"\n");
    write(folder.path(), "libris.toml", config);
    let (ok, said) = libris(folder.path(), &["check"]);
    assert!(!ok && said.contains("the prompt `broken` is wrong: `{{x` has no `}}` at its end"), "{said}");
}
