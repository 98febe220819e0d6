mod expanding;
mod laws;
mod matching;

use super::{UriTemplate, VariableValue};
use crate::{Error, Uri};

fn template(text: &str) -> UriTemplate {
    UriTemplate::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn list(values: &[&str]) -> VariableValue {
    VariableValue::List(values.iter().map(|&value| value.into()).collect())
}

fn map(pairs: &[(&str, &str)]) -> VariableValue {
    VariableValue::Map(pairs.iter().map(|&(key, value)| (key.into(), value.into())).collect())
}

#[test]
fn errors_have_a_description_and_an_offset() {
    for (text, expected) in [
        ("{/id*", "a `{` that is not closed at byte 0"),
        ("/id*}", "a `}` that closes nothing at byte 4"),
        ("a{}", "an empty expression at byte 2"),
        ("{/?id}", "`?` in the name of a variable at byte 2"),
        ("{a{b}", "`{` in the name of a variable at byte 2"),
        ("{!a}", "the operator `!`, which has no meaning yet, at byte 1"),
        ("{$a}", "`$` in the name of a variable at byte 1"),
        ("{?a, b}", "` ` in the name of a variable at byte 4"),
        ("{a,,b}", "a variable without a name at byte 3"),
        ("{+}", "a variable without a name at byte 2"),
        ("{a..b}", "`.` in the name of a variable at byte 3"),
        ("{a.}", "`.` in the name of a variable at byte 2"),
        ("{é}", "`é` in the name of a variable at byte 1"),
        ("{a%4}", "`%` in the name of a variable at byte 2"),
        ("{a:b}", "a modifier that is neither `*` nor `:` and a number below 10000 at byte 2"),
        ("{a:0}", "a modifier that is neither `*` nor `:` and a number below 10000 at byte 2"),
        ("{a:10000}", "a modifier that is neither `*` nor `:` and a number below 10000 at byte 2"),
        ("{a:1*}", "a modifier that is neither `*` nor `:` and a number below 10000 at byte 2"),
        ("{a**}", "a modifier that is neither `*` nor `:` and a number below 10000 at byte 2"),
        ("a b", "` `, which cannot be in a literal, at byte 1"),
        ("a%b", "`%` without two hexadecimal digits at byte 1"),
        ("a\n", "the control character U+000A at byte 1"),
    ] {
        let Err(Error::Invalid(why)) = UriTemplate::parse(text) else { panic!("{text:?} was accepted") };
        assert_eq!(
            why,
            format!("not a URI template: {expected} of `{}`", text.escape_debug()),
            "the error for {text:?}"
        );
    }
    assert!(UriTemplate::parse(&"{a}".repeat(UriTemplate::MAX_VARIABLES)).is_ok());
    assert!(UriTemplate::parse(&"{a}".repeat(UriTemplate::MAX_VARIABLES + 1)).is_err());
    assert!(UriTemplate::parse(&"a".repeat(UriTemplate::LIMIT + 1)).is_err());
}

#[test]
fn variables_are_distinct_and_in_order() {
    let template = template("x://{b}/{a}{?b:3,c*}");
    assert_eq!(template.variables().collect::<Vec<_>>(), ["b", "a", "c"]);
}

#[test]
fn serde_as_text() {
    let read: UriTemplate = serde_json::from_str(r#""x://{a}""#).unwrap();
    assert_eq!(read, template("x://{a}"));
    assert_eq!(serde_json::to_string(&read).unwrap(), r#""x://{a}""#);
    assert!(serde_json::from_str::<UriTemplate>(r#""{""#).is_err());
}

#[test]
fn the_more_specific_template_is_greater() {
    let closest_first = [
        "x://users/{id}/profile",
        "x://users/{id}",
        "x://users/{+id}",
        "x://users/{a}{b}",
        "x://{id}",
        "{+all}",
    ];
    let mut templates: Vec<_> = closest_first.iter().rev().map(|text| template(text)).collect();
    templates.sort_by_key(|template| std::cmp::Reverse(template.specificity()));
    assert_eq!(templates.iter().map(UriTemplate::as_str).collect::<Vec<_>>(), closest_first);
    assert!(super::Specificity::EXACT > templates[0].specificity());
    let (one, other) = (template("x://{a}").specificity(), template("x://{b}").specificity());
    assert_ne!(one, other);
}
