//! Edits an entry of a JSON file, with comments and trailing commas if the file has them.
//!
//! The parser says where objects, commas and comments are, and only these ranges of the text are replaced. Removing an
//! entry is the inverse of adding it: a line of its own goes with its line break, and the last entry of an object takes
//! the object with it, unless there are comments in the object.

use anyhow::Result;
use jsonc_parser::ast::{self, Object, ObjectProp};
use jsonc_parser::common::{Range, Ranged as _};
use jsonc_parser::tokens::{Token, TokenAndRange};
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};
use serde_json::{Value, json};

use super::edit::EntryPath;

/// The indentation of a file that has none.
const INDENT: &str = "  ";

/// The text with the entry set to `value`, or removed if that is `None`.
pub(super) fn edit(text: &str, path: EntryPath<'_>, value: Option<&Value>) -> Result<String> {
    let options = CollectOptions { comments: CommentCollectionStrategy::AsTokens, tokens: true };
    let parsed = parse_to_ast(text, &options, &ParseOptions::default())?;
    let file = TokenizedJson { text, tokens: parsed.tokens.unwrap_or_default() };
    let edits = match (parsed.value.as_ref().and_then(ast::Value::as_object), value) {
        (Some(root), Some(value)) => file.set(root, path, value),
        (Some(root), None) => file.remove(root, path),
        // The file is empty, or has only comments.
        (None, Some(value)) => {
            let start = text.trim_end().len();
            let line_break = if start > 0 { "\n" } else { "" };
            let object = lines(&json!({ path.key: { path.name: value } }), "", INDENT);
            vec![Replacement { start, end: text.len(), new: format!("{line_break}{object}\n") }]
        }
        (None, None) => Vec::new(),
    };
    Ok(applied(text, edits))
}

/// A range of the text, and the text that takes its place.
struct Replacement {
    start: usize,
    end: usize,
    new: String,
}

fn inserted(at: usize, new: String) -> Replacement {
    Replacement { start: at, end: at, new }
}

fn deleted(start: usize, end: usize) -> Replacement {
    Replacement { start, end, new: String::new() }
}

fn applied(text: &str, mut edits: Vec<Replacement>) -> String {
    edits.sort_by_key(|edit| edit.start);
    let (mut result, mut at) = (String::new(), 0);
    for Replacement { start, end, new } in edits {
        result += &text[at..start];
        result += &new;
        at = end;
    }
    result + &text[at..]
}

/// A file with its tokens, comments among them.
struct TokenizedJson<'a> {
    text: &'a str,
    tokens: Vec<TokenAndRange<'a>>,
}

impl TokenizedJson<'_> {
    fn set(&self, root: &Object<'_>, path: EntryPath<'_>, value: &Value) -> Vec<Replacement> {
        let Some(key) = root.get(path.key) else {
            return self.append(root, path.key, &json!({ path.name: value }), self.unit(root));
        };
        match key.value.as_object() {
            None => vec![self.replaced(key, &json!({ path.name: value }), self.unit(root))],
            Some(servers) => match servers.get(path.name) {
                Some(entry) => vec![self.replaced(entry, value, self.unit(root))],
                None => self.append(servers, path.name, value, self.unit(root)),
            },
        }
    }

    fn remove(&self, root: &Object<'_>, path: EntryPath<'_>) -> Vec<Replacement> {
        let Some((key, servers)) = root.get(path.key).and_then(|key| Some((key, key.value.as_object()?)))
        else {
            return Vec::new();
        };
        let Some(entry) = servers.get(path.name) else { return Vec::new() };
        match (self.is_alone(entry, servers), self.is_alone(key, root)) {
            (true, true) => vec![deleted(root.range.start + 1, root.range.end - 1)],
            (true, false) => self.cut(key, root),
            (false, _) => self.cut(entry, servers),
        }
    }

    /// Replaces the value of a member: by lines if the member begins a line, as `append` writes it.
    fn replaced(&self, member: &ObjectProp<'_>, value: &Value, unit: &str) -> Replacement {
        let Range { start, end } = member.value.range();
        let new = match self.line_start(member.range.start) {
            Some(_) => lines(value, self.indent(member.range.start), unit),
            None => one_line(value),
        };
        Replacement { start, end, new }
    }

    /// Adds a member at the end of an object: on lines of its own if the object is empty or its last member ends a line,
    /// and else on the line of the object.
    fn append(&self, object: &Object<'_>, name: &str, value: &Value, unit: &str) -> Vec<Replacement> {
        let (open, close) = (object.range.start + 1, object.range.end - 1);
        let name = Value::from(name);
        let on_lines = |indent: &str| format!("\n{indent}{name}: {}", lines(value, indent, unit));
        let in_line = || format!(" {name}: {}", one_line(value));
        let outer = self.indent(object.range.start);
        let Some(last) = object.properties.last() else {
            let comments = self.comments(open, close);
            return match comments.last().map(|comment| (comment.end, self.line_end(comment.end))) {
                None => {
                    let new = format!("{}\n{outer}", on_lines(&format!("{outer}{unit}")));
                    vec![Replacement { start: open, end: close, new }]
                }
                Some((_, Some(end))) => vec![inserted(end, on_lines(&format!("{outer}{unit}")))],
                Some((end, None)) => vec![inserted(end, in_line())],
            };
        };
        let comma = self.comma_after(last);
        let end = comma.map_or(last.range.end, |comma| comma.end);
        let line_end = self.line_end(end);
        let new = match line_end {
            Some(_) => {
                let begins_line = |member: &&ObjectProp<'_>| self.line_start(member.range.start).is_some();
                let sibling = object.properties.iter().rev().find(begins_line);
                on_lines(
                    &sibling.map_or(format!("{outer}{unit}"), |one| self.indent(one.range.start).to_owned()),
                )
            }
            None => in_line(),
        };
        let at = line_end.unwrap_or(end);
        match comma {
            // The members of this object end with commas.
            Some(_) => vec![inserted(at, new + ",")],
            None => vec![inserted(end, ",".to_owned()), inserted(at, new)],
        }
    }

    /// Deletes a member of an object, with its line and the comment after it, and with a comma.
    fn cut(&self, member: &ObjectProp<'_>, object: &Object<'_>) -> Vec<Replacement> {
        let start = member.range.start;
        let at = object.properties.iter().take_while(|one| one.range.start < start).count();
        let comma = self.comma_after(member);
        let end = comma.map_or(member.range.end, |comma| comma.end);
        let is_last = at + 1 == object.properties.len();
        let mut edits = Vec::new();
        if comma.is_none()
            && let Some(before) = at.checked_sub(1).and_then(|before| object.properties.get(before))
            && let Some(comma) = self.comma_after(before)
        {
            edits.push(deleted(comma.start, comma.end));
        }
        edits.push(match (self.line_start(start), self.line_end(end)) {
            (Some(line_start), Some(line_end)) => deleted(line_start, line_end),
            _ if is_last => deleted(self.text[..start].trim_end_matches(BLANK).len(), end),
            _ => deleted(start, self.text.len() - self.text[end..].trim_start_matches(BLANK).len()),
        });
        edits
    }

    /// Whether an object has only this member, and no comment but one on the line of the member.
    fn is_alone(&self, member: &ObjectProp<'_>, object: &Object<'_>) -> bool {
        let end = self.comma_after(member).map_or(member.range.end, |comma| comma.end);
        let line_end = self.line_end(end).unwrap_or(end);
        object.properties.len() == 1
            && self.comments(object.range.start, member.range.start).is_empty()
            && self.comments(line_end, object.range.end).is_empty()
    }

    /// The indentation that the members of the file have.
    fn unit(&self, root: &Object<'_>) -> &str {
        let starts = root.properties.iter().map(|member| member.range.start);
        let mut indents =
            starts.filter(|start| self.line_start(*start).is_some()).map(|start| self.indent(start));
        indents.find(|indent| !indent.is_empty()).unwrap_or(INDENT)
    }

    /// The comma that follows a member.
    fn comma_after(&self, member: &ObjectProp<'_>) -> Option<Range> {
        let mut after = self.tokens.iter().filter(|token| token.range.start >= member.range.end);
        let next = after.find(|token| !is_comment(token))?;
        (next.token == Token::Comma).then_some(next.range)
    }

    /// The ranges of the comments between two positions.
    fn comments(&self, start: usize, end: usize) -> Vec<Range> {
        let inside = |token: &&TokenAndRange<'_>| token.range.start >= start && token.range.end <= end;
        self.tokens.iter().filter(|token| is_comment(token)).filter(inside).map(|token| token.range).collect()
    }

    /// The position of the line break before this position, if there is only space between them.
    fn line_start(&self, position: usize) -> Option<usize> {
        let before = self.text[..position].trim_end_matches(BLANK);
        before.ends_with('\n').then(|| before.len() - 1)
    }

    /// The position of the line break after this position, if there are only space and comments between them.
    fn line_end(&self, position: usize) -> Option<usize> {
        let rest = self.text[position..].trim_start_matches(BLANK);
        let at = self.text.len() - rest.len();
        if rest.starts_with('\n') {
            return Some(at);
        }
        let comment = self.tokens.iter().find(|token| token.range.start == at && is_comment(token))?;
        self.line_end(comment.range.end)
    }

    /// The indentation of the line with this position.
    fn indent(&self, position: usize) -> &str {
        let start = self.text[..position].rfind('\n').map_or(0, |at| at + 1);
        let line = &self.text[start..];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }
}

/// Space within a line. In a file with both kinds of line breaks, the CR of a line break is one too.
const BLANK: [char; 3] = [' ', '\t', '\r'];

fn is_comment(token: &TokenAndRange<'_>) -> bool {
    matches!(token.token, Token::CommentLine(_) | Token::CommentBlock(_))
}

/// A value with each member of an object on its own line, indented by `indent` and one `unit` for each level.
fn lines(value: &Value, indent: &str, unit: &str) -> String {
    let Some(members) = value.as_object().filter(|members| !members.is_empty()) else {
        return one_line(value);
    };
    let inner = format!("{indent}{unit}");
    let members = members.iter().map(|(name, value)| {
        format!("{inner}{}: {}", Value::from(name.as_str()), lines(value, &inner, unit))
    });
    format!("{{\n{}\n{indent}}}", members.collect::<Vec<_>>().join(",\n"))
}

/// A value on one line.
fn one_line(value: &Value) -> String {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let members = members
                .iter()
                .map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), one_line(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Array(values) => {
            format!("[{}]", values.iter().map(one_line).collect::<Vec<_>>().join(", "))
        }
        _ => value.to_string(),
    }
}
