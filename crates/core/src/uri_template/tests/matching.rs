use super::{list, map, template, uri};
use crate::uri_template::matching::{matches, work};
use crate::uri_template::pattern::Pattern;
use crate::uri_template::{VariableValue, Variables, parse};

fn found(text: &str, at: &str) -> Option<Variables> {
    template(text).matches(&uri(at))
}

fn check<V: Into<VariableValue> + Clone>(text: &str, at: &str, expected: &[(&str, V)]) {
    assert_eq!(found(text, at), Some(expected.iter().cloned().collect()), "{text} on {at}");
}

#[test]
fn texts() {
    check("docs://{id}", "docs://Intro", &[("id", "Intro")]);
    check("docs://{id}", "docs://", &[("id", "")]);
    check("docs://{id}", "docs://a,b:c@d", &[("id", "a,b:c@d")]);
    check("docs://{id}", "docs://a%2Fb%20%C3%A9", &[("id", "a/b é")]);
    check("db://u/{id}/p", "db://u/7/p", &[("id", "7")]);
    check("file:///docs/{+path}", "file:///docs/a/b%20c.md", &[("path", "a/b c.md")]);
    check("file:///docs/{+path}", "file:///docs/", &[("path", "")]);
    check("proxy://{+url}", "proxy://x/?q=1#f", &[("url", "x/?q=1#f")]);
    check("x://a{/p,q}", "x://a/b/c", &[("p", "b"), ("q", "c")]);
    check("x://a{/p,q}", "x://a/b", &[("p", "b")]);
    check::<&str>("x://a{/p,q}", "x://a", &[]);
    check("x://{name}{.ext}", "x://a.b.c", &[("name", "a.b"), ("ext", "c")]);
    check("x://{name}{.ext}", "x://a", &[("name", "a")]);
    check("x://{a,b}", "x://1,2", &[("a", "1"), ("b", "2")]);
    check("x://{a,b}", "x://1,2,3", &[("a", "1,2"), ("b", "3")]);
    check("x://{a,b}", "x://1", &[("a", "1")]);
    check("x://{+a}/{+b}", "x://1/2/3", &[("a", "1/2"), ("b", "3")]);
    check("x://{a}{b}", "x://12", &[("a", "12"), ("b", "")]);
    check("x://a{#f}", "x://a#/b", &[("f", "/b")]);
    check("x://a{#f}", "x://a#", &[("f", "")]);
    check::<&str>("x://a", "x://a", &[]);
    check("{+any}", "x://a?b#c", &[("any", "x://a?b#c")]);
    for (text, at) in [
        ("docs://{id}", "docs://a/b"),
        ("docs://{id}", "docs://a?b"),
        ("docs://{id}", "docs://a#b"),
        ("docs://{id}", "docs://%FF"),
        ("docs://{id}", "docs://%C3"),
        ("docs://{id}/x", "docs://a/y"),
        ("docs://a", "docs://ab"),
        ("docs://ab", "docs://a"),
        ("x://a{/p,q}", "x://a/b/c/d"),
        ("x://?a={a}&b={b}", "x://?a=1&b=2&c=3"),
        ("{a}", "x:a/b"),
    ] {
        assert_eq!(found(text, at), None, "{text} on {at}");
    }
}

#[test]
fn prefixes() {
    check("x://{a:3}", "x://abc", &[("a", "abc")]);
    check("x://{a:3}", "x://%C3%A9%20%F0%9F%98%80", &[("a", "é 😀")]);
    check("x://{a:3}{b}", "x://abcde", &[("a", "abc"), ("b", "de")]);
    check("x://{a:1,b}", "x://hello", &[("b", "hello")]);
    check("x://{?a:2}", "x://?a=12", &[("a", "12")]);
    check("x://h{/var:1,var}", "x://h/v/value", &[("var", "value")]);
    assert_eq!(found("x://{a:3}", "x://abcd"), None);
    assert_eq!(found("x://{?a:2}", "x://?a=123"), None);
    assert_eq!(found("x://h{/var:1,var}", "x://h/w/value"), None);
}

#[test]
fn queries() {
    let text = "file:///m/{+path}{?lines,bytes}";
    check(text, "file:///m/a/b", &[("path", "a/b")]);
    check(text, "file:///m/a?lines=1-2", &[("path", "a"), ("lines", "1-2")]);
    check(text, "file:///m/a?bytes=&lines=1", &[("path", "a"), ("lines", "1"), ("bytes", "")]);
    check(text, "file:///m/a?lines", &[("path", "a"), ("lines", "")]);
    check(text, "file:///m/a?lines=a/b?c=d", &[("path", "a"), ("lines", "a/b?c=d")]);
    check(text, "file:///m/a?lines=1&lines=1", &[("path", "a"), ("lines", "1")]);
    check("x://a?k=1{&b,c}", "x://a?k=1&c=2", &[("c", "2")]);
    check("x://a{?b}{&c}", "x://a?b=1&c=2", &[("b", "1"), ("c", "2")]);
    check("x://a{;b,c}/d", "x://a;c;b=2/d", &[("b", "2"), ("c", "")]);
    check(
        "x://a{?a,z*}{b}{&ab}",
        "x://a?a=1&ab=2",
        &[("a", "1".into()), ("b", "".into()), ("z", map(&[("ab", "2")]))],
    );
    check("x://a{?ab,a}", "x://a?a=1&ab=2", &[("a", "1"), ("ab", "2")]);
    for at in ["?line=1", "?lines=1&other=2", "?lines=1&lines=2", "?", "?&", "?lines=1&", "?Lines=1", "?=1"] {
        assert_eq!(found(text, &format!("file:///m/a{at}")), None, "{at}");
    }
}

#[test]
fn lists_and_maps() {
    check("x://h{/p*}", "x://h/a/b%2Fc/", &[("p", list(&["a", "b/c", ""]))]);
    check("x://h{/p*,q}", "x://h/a/b/c", &[("p", list(&["a", "b"])), ("q", "c".into())]);
    check("x://{p*}", "x://a,b%2Cc", &[("p", list(&["a", "b,c"]))]);
    check("x://{p*}", "x://a", &[("p", list(&["a"]))]);
    check("x://www{.p*}", "x://www.a.b", &[("p", list(&["a", "b"]))]);
    check("x://h{?p*}", "x://h?p=a&p=b", &[("p", list(&["a", "b"]))]);
    check("x://h{?p*}", "x://h?k=a&%C3%A9=b&c", &[("p", map(&[("k", "a"), ("é", "b"), ("c", "")]))]);
    check("x://h{?q,p*}", "x://h?k=a&q=b", &[("p", map(&[("k", "a")])), ("q", "b".into())]);
    check("x://h{;p*}", "x://h;k=a;l", &[("p", map(&[("k", "a"), ("l", "")]))]);
    check("x://h{?p}", "x://h?p=a,b", &[("p", "a,b")]);
    check::<&str>("x://h{?p*}", "x://h", &[]);
}

#[test]
fn repeated_variables_agree() {
    check("x://{a}/{a}", "x://1/1", &[("a", "1")]);
    assert_eq!(found("x://{a}/{a}", "x://1/2"), None);
    check("x://{a}{?a}", "x://1?a=1", &[("a", "1")]);
    assert_eq!(found("x://{a}{?a}", "x://1?a=2"), None);
}

#[test]
fn literals_are_normalised_like_uris() {
    check("FILE:///a/%2E/%7eb/%2fc/{d}", "file:///a/~b/%2Fc/e", &[("d", "e")]);
    check("HTTPS://Example.COM:443/{d}", "https://example.com/e", &[("d", "e")]);
    check("https://{user}@Example.COM:443/{d}", "https://Me@example.com/e", &[("user", "Me"), ("d", "e")]);
    check("https://example.com{?q}", "https://example.com?q=1", &[("q", "1")]);
    check("https://{host}{?q}", "https://h?q=1", &[("host", "h"), ("q", "1")]);
    check("https://{+rest}", "https://h", &[("rest", "h/")]);
    check("https://h{/p}", "https://h", &[("p", "")]);
    check("https://h{/p}", "https://h/a", &[("p", "a")]);
    check("https://h{+p}", "https://h/a", &[("p", "/a")]);
    check("docs://Users/{id}", "docs://Users/1", &[("id", "1")]);
    assert_eq!(found("docs://Users/{id}", "docs://users/1"), None);
    check("docs://é/{id}", "docs://%c3%a9/1", &[("id", "1")]);
    check("x://a/../{b}", "x://a/b", &[("b", "b")]);
}

/// The number of operations that a match takes.
fn work_on(template: &str, uri: &str) -> usize {
    let pattern = Pattern::new(&parse::parts(template).unwrap());
    work::take();
    matches(&pattern, uri);
    work::take()
}

#[test]
fn hostile_uris_take_linear_work() {
    let templates = [
        "x:{+a}a{+b}a{+c}a{+d}a{+e}a{+f}a{+g}a{+h}a{+i}a{+j}b",
        "x:{a}{b}{c}{d}{e}{f}{g}{h}{i}{j}!",
        "x:{a,b,c,d,e,f,g,h,i,j}!",
        "x:{a*}{.b*}{.c*}{.d*}{.e*}{.f*}{/g*}{/h*}{/i*}{/j*}",
        "x:{a:9}{b:99}{c:999}{d:9999}{e:9}{f:99}{g:999}{h:9999}{i}{j}!",
        "x:{?a,aa,aaa,b*}{&c,cc,d*}{&e}{&f}{&g}",
        "x:{;a,aa,aaa,b*}{;c,cc,d*}{;e}{;f}{;g}",
    ];
    for unit in ["a", ",", "a,", ".", "/", "a.", "%41", "%C3", "%C3%A9", "&a=a", "&aa", "&", "=", ";a", "?"] {
        for text in templates {
            let hostile = |length: usize| format!("x:?{}", unit.repeat(length / unit.len()));
            let (half, whole) = (work_on(text, &hostile(5_000)), work_on(text, &hostile(10_000)));
            assert!(whole <= 2 * half + 1_000, "{text} on {unit}: {half} for 5,000, {whole} for 10,000");
            assert!(whole <= 10_000 * 2 * text.len(), "{text} on {unit}: {whole}");
        }
    }
}
