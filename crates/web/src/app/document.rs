//! Assembles the page into one HTML document. Hosts render it in a frame that can load nothing, so the modules, styles
//! and the icon are inlined.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The module from which the page starts.
const ENTRY: &str = "app.js";

/// The module that connects the page to its environment on the web, and the one that replaces it inside a chat.
const SITE: (&str, &str) = ("site.js", "chat.js");

macro_rules! modules {
    ($($name:literal,)*) => {
        /// The modules of the page, by name.
        const MODULES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../../page/", $name))),)*];
    };
}

modules! {
    "app.js",
    "attach.js",
    "browse.js",
    "chat.js",
    "composer.js",
    "context.js",
    "dom.js",
    "export.js",
    "file.js",
    "format.js",
    "host.js",
    "library.js",
    "measure.js",
    "pages.js",
    "preview.js",
    "rows.js",
    "search.js",
    "selection.js",
    "snippets.js",
    "storage.js",
    "templates.js",
}

/// Assembles the document. It contains the modules that [`ENTRY`] imports, directly or indirectly.
pub(super) fn assemble() -> String {
    let page = include_str!("../../page/index.html");
    let icon = format!("data:image/svg+xml;base64,{}", STANDARD.encode(include_str!("../../page/icon.svg")));
    let body = page.split_once("<body>").and_then(|(_, rest)| rest.split_once("</body>"));
    let body = body.map_or("", |(body, _)| body).replace("/picker/icon.svg", &icon);
    let (style, previews) = (include_str!("../../page/style.css"), include_str!("../../page/preview.css"));
    let mut scripts = String::new();
    append(&mut scripts, ENTRY, &mut BTreeSet::new());
    format!(
        "<!doctype html>\n<html lang=\"en\" data-site=\"chat\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Libris</title>\n\
         <style>\n{style}</style>\n</head>\n<body>{body}\
         <script type=\"text/plain\" id=\"preview-style\">{previews}</script>\n\
         <script type=\"module\">\n{scripts}</script>\n</body>\n</html>\n"
    )
}

/// Appends a module after the modules that it imports, unless it is in `known`. Each module becomes a function that is
/// called at once and returns the exports; imports become constants.
fn append(out: &mut String, name: &'static str, known: &mut BTreeSet<&'static str>) {
    let name = if name == SITE.0 { SITE.1 } else { name };
    if !known.insert(name) {
        return;
    }
    let content = MODULES.iter().find(|(known, _)| *known == name).map_or("", |(_, content)| *content);
    let mut code = String::new();
    let mut exports = Vec::new();
    for line in content.lines() {
        if let Some((names, imported)) = import(line) {
            append(out, imported, known);
            code.push_str(&format!("const {names} = {};\n", variable(imported)));
            continue;
        }
        let declaration = line.strip_prefix("export ");
        exports.extend(declaration.and_then(declared));
        code.push_str(declaration.unwrap_or(line));
        code.push('\n');
    }
    let exports = exports.join(", ");
    out.push_str(&format!("const {} = (() => {{\n{code}return {{ {exports} }};\n}})();\n", variable(name)));
}

/// The imported names and the module, if the line imports from another module of the page.
fn import(line: &'static str) -> Option<(&'static str, &'static str)> {
    line.strip_prefix("import ")?.strip_suffix("';")?.split_once(" from './")
}

/// The name in an exported declaration.
fn declared(declaration: &str) -> Option<&str> {
    let mut words = declaration.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    words.find(|word| !matches!(*word, "" | "async" | "function" | "class" | "const" | "let"))
}

/// The variable that holds the exports of a module.
fn variable(module: &str) -> String {
    let module = if module == SITE.0 { SITE.1 } else { module };
    format!("${}", module.trim_end_matches(".js"))
}

#[cfg(test)]
mod tests {
    use super::{MODULES, assemble, declared, import, variable};

    #[test]
    fn the_document_needs_nothing_else() {
        let document = assemble();
        for (name, content) in MODULES {
            assert!(
                document.contains(&format!("const {} = (() => {{", variable(name))),
                "{name} is left out"
            );
            // Either would end or change the parsing of an inline script.
            assert!(!content.contains("</script") && !content.contains("<!--"), "{name}");
        }
        for line in document.lines() {
            let is_sample = line.contains("@modelcontextprotocol/sdk");
            assert!(is_sample || !line.starts_with("import "), "{line}");
            assert!(!line.starts_with("export "), "{line}");
        }
        for loaded in ["/picker/", "src=\"/", "@import", "url(", "fetch(", "Storage.getItem(TOKEN"] {
            assert!(!document.contains(loaded), "{loaded}");
        }
        assert!(document.contains("src=\"data:image/svg+xml;base64,"));
        assert!(document.contains("id=\"query\""));
        assert!(document.len() < 250_000, "{} bytes", document.len());
    }

    #[test]
    fn imports_and_exports_are_recognised() {
        assert_eq!(import("import { a, b } from './dom.js';"), Some(("{ a, b }", "dom.js")));
        assert_eq!(import("import { Client } from '@modelcontextprotocol/sdk/client/index.js';"), None);
        for (declaration, name) in [
            ("async function exported(format) {", "exported"),
            ("class Tree {", "Tree"),
            ("const FORMATS = [", "FORMATS"),
        ] {
            assert_eq!(declared(declaration), Some(name));
        }
    }
}
