//! Completes a word of a command line with URIs, templates and values of the target, for the scripts of
//! `libris completions`.
//!
//! This code runs whenever a user presses the Tab key. So it starts no program, sends no credentials that a
//! configuration file names, ends after [`TIME_LIMIT`], and is silent if it fails. The words come from a target that is
//! not trusted: for a shell that inserts them as they are, they are escaped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use libris::uri_template::Variables;
use libris::{Completion, CompletionRequest, Context, Template, Uri, UriTemplate, ViewSnapshot};

use crate::shell_words::{BashLine, GivenWords};
use crate::sources::SourceArguments;
use crate::target::OpenedTarget;
use crate::terminal::print;
use crate::{Arguments, Command};

/// The first argument with which a script starts this program.
pub(crate) const COMPLETION_COMMAND: &str = "complete-words";

/// The time limit of a completion, because a user waits for it.
const TIME_LIMIT: Duration = Duration::from_millis(1500);

/// The maximum number of candidates.
const MAX_CANDIDATES: usize = 500;

/// The maximum number of listed resources that are searched for candidates.
const MAX_LISTED: usize = 10_000;

/// The maximum number of resources of one page.
const PAGE: usize = 500;

/// Stands for the word at the cursor while the command line is parsed.
const PLACEHOLDER: &str = "libris:word-at-the-cursor";

/// The kind of the word at the cursor, and what is needed to complete it.
enum Subject {
    /// A URI.
    Uri(SourceArguments),
    /// A URI template.
    Template(SourceArguments),
    /// A variable of a template, or its name, `=` and the beginning of its value.
    Variable { sources: SourceArguments, template: String, known: Vec<(String, String)> },
}

/// Prints the candidates for a word, one per line. If this module cannot complete the word, fails without a message:
/// the script then completes options, commands and files.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let Some(candidates) = completed(&arguments) else { return ExitCode::FAILURE };
    let lines: String = candidates.iter().map(|candidate| format!("{candidate}\n")).collect();
    match print(&lines) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn completed(arguments: &[String]) -> Option<Vec<String>> {
    match arguments {
        [shell, breaks, before, after] if shell == "bash" => {
            let line = BashLine::parse(before, after, breaks);
            let candidates = found(&line.words, line.current, &line.typed)?;
            Some(candidates.iter().filter_map(|candidate| line.replacement(candidate)).collect())
        }
        [shell, index, typed, words @ ..] if shell == "words" => {
            let GivenWords { words, current } = GivenWords::new(index.parse().ok()?, typed, words);
            found(&words, current, typed)
        }
        _ => None,
    }
}

/// The candidates for the word at the index `current`; `None` if this module does not complete such words.
fn found(words: &[String], current: usize, typed: &str) -> Option<Vec<String>> {
    let subject = subject(words, current)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().ok()?;
    let typed = typed.to_owned();
    let searching = runtime.spawn(async move { candidates(subject, &typed).await });
    let found = runtime.block_on(async { tokio::time::timeout(TIME_LIMIT, searching).await });
    // Does not wait for tasks that are still blocked.
    runtime.shutdown_background();
    let mut found = found.ok().and_then(Result::ok).flatten().unwrap_or_default();
    // A control character could not be typed, and would break the protocol with the script.
    found.retain(|candidate| !candidate.chars().any(char::is_control));
    found.sort();
    found.dedup();
    found.truncate(MAX_CANDIDATES);
    Some(found)
}

/// The kind of the word at the index `current`; `None` if this module does not complete such words.
fn subject(words: &[String], current: usize) -> Option<Subject> {
    let mut words = words.to_vec();
    let word = words.get_mut(current).filter(|word| !word.starts_with('-'))?;
    *word = PLACEHOLDER.to_owned();
    let is_word = |text: &str| text == PLACEHOLDER;
    let parsed = Arguments::try_parse_from(&words).or_else(|_| {
        // `libris complete TEMPLATE` lacks the variable while the template is typed.
        words.insert(current + 1, String::new());
        Arguments::try_parse_from(&words)
    });
    match parsed.ok()?.command {
        Command::Read(options) if is_word(&options.uri) => Some(Subject::Uri(options.sources)),
        Command::Watch(options) if options.uri.iter().any(|uri| is_word(uri)) => {
            Some(Subject::Uri(options.sources))
        }
        Command::Bench(options) if options.uri.iter().any(|uri| is_word(uri.as_str())) => {
            Some(Subject::Uri(options.sources))
        }
        Command::Ls(options) if options.below.as_deref().is_some_and(is_word) => {
            Some(Subject::Uri(options.sources))
        }
        Command::Complete(options) if is_word(&options.template) => Some(Subject::Template(options.sources)),
        Command::Complete(options) if is_word(&options.variable) => Some(Subject::Variable {
            sources: options.sources,
            template: options.template,
            known: options.with,
        }),
        _ => None,
    }
}

async fn candidates(subject: Subject, typed: &str) -> Option<Vec<String>> {
    let sources = match &subject {
        Subject::Uri(sources) | Subject::Template(sources) | Subject::Variable { sources, .. } => sources,
    };
    let target = OpenedTarget::open_for_completion(sources).ok()?;
    let view = target.view.snapshot();
    let candidates = match &subject {
        Subject::Uri(_) => uris(&view, typed).await,
        Subject::Template(_) => {
            let templates = view.templates(&Context::default()).await.ok()?.templates.into_iter();
            let texts = templates.map(|template| template.uri.as_str().to_owned());
            texts.filter(|text| text.starts_with(typed)).collect()
        }
        Subject::Variable { template, known, .. } => {
            let known = known.iter().cloned().collect();
            variables(&view, &UriTemplate::parse(template).ok()?, &known, typed).await
        }
    };
    drop(view);
    target.close().await;
    Some(candidates)
}

/// The URIs that begin with the typed text, up to the next `/`.
async fn uris(view: &ViewSnapshot<'_>, typed: &str) -> Vec<String> {
    let context = Context::default();
    let mut found = Vec::new();
    // Resources whose URIs begin with the typed text follow it in the list.
    let mut after = Uri::parse(typed).ok().filter(|uri| uri.as_str() == typed);
    for _ in 0..MAX_LISTED / PAGE {
        let Ok(page) = view.list(after.as_ref(), PAGE, &context).await else { break };
        let uris = page.resources.iter().map(|resource| resource.uri.as_str());
        for uri in uris.filter(|uri| uri.starts_with(typed)) {
            let segment = up_to_slash(uri, typed);
            if found.last().is_none_or(|last| last != segment) {
                found.push(segment.to_owned());
            }
        }
        let is_past = |uri: &Uri| uri.as_str() > typed && !uri.as_str().starts_with(typed);
        after = page.resources.last().map(|last| last.uri.clone());
        if !page.more || found.len() >= MAX_CANDIDATES || after.as_ref().is_none_or(is_past) {
            break;
        }
    }
    if let Ok(templates) = view.templates(&context).await {
        for template in templates.templates {
            found.extend(expanded(view, &template, typed).await);
        }
    }
    // A folder may have templates with and without the slash at its end.
    let folders: Vec<_> = found.iter().filter_map(|uri| uri.strip_suffix('/').map(str::to_owned)).collect();
    found.retain(|uri| !folders.contains(uri));
    found
}

/// The URI up to the first `/` after the typed text; the whole URI if there is none.
fn up_to_slash<'a>(uri: &'a str, typed: &str) -> &'a str {
    // The slashes of `scheme:///` are no folders.
    let start = typed.len().max(uri.find("://").map_or(0, |at| at + 3));
    let start = start + uri[start..].len() - uri[start..].trim_start_matches('/').len();
    uri[start..].find('/').map_or(uri, |at| &uri[..=start + at])
}

/// The candidates that a template gives for the typed text: its text in front of the first variable, or values of that
/// variable.
async fn expanded(view: &ViewSnapshot<'_>, template: &Template, typed: &str) -> Vec<String> {
    let text = template.uri.as_str();
    let Some((literal, rest)) = text.split_once('{') else { return Vec::new() };
    if literal.starts_with(typed) && literal != typed {
        return vec![literal.to_owned()];
    }
    let Some((expression, _)) = rest.split_once('}').filter(|_| typed.starts_with(literal)) else {
        return Vec::new();
    };
    let variable = expression.trim_start_matches('+');
    let (typed_value, known) = (&typed[literal.len()..], BTreeMap::new());
    let request = CompletionRequest {
        template: &template.uri,
        variable,
        typed: typed_value,
        known: &known,
        limit: Completion::LIMIT,
    };
    let Ok(first) = UriTemplate::parse(&format!("{literal}{{{expression}}}")) else { return Vec::new() };
    let Ok(Completion { values, .. }) = view.complete(request, &Context::default()).await else {
        return Vec::new();
    };
    let uris = values.iter().filter_map(|value| {
        let variables: Variables = [(variable, &**value)].into_iter().collect();
        first.expand(&variables).ok()
    });
    uris.filter(|uri| uri.starts_with(typed)).collect()
}

/// The names of the variables, each with `=`, or values after the name and `=`.
async fn variables(
    view: &ViewSnapshot<'_>,
    template: &UriTemplate,
    known: &BTreeMap<String, String>,
    typed: &str,
) -> Vec<String> {
    let Some((variable, value)) = typed.split_once('=') else {
        let names = template.variables().filter(|name| !known.contains_key(*name));
        return names.map(|name| format!("{name}=")).filter(|name| name.starts_with(typed)).collect();
    };
    let request = CompletionRequest { template, variable, typed: value, known, limit: Completion::LIMIT };
    // The server completes only templates that were listed.
    let _ = view.templates(&Context::default()).await;
    let completion = view.complete(request, &Context::default()).await;
    let values = completion.map(|completion| completion.values).unwrap_or_default();
    values.iter().map(|value| format!("{variable}={value}")).collect()
}

#[cfg(test)]
mod tests {
    use super::{Subject, subject, up_to_slash};

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn only_words_that_a_target_knows_are_completed() {
        let is_uri = |line, at| matches!(subject(&words(line), at), Some(Subject::Uri(_)));
        assert!(is_uri("libris read ", 2) && is_uri("libris read file: ./docs --json", 2));
        assert!(is_uri("libris read -c a.toml x", 4) && is_uri("libris watch ./docs --uri f", 4));
        assert!(is_uri("libris ls --below f ./docs", 3) && is_uri("libris bench --uri f ./docs", 3));
        for (line, at) in [
            ("libris read x ./docs", 3),
            ("libris read --output x u", 3),
            ("libris read --no", 2),
            ("libris serve ./d", 2),
            ("libris ", 1),
            ("libris read x", 7),
        ] {
            assert!(subject(&words(line), at).is_none(), "{line}");
        }
        for line in ["libris complete f", "libris complete f v ./docs"] {
            assert!(matches!(subject(&words(line), 2), Some(Subject::Template(_))), "{line}");
        }
        assert!(matches!(
            subject(&words("libris complete f:{x} x=1 ./docs"), 3),
            Some(Subject::Variable { .. })
        ));
    }

    #[test]
    fn uris_are_completed_folder_by_folder() {
        for (uri, typed, expected) in [
            ("file:///docs/a/b.md", "", "file:///docs/"),
            ("file:///docs/a/b.md", "file:///do", "file:///docs/"),
            ("file:///docs/a/b.md", "file:///docs/", "file:///docs/a/"),
            ("file:///docs/a/b.md", "file:///docs/a/", "file:///docs/a/b.md"),
            ("note://one", "n", "note://one"),
            ("urn:a:b", "", "urn:a:b"),
        ] {
            assert_eq!(up_to_slash(uri, typed), expected);
        }
    }
}
