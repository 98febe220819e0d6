//! The arguments of a tool call.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use libris_core::{Audience, suggest};
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::output::ToolError;

/// The longest text of an argument, in bytes.
const MAX_TEXT: usize = 8 * 1024;

/// The largest number of different texts in a list.
const MAX_TEXTS: usize = 32;

/// The maximum size of all arguments as JSON, in bytes. A parsed list takes many times its size in memory.
const MAX_ARGUMENTS: usize = 256 << 10;

/// The arguments of a tool call. The tool knows all of their names; the values are not validated yet.
pub(crate) struct ToolArguments(Map<String, Value>);

impl ToolArguments {
    /// Parses the arguments; `json` is empty if there are none. `known` are the names of the arguments that the tool
    /// accepts.
    pub(crate) fn parse(json: &str, known: &[&str]) -> Result<Self, ToolError> {
        let arguments = match json {
            "" => Map::new(),
            json if json.len() > MAX_ARGUMENTS => {
                return Err(ToolError::told(format!("`arguments` must have at most {MAX_ARGUMENTS} bytes")));
            }
            json => {
                serde_json::from_str(json).map_err(|_| ToolError::told("`arguments` must be an object"))?
            }
        };
        let unknown = arguments.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| name);
        if let Some(name) = unknown.into_iter().find(|name| !known.contains(&name.as_str())) {
            let name: String = name.chars().take(100).collect();
            let similar = suggest::did_you_mean(&name, known.iter().copied());
            let known = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            return Err(ToolError::told(format!(
                "there is no argument `{name}`{similar}; there are {known}"
            )));
        }
        Ok(Self(arguments))
    }

    /// The first of these arguments that is a text. The arguments are not validated otherwise, and may be of any size, so
    /// they are not copied.
    pub(crate) fn first_text(json: &str, names: &[&str]) -> Option<String> {
        let values = serde_json::Deserializer::from_str(json).deserialize_map(NamedMembers { names }).ok()?;
        values.into_iter().flatten().find_map(|value| serde_json::from_str(value.get()).ok())
    }

    /// A text, if it is given and not empty.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, ToolError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.len() > MAX_TEXT => {
                Err(ToolError::told(format!("`{name}` must have at most {MAX_TEXT} bytes")))
            }
            Some(Value::String(text)) => Ok(Some(text.trim()).filter(|text| !text.is_empty())),
            Some(_) => Err(ToolError::told(format!("`{name}` must be a text"))),
        }
    }

    /// A text that must be given.
    pub(crate) fn required(&self, name: &str, example: &str) -> Result<&str, ToolError> {
        self.text(name)?
            .ok_or_else(|| ToolError::told(format!("`{name}` is missing; give one such as `{example}`")))
    }

    /// A range such as `10-20`. A single number is accepted too, as a range of one.
    pub(crate) fn range(&self, name: &str) -> Result<Option<String>, ToolError> {
        match self.0.get(name) {
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            _ => Ok(self.text(name)?.map(str::to_owned)),
        }
    }

    /// A number within bounds. A string is accepted too, because some models write numbers as strings.
    pub(crate) fn number(
        &self,
        name: &str,
        bounds: std::ops::RangeInclusive<usize>,
    ) -> Result<Option<usize>, ToolError> {
        let number = match self.0.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Number(number)) => number.as_u64().and_then(|number| usize::try_from(number).ok()),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(_) => None,
        };
        match number.filter(|number| bounds.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let (least, most) = (bounds.start(), bounds.end());
                Err(ToolError::told(format!("`{name}` must be a number from {least} to {most}")))
            }
        }
    }

    /// An audience.
    pub(crate) fn audience(&self, name: &str) -> Result<Option<Audience>, ToolError> {
        match self.text(name)? {
            None => Ok(None),
            Some("user") => Ok(Some(Audience::User)),
            Some("assistant") => Ok(Some(Audience::Assistant)),
            Some(_) => Err(ToolError::told(format!("`{name}` must be `user` or `assistant`"))),
        }
    }

    /// A time; a date is midnight in UTC.
    pub(crate) fn time(&self, name: &str) -> Result<Option<Timestamp>, ToolError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let midnight = || text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok();
        let time = text.parse().ok().or_else(|| midnight().map(|midnight| midnight.timestamp()));
        time.map(Some).ok_or_else(|| {
            ToolError::told(format!(
                "`{name}` must be a date such as `2026-01-31` or a time such as `2026-01-31T12:00:00Z`"
            ))
        })
    }

    /// The different texts of a text or a list of texts, without empty ones.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<String>, ToolError> {
        let Some(Value::Array(values)) = self.0.get(name) else {
            return Ok(self.text(name)?.map(str::to_owned).into_iter().collect());
        };
        let (mut texts, mut size) = (Vec::<String>::new(), 0);
        for value in values {
            let text = value
                .as_str()
                .map(str::trim)
                .ok_or_else(|| ToolError::told(format!("`{name}` must be a text or a list of texts")))?;
            if text.is_empty() || texts.iter().any(|known| known == text) {
                continue;
            }
            size += text.len();
            if texts.len() == MAX_TEXTS || size > MAX_TEXT {
                return Err(ToolError::told(format!(
                    "`{name}` must have at most {MAX_TEXTS} different texts of {MAX_TEXT} bytes together"
                )));
            }
            texts.push(text.to_owned());
        }
        Ok(texts)
    }
}

/// Finds the members of an object that have these names, and skips all others.
struct NamedMembers<'n> {
    names: &'n [&'n str],
}

impl<'de> Visitor<'de> for NamedMembers<'_> {
    /// The value of each name. If a member is repeated, its last value.
    type Value = Vec<Option<&'de RawValue>>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut values = vec![None; self.names.len()];
        while let Some(name) = members.next_key::<Cow<'de, str>>()? {
            match self.names.iter().position(|known| *known == name) {
                Some(at) => values[at] = Some(members.next_value()?),
                None => _ = members.next_value::<IgnoredAny>()?,
            }
        }
        Ok(values)
    }
}

/// Lines counted from 1, as in `10-20`, `10-`, `20` and `-20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineRange {
    /// The first and the last line; `None` for all lines after the first.
    From(usize, Option<usize>),
    /// This many lines at the end.
    Last(usize),
}

impl LineRange {
    pub(crate) fn parse(text: &str) -> Result<Self, ToolError> {
        let wrong = || {
            ToolError::told(format!(
                "`lines` must be a range such as `10-20`, `10-`, `20` or `-20`, not `{text}`"
            ))
        };
        let number =
            |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number > 0).ok_or_else(wrong);
        match text.split_once('-') {
            None => number(text).map(|only| Self::From(only, Some(only))),
            Some(("", count)) => number(count).map(Self::Last),
            Some((first, "")) => number(first).map(|first| Self::From(first, None)),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first { Err(wrong()) } else { Ok(Self::From(first, Some(last))) }
            }
        }
    }

    /// The range as the value of a query parameter.
    pub(crate) fn query(self) -> String {
        match self {
            Self::From(first, Some(last)) => format!("{first}-{last}"),
            Self::From(first, None) => format!("{first}-"),
            Self::Last(count) => format!("-{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Audience, LineRange, Timestamp, ToolArguments, ToolError};

    fn message<T>(result: Result<T, ToolError>) -> String {
        match result.err() {
            Some(ToolError::Told(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn wrong_arguments_are_explained() {
        let known = ["uri", "lines"];
        let parse = |json| ToolArguments::parse(json, &known);
        assert_eq!(
            message(parse(r#"{"line":"1"}"#)),
            "there is no argument `line`; did you mean `lines`?; there are `uri`, `lines`"
        );
        assert_eq!(message(parse("[]")), "`arguments` must be an object");
        let arguments = parse(r#"{"uri":7,"lines":20}"#).ok().unwrap();
        assert_eq!(message(arguments.text("uri")), "`uri` must be a text");
        assert_eq!(message(arguments.number("lines", 1..=10)), "`lines` must be a number from 1 to 10");
        assert_eq!(arguments.range("lines").ok().unwrap().as_deref(), Some("20"));
        assert!(parse("").ok().unwrap().required("uri", "a:b").is_err());
        assert!(parse(r#"{"other":null}"#).is_ok());
    }

    #[test]
    fn the_first_text_is_found() {
        let first = |json| ToolArguments::first_text(json, &["uri", "scope"]);
        assert_eq!(first(r#"{"scope":"a:b","mime":["*",{"uri":"c:d"}],"uri":"x:\u0079"}"#).unwrap(), "x:y");
        assert_eq!(first(r#"{"scope":"a:b","uri":["x:y"]}"#).unwrap(), "a:b");
        assert_eq!(first(r#"{"uri":"a:b","\u0075ri":"x:y"}"#).unwrap(), "x:y");
        for json in ["", "null", "[]", "{}", r#"{"uri":null}"#, r#"{"other":"a:b"}"#] {
            assert_eq!(first(json), None, "{json}");
        }
    }

    #[test]
    fn lists_of_texts_are_bounded() {
        let texts = |json: &str| {
            let json = format!("{{\"mime\":{json}}}");
            ToolArguments::parse(&json, &["mime"]).and_then(|arguments| arguments.texts("mime"))
        };
        assert_eq!(texts("\" text/* \"").ok().unwrap(), ["text/*"]);
        assert_eq!(texts(r#"["a/b","*",""," a/b","*"]"#).ok().unwrap(), ["a/b", "*"]);
        assert_eq!(message(texts(r#"["a/b",7]"#)), "`mime` must be a text or a list of texts");
        let list = |texts: &[String]| serde_json::to_string(texts).unwrap();
        let numbered = |count: usize| (0..count).map(|number| format!("a/{number}")).collect::<Vec<_>>();
        assert_eq!(texts(&list(&numbered(32))).ok().unwrap(), numbered(32));
        let excess = "`mime` must have at most 32 different texts of 8192 bytes together";
        assert_eq!(message(texts(&list(&numbered(33)))), excess);
        let long = ["a".repeat(4096), "b".repeat(4096)];
        assert_eq!(texts(&list(&long)).ok().unwrap(), long);
        assert_eq!(message(texts(&list(&["a".repeat(4096), "b".repeat(4097)]))), excess);
        assert_eq!(texts(&list(&vec!["*".to_owned(); 60_000])).ok().unwrap(), ["*"]);
        let large = list(&vec!["*".to_owned(); 900_000]);
        assert_eq!(message(texts(&large)), "`arguments` must have at most 262144 bytes");
    }

    #[test]
    fn audiences_and_times_are_read() {
        let json = r#"{"for":"user","all":"everybody","date":"1970-01-02","time":"1970-01-02T00:00:01Z","age":"7d"}"#;
        let arguments = ToolArguments::parse(json, &["for", "all", "date", "time", "age"]).ok().unwrap();
        assert_eq!(arguments.audience("for").ok().unwrap(), Some(Audience::User));
        assert_eq!(arguments.audience("none").ok().unwrap(), None);
        assert_eq!(message(arguments.audience("all")), "`all` must be `user` or `assistant`");
        let seconds = |name| arguments.time(name).ok().unwrap().map(Timestamp::as_second);
        assert_eq!([seconds("date"), seconds("time"), seconds("none")], [Some(86_400), Some(86_401), None]);
        assert!(message(arguments.time("age")).starts_with("`age` must be a date such as `2026-01-31`"));
    }

    #[test]
    fn ranges_of_lines_are_read() {
        for (text, expected) in [
            ("10-20", Some(LineRange::From(10, Some(20)))),
            ("10-", Some(LineRange::From(10, None))),
            ("7", Some(LineRange::From(7, Some(7)))),
            ("-5", Some(LineRange::Last(5))),
            ("0-3", None),
            ("5-3", None),
            ("a", None),
            ("-", None),
        ] {
            let range = LineRange::parse(text).ok();
            assert_eq!(range, expected, "{text}");
            assert_eq!(range.map(|range| LineRange::parse(&range.query()).ok().unwrap()), expected);
        }
    }
}
