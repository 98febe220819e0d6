use super::{IgnorePattern, IgnorePatterns, PatternVerdict};
use std::sync::Arc;

fn parse(text: &[u8]) -> IgnorePatterns {
    IgnorePatterns::parse(&text.into(), usize::MAX).unwrap()
}

fn verdict(text: &[u8], path: &[u8], directory: bool) -> Option<PatternVerdict> {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap();
    parse(text).matched(path, name, directory)
}

/// Whether the line ignores the file at a path.
fn ignores(line: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> bool {
    verdict(line.as_ref(), path.as_ref(), false) == Some(PatternVerdict::Ignored)
}

#[test]
fn names_suffixes_and_paths() {
    for path in ["a", "x/a", "x/y/a"] {
        assert!(ignores("a", path) && ignores("*a", path) && ignores("?", path), "{path}");
        assert!(ignores("**/a", path) && ignores("**", path) && ignores("***", path), "{path}");
        assert_eq!(ignores("/a", path), path == "a", "{path}");
        assert_eq!(ignores("x/a", path), path == "x/a", "{path}");
        assert_eq!(ignores("x/*", path), path == "x/a", "{path}");
        assert_eq!(ignores("x/**", path), path != "a", "{path}");
        assert_eq!(ignores("x/**/a", path), path != "a", "{path}");
        assert!(!ignores("//", path) && !ignores("/", path) && !ignores("!", path), "{path}");
    }
    assert!(ignores("*.log", "x.log") && ignores("*.log", ".log") && !ignores("*.log", "log"));
    // As in git, the rest after the literal prefix is matched as a separate pattern. In `a**/b`, the rest begins with
    // `**/`, which matches slashes. `?**/b` has no literal prefix, so its `**` is not at the start and acts as `*`.
    assert!(ignores("a**/b", "ax/y/b") && ignores("a**/b", "ab") && !ignores("?**/b", "ax/y/b"));
    // `**\/` requires the slash, which in `**/` is optional.
    assert!(ignores("**\\/b", "x/b") && !ignores("**\\/b", "b"));
    assert!(ignores("{a,b}", "{a,b}") && !ignores("{a,b}", "a"));
}

#[test]
fn bracket_expressions() {
    for (line, name) in [
        ("[a\\]b]", "]"),
        ("[a\\]b]", "b"),
        ("[]a]", "]"),
        ("[!]a]", "b"),
        ("[^a]", "b"),
        ("[a-b-c]", "-"),
        ("[a-b-c]", "c"),
        ("[a-\\c]", "b"),
        ("[a-]", "-"),
        ("[-a]", "-"),
        ("[[:alpha:]-z]", "-"),
        ("[[:digit:][:lower:]]", "x"),
        ("[[:a]", ":"),
        ("[[:]", "["),
        ("x[{}]", "x{"),
    ] {
        assert!(ignores(line, name), "{line} {name}");
    }
    for line in ["[", "[a", "[]", "[!", "[a\\", "[a-\\", "[[:emoji:]]", "[[::]]", "[[:alpha:", "a\\"] {
        for name in ["a", "[", "]", "[a", "[]", "m", "z", "\\", "a\\", ":"] {
            assert!(!ignores(line, name), "{line} {name}");
        }
    }
    // A range that ends before it begins is only its first character.
    assert!(ignores("[z-a]", "z") && !ignores("[z-a]", "a") && !ignores("[z-a]", "m"));
    assert!(!ignores("a[/]b", "a/b") && !ignores("a[!x]b", "a/b") && !ignores("a?b", "a/b"));
}

#[test]
fn bytes_that_are_not_utf_8() {
    assert!(ignores(b"\xe9*", b"\xe9t\xe9") && ignores(b"\xe9", b"\xe9") && ignores(b"[\xe0-\xef]", b"\xe9"));
    assert!(ignores("??", "é") && !ignores("?", "é"));
}

#[test]
fn lines_of_a_file() {
    let text = "\u{feff}*.log\r\n# é\n\n!keep.log\n\\#x\nfolder/\ntrailing  \nescaped\\ \ntab\t\nlast\r";
    let ignored = |path: &str, directory| {
        verdict(text.as_bytes(), path.as_bytes(), directory) == Some(PatternVerdict::Ignored)
    };
    for (path, directory) in [
        ("a.log", false),
        ("#x", false),
        ("folder", true),
        ("trailing", false),
        ("escaped ", false),
        ("tab\t", false),
        ("last", false),
    ] {
        assert!(ignored(path, directory), "{path}");
    }
    for path in ["keep.log", "folder", "x", "tab", "escaped", "# é", ""] {
        assert!(!ignored(path, false), "{path}");
    }
    assert_eq!(verdict(text.as_bytes(), b"keep.log", false), Some(PatternVerdict::Shown));
    assert!(ignores("a\\\\  ", "a\\") && ignores("   \na", "a"));
    // Git reads lines as C strings, so a line ends at NUL.
    assert!(ignores("a\0b", "a"));
}

#[test]
fn the_last_matching_pattern_decides_whatever_its_kind() {
    for lines in [["a", "!?"], ["a*", "!a"], ["/a", "!a"], ["a", "!a"], ["?", "!/a"]] {
        assert_eq!(
            verdict(lines.join("\n").as_bytes(), b"a", false),
            Some(PatternVerdict::Shown),
            "{lines:?}"
        );
        let [first, second] = lines;
        let reversed = format!("{second}\n{first}");
        assert_eq!(verdict(reversed.as_bytes(), b"a", false), Some(PatternVerdict::Ignored), "{reversed:?}");
    }
    assert_eq!(verdict(b"a\n!a/", b"a", false), Some(PatternVerdict::Ignored));
    assert_eq!(verdict(b"a\n!a/", b"a", true), Some(PatternVerdict::Shown));
}

#[test]
fn a_pattern_takes_20_bytes_beside_its_text() {
    assert_eq!(IgnorePatterns::PATTERN_SIZE, 20);
    let text: Arc<[u8]> = "*a*\n".repeat(1000).into_bytes().into();
    let patterns = IgnorePatterns::parse(&text, 1000).unwrap();
    assert!(Arc::ptr_eq(&text, &patterns.text));
    assert_eq!(patterns.names.len() + patterns.others.len(), 1000);
    assert_eq!(size_of::<IgnorePattern>(), 16);
    assert!(IgnorePatterns::parse(&text, 999).is_none());
}

/// Patterns for which a matcher that backtracks over every `*` needs exponential or cubic time; the test would not
/// finish.
#[test]
fn hostile_patterns_do_not_cause_backtracking() {
    let path = format!("{}x", format!("{}/", "a".repeat(250)).repeat(15));
    for line in [
        format!("{}b", "*a".repeat(60_000)),
        format!("{}b", "**/".repeat(60_000)),
        format!("{}/b", "**/*a*a*a*a".repeat(10_000)),
        format!("{}b", "**/*a*/".repeat(10_000)),
        format!("{}b", "a?*".repeat(60_000)),
        format!("**/*[{}]*x", "[:".repeat(1_000)),
        format!("**/*{}x", "?".repeat(240)),
    ] {
        assert!(!ignores(&line, &path) && !ignores(&line, "a".repeat(255)), "{}", &line[..20]);
    }
}
