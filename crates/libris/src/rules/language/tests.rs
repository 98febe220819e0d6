use super::has_match;
use crate::rules::UriPattern;
use proptest::prelude::*;

/// Every normal form over a small alphabet, up to a length that exceeds that of the patterns.
fn words() -> Vec<String> {
    let mut all = vec![String::new()];
    let mut last = all.clone();
    for _ in 0..6 {
        last =
            last.iter().flat_map(|word| ["a", "b", "/", "z"].map(|byte| format!("{word}{byte}"))).collect();
        all.extend(last.iter().cloned());
    }
    all.retain(|word| !word.ends_with('/'));
    all.iter().map(|word| format!("x:{word}")).collect()
}

fn pattern() -> impl Strategy<Value = UriPattern> {
    let segment = prop::sample::select(vec!["a", "b", "*", "**", "a*", "*b", "ab"]);
    prop::collection::vec(segment, 1..3).prop_map(|segments| {
        let text = format!("x:{}", segments.join("/"));
        UriPattern::parse(&text).unwrap_or_else(|_| UriPattern::parse(&text.replacen("**", "*", 1)).unwrap())
    })
}

#[test]
fn a_search_is_given_up_when_its_steps_are_used_up() {
    let parse = |text: &str| UriPattern::parse(text).unwrap();
    let others: Vec<_> = (0..999).map(|at| parse(&format!("x://*/*a{at}*/*b{at}"))).collect();
    // All that it matches is matched by others too, which the search would find out late.
    let pattern = parse("x://*/*a1*/*b1");
    let mut steps = 50_000;
    assert_eq!(has_match(b"x://", &pattern, &others, &mut steps), None);
    // The steps are those of several searches together.
    let mut steps = 10 * (1 + others.len());
    let found = (0..20).filter_map(|_| has_match(b"x://", &parse("x://**"), &others, &mut steps)).count();
    assert!((1..10).contains(&found), "{found}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn a_search_agrees_with_an_enumeration(
        one in pattern(),
        others in prop::collection::vec(pattern(), 0..4),
        prefix in prop::sample::select(vec!["", "x", "x:", "x:a", "x:a/", "x:b/a", "x:z", "x:z/", "y"]),
    ) {
        let escapes = |word: &&String| {
            let word = word.as_bytes();
            one.matches_normal(word) && !others.iter().any(|other| other.matches_normal(word))
        };
        let expected = words().iter().filter(|word| word.starts_with(prefix)).any(|word| escapes(&word));
        prop_assert_eq!(has_match(prefix.as_bytes(), &one, &others, &mut 10_000_000), Some(expected));
    }
}
