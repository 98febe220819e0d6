//! Edits an entry of a YAML file: block mappings, as programs write them.
//!
//! An editor that keeps the layout of YAML would be a large dependency, and one entry of a block mapping is just a run
//! of lines. The caller parses the result and refuses it if anything but the entry has changed, as happens with files
//! in flow style.

use anyhow::{Result, anyhow};
use serde_json::Value;

use super::edit::EntryPath;

/// The text with the entry set to `value`, or removed if that is `None`.
pub(super) fn edit(text: &str, path: EntryPath<'_>, value: Option<&Value>) -> Result<String> {
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let is_key = |line: &String| key_of(line).is_some_and(|(indent, key)| indent == 0 && key == path.key);
    let Some(start) = lines.iter().position(is_key) else {
        let Some(value) = value else { return Ok(text.to_owned()) };
        let mut text = text.to_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        return Ok(text + path.key + ":\n" + &entry(path.name, value, "  "));
    };
    let end = block_end(&lines, start, 0);
    let child_indent =
        lines[start + 1..end].iter().find_map(|line| key_of(line)).map_or(2, |(indent, _)| indent);
    if child_indent == 0 {
        return Err(anyhow!("`{}` is not a block mapping", path.key));
    }
    let indent = " ".repeat(child_indent);
    let is_entry =
        |line: &String| key_of(line).is_some_and(|(at, key)| at == child_indent && key == path.name);
    let found = lines[start + 1..end].iter().position(is_entry).map(|at| start + 1 + at);
    let new = value.map(|value| entry(path.name, value, &indent));
    match found {
        Some(at) => {
            let last = block_end(&lines, at, child_indent);
            if value.is_none() && (at, last) == (start + 1, end) && is_bare(&lines, start, end) {
                lines.drain(start..end);
                return Ok(lines.concat());
            }
            let key_line = lines[at].clone();
            lines.splice(at..last, new);
            // The line of the key stays if the value is below it: it may have a comment.
            if let (Some(_), Some((key, rest))) = (value, key_line.split_once(':'))
                && (rest.trim().is_empty() || rest.trim_start().starts_with('#'))
                && let Some(below) = lines[at].split_once(":\n").map(|(_, below)| below.to_owned())
            {
                lines[at] = format!("{key}:{rest}{below}");
            }
        }
        None => {
            if let Some(line) = lines[..end].last_mut().filter(|line| !line.ends_with('\n')) {
                line.push('\n');
            }
            lines.splice(end..end, new);
        }
    }
    Ok(lines.concat())
}

/// The indentation and the key of a line; `None` for comments, items of lists, empty lines, and lines without a key.
fn key_of(line: &str) -> Option<(usize, &str)> {
    let rest = line.trim_start_matches(' ');
    let (key, _) = rest.split_once(':')?;
    let is_comment_or_item = rest.starts_with('#') || rest.starts_with('-');
    let key = key.trim_end().trim_matches(['"', '\'']);
    (!is_comment_or_item && !key.is_empty()).then_some((line.len() - rest.len(), key))
}

/// The index of the line after the block of the key in line `start`, which is indented by `indent`. The block ends with
/// its last line that is indented more; comments and empty lines after it do not belong to it.
fn block_end(lines: &[String], start: usize, indent: usize) -> usize {
    let is_content = |line: &&String| {
        let rest = line.trim();
        !rest.is_empty() && !rest.starts_with('#')
    };
    let inside = |line: &String| line.len() - line.trim_start_matches(' ').len() > indent;
    let mut end = start + 1;
    for (at, line) in lines.iter().enumerate().skip(start + 1).filter(|(_, line)| is_content(line)) {
        if !inside(line) {
            break;
        }
        end = at + 1;
    }
    end
}

/// Whether the key in line `start` has no comment: neither after it nor, indented, below its block that ends before line
/// `end`.
fn is_bare(lines: &[String], start: usize, end: usize) -> bool {
    let below = lines[end..].iter().find(|line| !line.trim().is_empty());
    let has_comment_below =
        below.is_some_and(|line| line.starts_with(' ') && line.trim_start().starts_with('#'));
    lines[start].trim_end().ends_with(':') && !has_comment_below
}

/// The lines of an entry. JSON is YAML too, so its values are written as JSON.
fn entry(name: &str, value: &Value, indent: &str) -> String {
    let mut text = format!("{indent}{name}:\n");
    for (key, value) in value.as_object().into_iter().flatten() {
        text.push_str(&format!("{indent}  {key}: {value}\n"));
    }
    text
}
