//! Parses identifiers of Notion.

use serde_json::Value;

/// Parses an identifier with or without dashes, and returns it with dashes; `None` if it is invalid.
pub(super) fn parse(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    let is_id = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_id.then(|| {
        let digits = digits.to_ascii_lowercase();
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
    })
}

/// The identifier in a field of an object.
pub(super) fn of(value: &Value, key: &str) -> Option<String> {
    parse(value[key].as_str()?)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn dashes_do_not_matter() {
        let id = "0b5f3c1e-0000-4000-8000-00000000002a";
        assert_eq!(parse(id).as_deref(), Some(id));
        assert_eq!(parse("0B5F3C1E00004000800000000000002A").as_deref(), Some(id));
        for other in
            ["", "abc123", "../users", "0b5f3c1e-0000-4000-8000-00000000002", "g".repeat(32).as_str()]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
