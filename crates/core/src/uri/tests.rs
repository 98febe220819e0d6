use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use super::Uri;
use crate::Error;

fn normal(text: &str) -> String {
    Uri::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).as_str().into()
}

fn refused(text: &str) -> String {
    match Uri::parse(text) {
        Err(Error::Invalid(why)) => why,
        other => panic!("{text:?} gave {other:?}"),
    }
}

proptest! {
    #[test]
    fn below_is_the_same_as_parsing_the_concatenation(path in "[a-zA-Z.~%/?#: é-]{0,12}", plain in "[a-z./-]{0,9}") {
        for base in ["file:///m/", "file:///m", "file://", "x:", "x:/", "x:a/", "docs://Host/", "http://h/?q/", "x:/a#b/"] {
            let base = Uri::parse(base).unwrap();
            for path in [&path, &plain] {
                let parsed = Uri::parse(&format!("{base}{path}"));
                prop_assert_eq!(base.below(path).ok(), parsed.ok(), "{} {}", base, path);
            }
        }
    }
}

#[test]
fn normal_form() {
    for (text, expected) in [
        ("DOCS://Intro", "docs://Intro"),
        ("HTTP://User@EXAMPLE.com:80", "http://User@example.com/"),
        ("https://example.com:443?q", "https://example.com/?q"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("https://example.com:/", "https://example.com/"),
        ("ftp://HOST:21/x", "ftp://host:21/x"),
        ("http://h%41%c3%a9/", "http://ha%C3%A9/"),
        ("file:///a/./b/../c", "file:///a/c"),
        ("file:///a/%2e%2E/b", "file:///b"),
        ("file:///../../etc", "file:///etc"),
        ("file:///a/..", "file:///"),
        ("file:///a%2fb", "file:///a%2Fb"),
        ("file:///%7euser/%41", "file:///~user/A"),
        ("x:a/../b", "x:/b"),
        ("x:./a", "x:a"),
        ("x:..", "x:"),
        ("x:/.//a", "x:/.//a"),
        ("x:a/..//b", "x:/.//b"),
        ("urn:isbn:0451450523", "urn:isbn:0451450523"),
        ("mailto:a@b.c", "mailto:a@b.c"),
        ("http://[::1]:80/", "http://[::1]/"),
        ("http://[V1.a:B]/", "http://[v1.a:b]/"),
        ("db://users/?a=1/2?3#f/?", "db://users/?a=1/2?3#f/?"),
        ("x:?#", "x:?#"),
    ] {
        assert_eq!(normal(text), expected);
    }
}

#[test]
fn errors_have_a_description_and_an_offset() {
    for (text, expected) in [
        ("", "not a URI: no scheme at byte 0 of ``"),
        ("docs", "not a URI: no scheme at byte 4 of `docs`"),
        ("/etc/passwd", "not a URI: no scheme at byte 0 of `/etc/passwd`"),
        (":x", "not a URI: no scheme at byte 0 of `:x`"),
        ("1x:y", "not a URI: `1` cannot be in a scheme: at byte 0 of `1x:y`"),
        ("a:b c", "not a URI: a space cannot be in a path: at byte 3 of `a:b c`"),
        ("a:b\0", "not a URI: the control character U+0000 cannot be in a path: at byte 3 of `a:b\\0`"),
        ("a:é", "not a URI: `é` cannot be in a path: at byte 2 of `a:é`"),
        ("a:b%4", "not a URI: `%` without two hexadecimal digits at byte 3 of `a:b%4`"),
        ("a:b%zz", "not a URI: `%` without two hexadecimal digits at byte 3 of `a:b%zz`"),
        ("a:b?{c}", "not a URI: `{` cannot be in a query: at byte 4 of `a:b?{c}`"),
        ("a:b#c#d", "not a URI: `#` cannot be in a fragment: at byte 5 of `a:b#c#d`"),
        ("http://h:8x/", "not a URI: `x` cannot be in a port: at byte 10 of `http://h:8x/`"),
        ("http://a@b@c/", "not a URI: `@` cannot be in a host: at byte 10 of `http://a@b@c/`"),
        ("http://[::1/", "not a URI: a `[` that is not closed at byte 7 of `http://[::1/`"),
        ("http://[::g]/", "not a URI: a malformed IP address at byte 8 of `http://[::g]/`"),
        (
            "http://[::1]x/",
            "not a URI: `x` cannot be in an authority after `]`: at byte 12 of `http://[::1]x/`",
        ),
        ("http://a[b]/", "not a URI: `[` cannot be in a host: at byte 8 of `http://a[b]/`"),
    ] {
        assert_eq!(refused(text), expected);
    }
    let long = format!("a:{}", "x".repeat(Uri::LIMIT));
    assert_eq!(refused(&long), "a URI of 8194 bytes exceeds the limit of 8192 bytes");
    assert!(Uri::parse(&long[..Uri::LIMIT]).is_ok());
    assert!(refused(&"\u{200b}".repeat(2000)).len() < 250);
}

#[test]
fn components() {
    let uri = Uri::parse("Db://Users:5/a/b?c=d#e").unwrap();
    assert_eq!(
        (uri.scheme(), uri.authority(), uri.path(), uri.query(), uri.fragment()),
        ("db", Some("Users:5"), "/a/b", Some("c=d"), Some("e"))
    );
    assert_eq!(uri.without_query().as_str(), "db://Users:5/a/b");
    let uri = Uri::parse("urn:a:b").unwrap();
    assert_eq!(
        (uri.scheme(), uri.authority(), uri.path(), uri.query(), uri.fragment()),
        ("urn", None, "a:b", None, None)
    );
    assert_eq!(Uri::parse("docs://x").unwrap().path(), "");
    assert_eq!(Uri::parse("x:a#b?c").unwrap().query(), None);
}

#[test]
fn serde_as_text() {
    let uri: Uri = serde_json::from_str(r#""FILE:///a%2d""#).unwrap();
    assert_eq!(serde_json::to_string(&uri).unwrap(), r#""file:///a-""#);
    assert!(serde_json::from_str::<Uri>(r#""a b""#).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn parsing_never_panics(text in any::<String>()) {
        if let Ok(uri) = Uri::parse(&text) {
            prop_assert_eq!(Uri::parse(uri.as_str()).unwrap(), uri);
        }
    }

    #[test]
    fn normalisation_is_idempotent(
        text in "[hx]ttps?:(//)?([a@\\[\\]:1-]{0,5}|HOST:(80|443)?)([/.a%:?#]|%2[eEfF]|\\.\\.|%4[1-9]){0,12}"
    ) {
        if let Ok(uri) = Uri::parse(&text) {
            let again = Uri::parse(uri.as_str()).unwrap();
            prop_assert_eq!(again.as_str(), uri.as_str());
            prop_assert!(uri.authority().is_some() == text[..].split_once(':').unwrap().1.starts_with("//"));
            let dots = uri.path().split('/').filter(|segment| matches!(*segment, "." | "..")).count();
            prop_assert!(dots == 0 || uri.path().starts_with("/.//") && dots == 1);
            let whole = format!(
                "{}:{}{}{}{}",
                uri.scheme(),
                uri.authority().map(|authority| format!("//{authority}")).unwrap_or_default(),
                uri.path(),
                uri.query().map(|query| format!("?{query}")).unwrap_or_default(),
                uri.fragment().map(|fragment| format!("#{fragment}")).unwrap_or_default(),
            );
            prop_assert_eq!(whole, uri.as_str());
        }
    }

    #[test]
    fn the_cheap_check_accepts_only_normal_uris(
        text in "(file|http|docs|a\\+b|H|1a)?:?(//?/?)(localhost|b\\.c|x_y|B|a:80|u@h)?(/|[a-z.]{0,3}|%41|-|\\?q|#f|é| ){0,6}"
    ) {
        if super::parse::is_normal(&text) {
            prop_assert_eq!(super::parse::normalise(&text).unwrap(), text);
        }
    }

    #[test]
    fn messages_are_short(text in any::<String>(), prefix in "[a-z]{0,90}:?") {
        if let Err(error) = Uri::parse(&(prefix + &text)) {
            prop_assert!(error.to_string().chars().count() < 200);
        }
    }

    #[test]
    fn encoded_segments_decode_to_the_same_bytes(bytes in any::<Vec<u8>>()) {
        let segment = Uri::encode_segment(&bytes);
        prop_assert_eq!(Uri::decode_segment(&segment), Some(bytes));
        if segment != "." && segment != ".." {
            let text = format!("file:///{segment}/x");
            prop_assert_eq!(normal(&text), text);
        }
    }
}

#[test]
fn localhost_is_removed_from_file_uris() {
    assert_eq!(Uri::parse("file://LOCALHOST/docs/a").unwrap().as_str(), "file:///docs/a");
    assert_eq!(Uri::parse("file://localhost.example/a").unwrap().as_str(), "file://localhost.example/a");
}

#[test]
fn plain_uris_are_recognised() {
    for text in ["file:///docs/a.txt", "docs://handbook/", "http://example.com/a/b-c_d~e", "a+b.c-1://x/y"] {
        assert!(super::parse::is_normal(text), "{text}");
    }
    for text in [
        "file://localhost/a",
        "http://h",
        "HTTP://h/",
        "http://H/",
        "a:///b/../c",
        "a:///b//c",
        "://h/",
        "é://h/",
    ] {
        assert!(!super::parse::is_normal(text), "{text}");
    }
}
