//! Generates `docs/messages.md`: every message of the program.
//!
//! The messages are the string literals in calls that create errors, warnings, log lines and notices, found by a lexer
//! in the source code of all crates but their tests. So none can be missing as long as errors are created by one of
//! [`CONSTRUCTORS`]. In the crate of the macros, all sentences are compile errors.
//!
//! To generate the page again: `LIBRIS_UPDATE=1 cargo test -p libris-cli --test messages`. Read what changed: each
//! message says what happened and, if the user can do something about it, what to do.

mod advice;
mod lexer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use advice::Advice;
use lexer::Token;

/// The functions, variants and macros whose arguments are messages.
const CONSTRUCTORS: [&str; 19] = [
    "Busy",
    "Err",
    "Unavailable",
    "advice",
    "anyhow",
    "context",
    "custom",
    "eprintln",
    "error",
    "failed",
    "invalid",
    "map_err",
    "missing",
    "ok_or",
    "ok_or_else",
    "unreadable",
    "warn",
    "with_context",
    "wrong",
];

/// The crates whose messages users and clients see.
const CRATES: [&str; 13] = [
    "auth",
    "cli",
    "cluster",
    "core",
    "documents",
    "libris",
    "macros",
    "process",
    "remote",
    "search",
    "sources",
    "web",
    "wire",
];

/// The parts of the page: a heading, and the folder or file whose messages it has. The first that matches counts.
const PARTS: [(&str, &str); 22] = [
    ("Command line and configuration file", "crates/cli/src"),
    ("Folders", "crates/sources/src/files"),
    ("Folders", "crates/sources/src/tree"),
    ("Git repositories", "crates/sources/src/git"),
    ("Databases", "crates/sources/src/sql"),
    ("HTTP APIs", "crates/sources/src/http"),
    ("Notion", "crates/sources/src/notion"),
    ("Other MCP servers", "crates/remote/src"),
    ("Other MCP servers", "crates/sources/src/mcp"),
    ("Commands", "crates/sources/src/command"),
    ("Commands", "crates/process/src"),
    ("Documents", "crates/documents/src"),
    ("Resources in the configuration file", "crates/sources/src/inline"),
    ("All sources", "crates/sources/src"),
    ("All sources", "crates/core/src"),
    ("Authentication", "crates/auth/src"),
    ("Server", "crates/libris/src"),
    ("Protocol", "crates/wire/src"),
    ("Replicas", "crates/cluster/src"),
    ("Picker", "crates/web/src"),
    ("Search", "crates/search/src"),
    ("Macros of the library", MACROS),
];

/// The crate whose messages are compile errors.
const MACROS: &str = "crates/macros/src";

/// A message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Message {
    text: String,
    /// What to do.
    hint: String,
    channel: Channel,
    /// Whether its cause follows it: in the terminal as `because: …`, with its hint, and otherwise in the log.
    has_cause: bool,
}

/// Where a message appears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Channel {
    /// In the terminal or in a response.
    Error,
    Log,
    /// In the terminal.
    Warning,
    /// In the terminal, about what the program does.
    Notice,
    /// From the compiler.
    Compile,
}

impl Channel {
    fn label(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Log => "log",
            Self::Warning => "warning",
            Self::Notice => "notice",
            Self::Compile => "compile error",
        }
    }
}

impl Message {
    /// A message with its hint behind "; hint: ", if it has one.
    fn new(text: &str, channel: Channel) -> Self {
        let (text, hint) = text.split_once("; hint: ").unwrap_or((text, ""));
        Self { text: text.to_owned(), hint: hint.to_owned(), channel, has_cause: false }
    }

    fn with_cause(self, has_cause: bool) -> Self {
        Self { has_cause: has_cause && self.hint.is_empty(), ..self }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Rust files below a folder, without those of tests.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests" || name == "contract");
        if path.is_dir() && !is_test {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The arguments of a call whose opening parenthesis is at `start`: the tokens of each, and where the call ends.
fn arguments(tokens: &[Token], start: usize) -> (Vec<&[Token]>, usize) {
    let (mut arguments, mut depth, mut from) = (Vec::new(), 0, start + 1);
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token {
            Token::Mark('(' | '[' | '{') => depth += 1,
            Token::Mark(')' | ']' | '}') => depth -= 1,
            Token::Mark(',') if depth == 1 => {
                arguments.push(&tokens[from..at]);
                from = at + 1;
            }
            _ => {}
        }
        if depth == 0 {
            arguments.push(&tokens[from..at]);
            // Behind a trailing comma.
            arguments.retain(|argument| !argument.is_empty());
            return (arguments, at);
        }
    }
    (arguments, tokens.len())
}

/// Where the arguments of the call begin whose name is at `at`, if its arguments are messages.
fn message_call(tokens: &[Token], at: usize) -> Option<usize> {
    let Token::Name(name) = &tokens[at] else { return None };
    let is_object = name == "new" && at >= 3 && tokens[at - 3] == Token::Name("ErrorObject".into());
    // The `!` of a macro.
    let open = at + 1 + usize::from(tokens.get(at + 1) == Some(&Token::Mark('!')));
    let is_call = tokens.get(open) == Some(&Token::Mark('('));
    (is_call && (is_object || CONSTRUCTORS.contains(&name.as_str()))).then_some(open)
}

/// Whether a text has at least two words besides placeholders.
fn is_prose(text: &str) -> bool {
    let outside = text.split('{').map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
    let words = outside.flat_map(str::split_whitespace).filter(|word| word.contains(char::is_alphabetic));
    words.count() >= 2
}

/// The texts of an argument that read as prose, each with the hint that `with_hint` adds to it. Without those of calls
/// in it whose arguments are messages.
fn texts(tokens: &[Token]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if let Some((hint, end)) = added_hint(tokens, at) {
            if let Some(text) = found.last_mut() {
                *text += &hint;
            }
            at = end + 1;
            continue;
        }
        match &tokens[at] {
            Token::Text(text) if is_prose(text) => found.push(text.clone()),
            _ => {}
        }
        at = message_call(tokens, at).map_or(at, |open| arguments(tokens, open).1) + 1;
    }
    found
}

/// The hint of a call of `with_hint` at this position, as the end of a message, and where the call ends.
fn added_hint(tokens: &[Token], at: usize) -> Option<(String, usize)> {
    let is_call = tokens.get(at) == Some(&Token::Name("with_hint".into()))
        && tokens.get(at + 1) == Some(&Token::Mark('('));
    is_call.then(|| {
        let (_, end) = arguments(tokens, at + 1);
        let texts = tokens[at..end].iter().filter_map(|token| match token {
            Token::Text(text) => Some(text.as_str()),
            _ => None,
        });
        (format!("; hint: {}", texts.collect::<Vec<_>>().join(" ")), end)
    })
}

/// The texts of an argument of `advice`: its literals, or those that the variable in it may have. `at` is the position of
/// the call. One text if it has none.
fn advice_texts(tokens: &[Token], at: usize, argument: &[Token]) -> Vec<String> {
    let literals = |tokens: &[Token]| -> Vec<String> {
        let literal = |token: &Token| match token {
            Token::Text(text) => Some(text.split("; hint: ").next().unwrap_or_default().to_owned()),
            _ => None,
        };
        tokens.iter().filter_map(literal).filter(|text| !text.is_empty()).collect()
    };
    let own = literals(argument);
    if !own.is_empty() {
        return vec![own.join(" ")];
    }
    let declared = argument.first().and_then(|name| {
        let start = (0..at).rev().find(|start| {
            tokens[*start] == Token::Name("let".into()) && tokens.get(start + 1) == Some(name)
        })?;
        let mut depth = 0;
        let length = tokens[start..].iter().position(|token| {
            match token {
                Token::Mark('(' | '[' | '{') => depth += 1,
                Token::Mark(')' | ']' | '}') => depth -= 1,
                _ => {}
            }
            depth == 0 && *token == Token::Mark(';')
        })?;
        Some(literals(&tokens[start..start + length]))
    });
    let prose = declared.into_iter().flatten().filter(|text| is_prose(text)).collect::<Vec<_>>();
    if prose.is_empty() { vec!["…".to_owned()] } else { prose }
}

/// The messages in the code of the macros: every sentence.
fn compile_errors(code: &str) -> BTreeSet<Message> {
    let tokens = lexer::tokens(code);
    let texts = tokens.iter().filter_map(|token| match token {
        Token::Text(text) if is_prose(text) => Some(Message::new(text, Channel::Compile)),
        _ => None,
    });
    texts.collect()
}

/// The messages in the code of one file.
fn messages(code: &str) -> BTreeSet<Message> {
    let tokens = lexer::tokens(code);
    let is_name = |at: usize, name: &str| tokens.get(at) == Some(&Token::Name(name.to_owned()));
    let mut found = BTreeSet::new();
    for at in 0..tokens.len() {
        // A text with a hint is a message, wherever it stands.
        if let Token::Text(text) = &tokens[at]
            && text.contains("; hint: ")
            && is_prose(text.trim_start_matches("; hint: "))
        {
            let is_logged = found.contains(&Message::new(text, Channel::Log));
            found.extend((!is_logged).then(|| Message::new(text, Channel::Error)));
        }
        let Some(open) = message_call(&tokens, at) else { continue };
        let (arguments, end) = arguments(&tokens, open);
        let hint = added_hint(&tokens, end + 2).map(|(hint, _)| hint).unwrap_or_default();
        if let (true, [message, hint]) = (is_name(at, "advice"), &arguments[..]) {
            let (messages, hints) = (advice_texts(&tokens, at, message), advice_texts(&tokens, at, hint));
            let has_words = |text: &str| is_prose(&format!("a {text}"));
            for text in &messages {
                for hint in hints.iter().filter(|hint| has_words(text) || has_words(hint)) {
                    let (text, hint) = (text.clone(), hint.clone());
                    found.insert(Message { text, hint, channel: Channel::Error, has_cause: false });
                }
            }
            continue;
        }
        let is_macro = tokens[at + 1] == Token::Mark('!');
        for (position, text) in arguments
            .iter()
            .enumerate()
            .flat_map(|(at, argument)| texts(argument).into_iter().map(move |text| (at, text)))
        {
            let is_failure = is_name(at, "failed") && position == 0;
            let has_cause = is_failure || is_name(at, "context") || is_name(at, "with_context");
            let prefix = if is_failure { "could not " } else { "" };
            let channel = match (is_name(at, "warn"), is_macro) {
                (true, false) => Channel::Warning,
                (true, true) => Channel::Log,
                (false, true) if is_name(at, "error") => Channel::Log,
                (false, true) if is_name(at, "eprintln") => Channel::Notice,
                (false, _) => Channel::Error,
            };
            // `Busy` adds it to the text.
            let suffix = if is_name(at, "Busy") { "; try again later" } else { hint.as_str() };
            found.insert(Message::new(&format!("{prefix}{text}{suffix}"), channel).with_cause(has_cause));
        }
    }
    found
}

/// The messages by part of the page, without the fragments.
fn parts() -> BTreeMap<usize, (&'static str, BTreeSet<Message>)> {
    let mut parts: BTreeMap<usize, (&str, BTreeSet<Message>)> = BTreeMap::new();
    for name in CRATES {
        for file in files(&root().join("crates").join(name).join("src")) {
            let path = file.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            let (heading, _) = PARTS.iter().find(|(_, prefix)| path.starts_with(prefix)).expect("a part");
            let order = PARTS.iter().position(|(other, _)| other == heading).unwrap();
            let part = parts.entry(order).or_insert_with(|| (heading, BTreeSet::new()));
            let code = std::fs::read_to_string(&file).unwrap();
            part.1.extend(if path.starts_with(MACROS) { compile_errors(&code) } else { messages(&code) });
        }
    }
    parts
}

fn page() -> String {
    let mut page = String::from(
        "# Messages\n\n\
         Every message of the program: errors, warnings and notices in the terminal, errors in responses, warnings in \
         the log, and\ncompile errors of the macros. `{…}` stands for a value. A message of which another message is the \
         rest, such as a reason,\nhas a row of its own. If the column \"what to do\" is empty, the message itself says \
         it. `…` stands for a text that depends\non the case.\n\n\
         \"See the cause\" means that the cause follows: in the terminal as `because: …`, with a hint of its own, and \
         in the log\nof the server, where a response only says \"internal error; the log of the server has the \
         details\".\n\n\
         A test generates this page from the source code, and checks that every message has advice; see\n\
         `crates/cli/tests/messages/main.rs`.\n",
    );
    for (heading, messages) in parts().values() {
        page.push_str(&format!("\n## {heading}\n\n| message | what to do | where |\n|---|---|---|\n"));
        for message in messages.iter().filter(|message| !advice::is_fragment(&message.text)) {
            let channel = message.channel.label();
            let advice = match advice::of(message) {
                Some(Advice::Hint) => message.hint.as_str(),
                Some(Advice::Cause) => "see the cause",
                Some(Advice::Listed(text)) => text,
                Some(Advice::AtEnd) => "see its end",
                Some(Advice::Outside) => "a reason in another message, which has the advice",
                Some(Advice::InText) | None => "",
            };
            page.push_str(&format!("| {} | {} | {channel} |\n", cell(&message.text), cell(advice)));
        }
    }
    page
}

/// The text in a cell of a table.
fn cell(text: &str) -> String {
    let lines: Vec<_> = text.split_whitespace().collect();
    lines.join(" ").replace('|', "\\|").replace("](", "]\\(").replace('<', "&lt;")
}

#[test]
fn the_page_has_every_message() {
    let (file, generated) = (root().join("docs/messages.md"), page());
    if std::env::var_os("LIBRIS_UPDATE").is_some() {
        std::fs::write(&file, &generated).unwrap();
    }
    let page = std::fs::read_to_string(&file).unwrap_or_default();
    let difference = page.lines().zip(generated.lines()).find(|(old, new)| old != new);
    assert!(
        page == generated,
        "docs/messages.md is outdated; hint: run this test with LIBRIS_UPDATE=1 and read what changed: {difference:#?}"
    );
}

#[test]
fn every_message_has_advice() {
    let parts = parts();
    let messages = || parts.values().flat_map(|(_, messages)| messages);
    let without: Vec<_> = messages()
        .filter(|message| !advice::is_fragment(&message.text) && advice::of(message).is_none())
        .map(|message| &message.text)
        .collect();
    assert!(
        without.is_empty(),
        "say what to do about these messages, with `; hint: …`, or list them in advice.rs with the advice, or with the \
         reason why they need none: {without:#?}"
    );
    // A listed text that is no message any more, or has advice now, is taken off the list.
    let unlisted = |text: &&&str| {
        !messages().any(|message| {
            message.text == **text && !matches!(advice::of(message), Some(Advice::Hint | Advice::InText))
        })
    };
    let stale: Vec<_> = advice::listed().filter(unlisted).collect();
    assert!(stale.is_empty(), "no messages without advice: {stale:#?}");
}

#[test]
fn messages_are_found_in_calls() {
    let code = r##"
        // Err("not in a comment")
        fn a() -> Result<(), Error> {
            let name = "not in a call";
            if b { return Err(Error::invalid(format!("`{name}` is wrong; hint: write \
                it right"))); }
            c.map_err(|cause| advice("the port is in use", "use another port"))?;
            let why = "it is a file; hint: name its folder";
            d.map_err(|cause| advice(why, "use a file"))?;
            e.map_err(|cause| advice(text, "use another file"))?;
            tracing::warn!(uri = "one", r#"a "raw" text"#);
            warn("the port was chosen");
            eprintln!("listening on {address}");
            Err(Error::failed("open the file", cause))
        }
        #[cfg(test)]
        mod tests { fn t() { Err("not in a test") } }
    "##;
    let message = |text: &str, hint: &str, channel| {
        let has_cause = text.starts_with("could not");
        Message { text: text.into(), hint: hint.into(), channel, has_cause }
    };
    let expected = [
        message("`{name}` is wrong", "write it right", Channel::Error),
        message("a \"raw\" text", "", Channel::Log),
        message("could not open the file", "", Channel::Error),
        message("it is a file", "name its folder", Channel::Error),
        message("the port is in use", "use another port", Channel::Error),
        message("the port was chosen", "", Channel::Warning),
        message("it is a file", "use a file", Channel::Error),
        message("…", "use another file", Channel::Error),
        message("listening on {address}", "", Channel::Notice),
    ];
    assert_eq!(messages(code), expected.into());
    let code = r#"Error::new(span, format!("`{key}` appears twice; remove one")); KEYS.join("`, `")"#;
    assert_eq!(
        compile_errors(code),
        [message("`{key}` appears twice; remove one", "", Channel::Compile)].into()
    );
}
