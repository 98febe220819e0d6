//! Argument injection: the values of variables never add arguments or run other programs.

use super::Bench;
use libris_core::uri_template::Variables;
use libris_core::{ContentBody, Context, Error, Source as _, Uri, UriTemplate};

/// A script that prints the number of its arguments and each of them in brackets.
const ARGUMENTS: &str =
    "#!/bin/sh\nprintf '%s\\n' \"$#\"\nfor argument; do printf '[%s]\\n' \"$argument\"; done\n";

fn attempts(canary: &str) -> Vec<String> {
    let attempts = [
        "../../../../etc/passwd".to_owned(),
        "a?b=c".into(),
        "a#b".into(),
        "a\r\nb: c".into(),
        format!("a;rm -f {canary}"),
        format!("$(rm -f {canary})"),
        format!("`rm -f {canary}`"),
        "-rf".into(),
        format!("--output={canary}"),
        "a\0b".into(),
        format!("a|rm {canary}"),
        format!("a && rm {canary}"),
        format!("'; rm {canary}; '\"; rm {canary}; \""),
        "*".into(),
        "\u{2010}rf \u{2013}rf \u{2212}rf \u{ff0d}rf".into(),
        "a".repeat(100_000),
        format!("${{IFS}}rm${{IFS}}{canary}"),
        "a\nb c\td".into(),
    ];
    assert!(attempts.len() >= 16);
    attempts.into()
}

#[tokio::test]
async fn variables_stay_where_they_are_put() {
    let bench = Bench::with(
        r#"
        [[command]]
        uri = "strict://{value}"
        run = ["./arguments", "one", "{{value}}", "--by={{value}}", "last"]

        [[command]]
        uri = "loose://{value}"
        run = ["./arguments", "one", "{{value}}", "--by={{value}}", "last"]
        pattern = { value = "(?s).*" }

        [[command]]
        uri = "inside://{value}"
        run = ["./arguments", "one", "x{{value}}", "--by={{value}}", "last"]
        pattern = { value = "(?s).*" }
        "#,
        &[("arguments", ARGUMENTS)],
    );
    let canary = bench.dir.path().join("canary");
    std::fs::write(&canary, "alive").unwrap();
    let mut ran = 0;
    for value in attempts(&canary.display().to_string()) {
        for (scheme, before) in [("strict", ""), ("loose", ""), ("inside", "x")] {
            let template = UriTemplate::parse(&format!("{scheme}://{{value}}")).unwrap();
            let expanded = template.expand(&Variables::from_iter([("value", &value)])).unwrap();
            let Ok(uri) = Uri::parse(&expanded) else { continue };
            match bench.commands.read(&uri, &Context::default()).await {
                Ok(contents) => {
                    let expected = format!("4\n[one]\n[{before}{value}]\n[--by={value}]\n[last]\n");
                    assert_eq!(contents.parts[0].body, ContentBody::Text(expected), "{uri}");
                    assert_ne!(scheme, "strict", "{value:?} is no name");
                    ran += 1;
                }
                Err(Error::Invalid(_) | Error::NotFound(_)) => {}
                Err(error) => panic!("{uri}: {error:?}"),
            }
        }
    }
    assert!(ran >= 16, "only {ran} reached the program");
    assert_eq!(std::fs::read_to_string(&canary).unwrap(), "alive");
    let left: Vec<_> =
        std::fs::read_dir(bench.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[tokio::test]
async fn what_is_refused_is_explained() {
    let bench = Bench::new(
        r#"
        [[command]]
        uri = "name://{value}"
        run = ["echo", "{{value}}"]

        [[command]]
        uri = "year://{value}"
        run = ["echo", "{{value}}"]
        pattern = { value = "[0-9]{4}" }

        [[command]]
        uri = "any://{value}"
        run = ["echo", "{{value}}"]
        pattern = { value = "(?s).*" }
        "#,
    );
    let mut said = String::new();
    for uri in
        ["name://a%20b", "name://-rf", "name://", "year://2024", "year://24", "any://-rf", "any://a%00"]
    {
        said += &format!("{uri} {}\n", bench.text(uri).await.trim_end());
    }
    insta::assert_snapshot!(said, @r#"
    name://a%20b a b
    name://-rf invalid: `value` must be a name: letters and digits, and between them `_.,:@+=-` or spaces
    name:// invalid: `value` must be a name: letters and digits, and between them `_.,:@+=-` or spaces
    year://2024 2024
    year://24 invalid: `value` must match `[0-9]{4}`
    any://-rf invalid: `value` must not begin with `-`
    any://a%00 invalid: `value` must have at most 1024 bytes and no control characters
    "#);
}
