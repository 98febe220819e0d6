//! Finds the names that lines of code or of reference documentation define.

/// Modifiers that may precede the keyword of a definition.
const MODIFIERS: [&str; 18] = [
    "pub",
    "async",
    "unsafe",
    "const",
    "static",
    "export",
    "default",
    "public",
    "private",
    "protected",
    "abstract",
    "final",
    "override",
    "virtual",
    "inline",
    "extern",
    "data",
    "sealed",
];

/// Keywords that precede the defined name.
const KEYWORDS: [&str; 24] = [
    "fn",
    "def",
    "class",
    "struct",
    "enum",
    "trait",
    "type",
    "interface",
    "func",
    "function",
    "sub",
    "mod",
    "module",
    "package",
    "namespace",
    "macro_rules!",
    "impl",
    "record",
    "object",
    "let",
    "var",
    "const",
    "static",
    "union",
];

/// The largest number of definitions per text. Further definitions are ignored.
const MAX_DEFINITIONS: usize = 10_000;

/// The name that a line defines, with its byte offset in the line.
pub(crate) fn of_line(line: &str) -> Option<(usize, &str)> {
    let text = line.trim_start();
    // A directive of reStructuredText: `.. function:: open(file)`.
    if let Some(directive) = text.strip_prefix(".. ") {
        let (kind, rest) = directive.split_once("::")?;
        let is_definition =
            ["function", "method", "class", "attribute", "data", "exception", "module", "macro"]
                .iter()
                .any(|known| kind.ends_with(known))
                || ["c:type", "c:member", "c:var", "option", "envvar", "describe", "opcode"].contains(&kind);
        if !is_definition {
            return None;
        }
        // In C, the type precedes the name.
        let signature = rest.split('(').next().unwrap_or(rest).trim_end();
        let start = signature.rfind([' ', '*']).filter(|_| kind.starts_with("c:")).map_or(0, |at| at + 1);
        return name(line, &rest[start..]);
    }
    if let Some(rest) = text.strip_prefix("=item ").or_else(|| text.strip_prefix("#define ")) {
        return name(line, rest);
    }
    let mut rest = text;
    // At most four modifiers, such as `pub(crate) const unsafe extern`, precede the keyword.
    for _ in 0..5 {
        let (word, after) = rest.split_once([' ', '\t'])?;
        let bare = word.split('(').next().unwrap_or(word);
        if KEYWORDS.contains(&word) {
            let is_modifier = MODIFIERS.contains(&word)
                && after.split([' ', '\t']).next().is_some_and(|next| KEYWORDS.contains(&next));
            if !is_modifier {
                return name(line, after);
            }
        } else if !MODIFIERS.contains(&bare) {
            return None;
        }
        rest = after.trim_start();
    }
    None
}

/// The definitions of a text, each with the byte offset of its line and its qualified name: `asyncio.Queue.get` for
/// `.. method:: get` in the class `Queue` of the module `asyncio`.
pub(crate) fn of_text(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut module = String::new();
    // The definitions that enclose the current line, with their indentation.
    let mut around: Vec<(usize, String)> = Vec::new();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let offset = start;
        start += line.len();
        let line = line.trim_end();
        let indent = line.len() - line.trim_start().len();
        let directive = line.starts_with("..").then(|| line.split_once("module:: ")).flatten();
        if let Some((_, name)) = directive.filter(|(before, _)| {
            ["..", ".. current", ".. py:", ".. py:current"].contains(&before.trim_end())
        }) {
            name.trim().clone_into(&mut module);
            around.clear();
        }
        let Some((_, name)) = of_line(line) else { continue };
        if found.len() >= MAX_DEFINITIONS {
            break;
        }
        let name = name.replace("::", ".");
        around.retain(|(outer, _)| *outer < indent);
        let outer = around.last().filter(|_| !name.contains('.')).map(|(_, outer)| &**outer);
        let local = outer.map_or_else(|| name.clone(), |outer| format!("{outer}.{name}"));
        let qualified = match module.is_empty() || local == module || local.starts_with(&format!("{module}."))
        {
            true => local.clone(),
            false => format!("{module}.{local}"),
        };
        found.push((offset, qualified));
        around.push((indent, local));
    }
    found
}

/// The identifier, or chain such as `Queue.get`, at the start of `rest`, with its offset in `line`. `rest` must be a
/// suffix of `line`.
fn name<'l>(line: &'l str, rest: &'l str) -> Option<(usize, &'l str)> {
    let rest = rest.trim_start().trim_start_matches("mut ").trim_start_matches("C<");
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let end = rest
        .char_indices()
        .find(|(at, letter)| {
            let joins = matches!(letter, '.' | ':')
                && rest[at + letter.len_utf8()..].starts_with(|next: char| is_part(next) || next == ':');
            !is_part(*letter) && !joins
        })
        .map_or(rest.len(), |(at, _)| at);
    let name = &rest[..end];
    let offset = line.len() - rest.len();
    (!name.is_empty() && name.len() <= 100).then_some((offset, name))
}

#[cfg(test)]
mod tests {
    use super::{of_line, of_text};

    #[test]
    fn definitions_are_qualified_by_those_around_them() {
        let text = ".. module:: asyncio\n\n.. class:: Queue\n\n   .. method:: get()\n\n.. function:: run()\n";
        let names: Vec<_> = of_text(text).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["asyncio", "asyncio.Queue", "asyncio.Queue.get", "asyncio.run"]);
        let text = "impl Catalog {\n    fn read() {}\n}\nfn main() {}\n";
        let names: Vec<_> = of_text(text).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["Catalog", "Catalog.read", "main"]);
    }

    #[test]
    fn definitions_are_found_and_uses_are_not() {
        let cases = [
            ("pub(crate) async fn read_file(path: &Path) {", Some("read_file")),
            ("    def __init__(self):", Some("__init__")),
            ("export default class Picker {", Some("Picker")),
            (".. method:: Queue.get(block=True)", Some("Queue.get")),
            (".. c:function:: int PyList_Append(x)", Some("PyList_Append")),
            ("#define MAX_SIZE 3", Some("MAX_SIZE")),
            ("const LIMIT: usize = 3;", Some("LIMIT")),
            ("pub const fn new() -> Self {", Some("new")),
            ("return function;", None),
            (".. note:: text", None),
            ("call(function)", None),
            ("The class of a thing", None),
        ];
        for (line, expected) in cases {
            assert_eq!(of_line(line).map(|(_, name)| name), expected, "{line}");
            if let Some((offset, name)) = of_line(line) {
                assert!(line[offset..].starts_with(name));
            }
        }
    }
}
