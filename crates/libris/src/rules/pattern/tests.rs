use super::UriPattern;
use libris_core::Uri;

fn matches(pattern: &str, uri: &str) -> bool {
    UriPattern::parse(pattern).unwrap().matches(&Uri::parse(uri).unwrap())
}

#[test]
fn wildcards_stand_for_parts_of_segments_and_for_segments() {
    for (pattern, matching, others) in [
        ("**", &["a:b", "file:///x/y", "git://r/"][..], &[][..]),
        (
            "file:///docs/a.md",
            &["file:///docs/a.md"],
            &["file:///docs/a.mdx", "file:///docs", "file:///docs/a.md/b"],
        ),
        ("file:///docs/*", &["file:///docs/a"], &["file:///docs", "file:///docs/a/b", "file:///docsa"]),
        ("file:///docs/*.key", &["file:///docs/.key", "file:///docs/a.key"], &["file:///docs/a/b.key"]),
        (
            "file:///docs/**",
            &["file:///docs", "file:///docs/", "file:///docs/a/b"],
            &["file:///docs2", "file:///"],
        ),
        (
            "file:///**/*.key",
            &["file:///a.key", "file:///docs/x/a.key"],
            &["file:///docs/a.keys", "file:///a.key/b"],
        ),
        (
            "file:///a/**/b/**/c",
            &["file:///a/b/c", "file:///a/x/b/b/y/c"],
            &["file:///a/xb/c", "file:///a/b/xc"],
        ),
        ("file:///a/**/**/b", &["file:///a/b", "file:///a/x/y/b"], &["file:///ab"]),
        ("git://**", &["git://r/refs", "git://r"], &["gitx://r", "file:///r"]),
        (
            "git://*/tree/*/secrets/**",
            &["git://r/tree/main/secrets", "git://r/tree/a%2Fb/secrets/x"],
            &["git://r/tree/a/b/secrets"],
        ),
        ("note:*", &["note:1", "note:"], &["note:1/2", "notes:1"]),
        ("x://a*b*c/d", &["x://abc/d", "x://a1b2c/d"], &["x://ab/d", "x://a/b/c/d"]),
    ] {
        for uri in matching {
            assert!(matches(pattern, uri), "{pattern} matches {uri}");
        }
        for uri in others {
            assert!(!matches(pattern, uri), "{pattern} does not match {uri}");
        }
    }
}

#[test]
fn every_spelling_of_a_uri_matches() {
    for uri in [
        "file:///docs/secret+key",
        "FILE:///docs/secret+key",
        "file:///docs/secret%2Bkey",
        "file:///docs/%73ecret%2bkey",
        "file:///docs/./x/../secret+key",
        "file:///docs/secret+key/",
        "file:///docs/secret+key//",
        "file:///docs/secret+key?lines=1-2",
        "file:///docs/secret+key/?format=json",
        "file:///docs/secret+key#part",
    ] {
        assert!(matches("file:///docs/secret+key", uri), "{uri}");
        assert!(matches("file:///docs/secret%2Bkey/", uri), "{uri}");
    }
    assert!(!matches("file:///docs/secret+key", "file:///docs/Secret+key"));
    assert!(!matches("x://a/b", "x://a%2Fb") && !matches("x://a%2Fb", "x://a%252Fb"));
    assert!(matches("x://a/%2A", "x://a/*") && !matches("x://a/%2A", "x://a/b"));
}

#[test]
fn a_pattern_without_meaning_is_refused() {
    for (pattern, why) in [
        ("file:///a?lines=1", "with all its parameters"),
        ("file:///a#x", "with all its parameters"),
        ("file:///a**", "within a segment"),
        ("/a/b", "the pattern `/a/b`"),
        ("*://a", "the pattern `*://a`"),
        ("", "the pattern ``"),
    ] {
        let error = UriPattern::parse(pattern).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
