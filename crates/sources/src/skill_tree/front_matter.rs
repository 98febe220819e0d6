//! The front matter of a `SKILL.md`: parsed completely, and checked against the rules of the Agent Skills
//! specification.

use libris_core::Meta;
use serde_json::Value;

/// The longest front matter, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// The longest name of a skill, in characters.
const MAX_NAME: usize = 64;

/// The longest description of a skill, in characters.
const MAX_DESCRIPTION: usize = 1024;

/// The longest `compatibility` of a skill, in characters.
const MAX_COMPATIBILITY: usize = 500;

/// Parses the front matter: the YAML at the beginning of a file, between two lines of `---`. The error says what is
/// wrong.
pub(super) fn parse(file: &[u8]) -> Result<Meta, String> {
    let text = std::str::from_utf8(file).map_err(|_| "its `SKILL.md` is not UTF-8")?;
    let yaml = block(text).ok_or(
        "its `SKILL.md` has no front matter; hint: begin the file with `---`, `name: …`, `description: …` and `---`",
    )?;
    if yaml.len() > MAX_BYTES {
        return Err(format!("the front matter of its `SKILL.md` has more than {MAX_BYTES} bytes"));
    }
    let options = serde_saphyr::options! {
        // As in the core schema of YAML 1.2, which hosts use to compare the front matter: `yes` is a text, not a
        // Boolean.
        strict_booleans: true,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options(yaml, options) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err("the front matter of its `SKILL.md` is not a mapping of names to values".to_owned()),
        Err(cause) => Err(format!("the front matter of its `SKILL.md` is not valid YAML: {cause}")),
    }
}

/// The text between the first line, which is `---`, and the next such line.
fn block(text: &str) -> Option<&str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let rest = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n"))?;
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end_matches(['\n', '\r']).trim_end_matches([' ', '\t']) == "---" {
            return Some(&rest[..end]);
        }
        end += line.len();
    }
    None
}

/// Checks the front matter of a skill in a folder of this name. The error says which rule it breaks.
pub(super) fn check(front_matter: &Meta, folder: &str) -> Result<(), String> {
    let name = text(front_matter, "name")?;
    check_name(name)?;
    if name != folder {
        return Err(format!(
            "its name is `{name}` and its folder is `{folder}`; hint: give both the same name"
        ));
    }
    let description = text(front_matter, "description")?;
    if description.trim().is_empty() {
        return Err("its `description` is empty; hint: say what the skill does and when to use it".to_owned());
    }
    check_length("description", description, MAX_DESCRIPTION)?;
    if front_matter.contains_key("compatibility") {
        check_length("compatibility", text(front_matter, "compatibility")?, MAX_COMPATIBILITY)?;
    }
    match front_matter.get("metadata") {
        None | Some(Value::Object(_)) => Ok(()),
        Some(_) => Err("its `metadata` is not a mapping of names to values".to_owned()),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    check_length("name", name, MAX_NAME)?;
    let is_allowed = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-');
    if name.is_empty() || !name.chars().all(is_allowed) {
        return Err(format!(
            "its name `{name}` may have only the letters a to z, digits and hyphens, and at least one of them"
        ));
    }
    if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        return Err(format!(
            "its name `{name}` may neither begin or end with a hyphen nor have two hyphens in a row"
        ));
    }
    Ok(())
}

fn check_length(key: &str, text: &str, most: usize) -> Result<(), String> {
    let length = text.chars().count();
    match length > most {
        true => Err(format!("its `{key}` has {length} characters, and {most} is the most")),
        false => Ok(()),
    }
}

fn text<'a>(front_matter: &'a Meta, key: &str) -> Result<&'a str, String> {
    match front_matter.get(key) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("its `{key}` is not a text; hint: put it in quotation marks")),
        None => Err(format!("the front matter of its `SKILL.md` has no `{key}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::{check, parse};
    use serde_json::{Value, json};

    fn parsed(text: &str) -> Value {
        Value::Object(parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn every_field_is_kept_as_it_is() {
        let text = "---\nname: refunds\ndescription: >-\n  Process\n  refunds\nlicense: Apache-2.0\n\
                    metadata:\n  version: \"1.0\"\n  reviewed: 2026-01-02\n  number: 1.5\n  yes: no\n\
                    allowed-tools: Bash(git:*) Read\nlist: [a, 2, true, null]\n---\n\n# Refunds\n---\n";
        let expected = json!({
            "name": "refunds",
            "description": "Process refunds",
            "license": "Apache-2.0",
            "metadata": { "version": "1.0", "reviewed": "2026-01-02", "number": 1.5, "yes": "no" },
            "allowed-tools": "Bash(git:*) Read",
            "list": ["a", 2, true, null],
        });
        assert_eq!(parsed(text), expected);
        assert_eq!(parsed(&text.replace('\n', "\r\n")), expected);
        assert_eq!(parsed(&format!("\u{feff}{text}")), expected);
        assert_eq!(parsed("---\na: 1\n--- \t\n"), json!({ "a": 1 }));
        assert_eq!(parsed("---\na: 1\n---"), json!({ "a": 1 }));
    }

    #[test]
    fn what_is_no_front_matter_is_refused() {
        for (text, why) in [
            ("# Refunds\n", "has no front matter"),
            ("", "has no front matter"),
            ("---\nname: a\n", "has no front matter"),
            (" ---\nname: a\n---\n", "has no front matter"),
            ("---\n- a\n---\n", "is not a mapping"),
            ("---\n---\n", "is not a mapping"),
            ("---\nname: [\n---\n", "is not valid YAML"),
            ("---\nname: a\nname: b\n---\n", "is not valid YAML"),
        ] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
        assert_eq!(parse(b"---\nname: \xff\n---\n").unwrap_err(), "its `SKILL.md` is not UTF-8");
        let bomb = format!("---\na: &a [{}]\n{}---\n", "x, ".repeat(100), {
            let levels = ('b'..='h').map(|letter| {
                let before = char::from(letter as u8 - 1);
                format!("{letter}: &{letter} [{}]\n", vec![format!("*{before}"); 10].join(", "))
            });
            levels.collect::<String>()
        });
        assert!(parse(bomb.as_bytes()).is_err(), "ten million elements");
    }

    #[test]
    fn each_rule_is_named() {
        let broken = |front_matter: Value, folder: &str| {
            let Value::Object(front_matter) = front_matter else { panic!("an object") };
            check(&front_matter, folder).err().unwrap_or_default()
        };
        let named = |name: &str| broken(json!({ "name": name, "description": "d" }), name);
        for name in ["a", "refunds", "a-b-3", &"a".repeat(64)] {
            assert_eq!(named(name), "", "{name}");
        }
        for (name, why) in [
            ("", "at least one"),
            ("Refunds", "letters a to z"),
            ("re_funds", "letters a to z"),
            ("größe", "letters a to z"),
            ("-a", "hyphen"),
            ("a-", "hyphen"),
            ("a--b", "two hyphens"),
            (&"a".repeat(65), "65 characters"),
        ] {
            assert!(named(name).contains(why), "{name}: {}", named(name));
        }
        assert!(broken(json!({ "name": "a", "description": "d" }), "b").contains("its folder is `b`"));
        for (front_matter, why) in [
            (json!({ "description": "d" }), "has no `name`"),
            (json!({ "name": 7, "description": "d" }), "`name` is not a text"),
            (json!({ "name": "a" }), "has no `description`"),
            (json!({ "name": "a", "description": "  " }), "`description` is empty"),
            (json!({ "name": "a", "description": "x".repeat(1025) }), "1025 characters"),
            (json!({ "name": "a", "description": "d", "compatibility": "x".repeat(501) }), "501 characters"),
            (json!({ "name": "a", "description": "d", "metadata": "x" }), "`metadata`"),
        ] {
            assert!(broken(front_matter.clone(), "a").contains(why), "{front_matter}");
        }
        let fits = json!({ "name": "a", "description": "ä".repeat(1024), "metadata": {} });
        assert_eq!(broken(fits, "a"), "");
    }
}
