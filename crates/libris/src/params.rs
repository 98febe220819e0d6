//! Parses the parameters of methods that the wire passes on as JSON.

use libris_wire::Failure;
use serde::Deserialize;

/// The largest number of characters of the input that an error quotes.
pub(crate) const LONGEST_QUOTE: usize = 200;

/// Parses the parameter object of a method. Members that are `null` count as absent.
pub(crate) fn parse<'a, T: Deserialize<'a>>(params: &'a str) -> Result<T, Failure> {
    serde_json::from_str(params).map_err(|cause| {
        let cause = cause.to_string();
        // Removes the position: it is relative to a part of the message and would mislead.
        let what = cause.rsplit_once(" at line ").map_or(&*cause, |(what, _)| what);
        let what: String = what.chars().take(LONGEST_QUOTE).collect();
        Failure::invalid(match what.strip_prefix("missing field ") {
            Some(name) => format!("{name} is missing"),
            None => format!("the parameters are invalid: {what}"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::parse;
    use libris_wire::Failure;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    struct Asked {
        #[serde(rename = "uri")]
        _uri: String,
    }

    #[test]
    fn errors_name_the_parameter_and_are_short() {
        let error = |params: &str| match parse::<Asked>(params) {
            Err(Failure::Invalid { message }) => message,
            other => panic!("{other:?}"),
        };
        assert_eq!(error("{}"), "`uri` is missing");
        assert_eq!(
            error(r#"{"uri":7}"#),
            "the parameters are invalid: invalid type: integer `7`, expected a string"
        );
        let long = "x".repeat(10_000);
        assert!(error(&format!("{{\"uri\":\"a\",\"uri\":\"{long}\"}}")).len() < 300);
    }
}
