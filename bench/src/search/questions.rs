//! Questions with known answers, derived from documentation in Debian packages and from doc comments of this repository.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// A document to index.
#[derive(Clone, Debug)]
pub(crate) struct CorpusDocument {
    /// The path below the root of the corpus.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A question with the paths of the documents that answer it.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) text: String,
    pub(crate) answers: BTreeSet<String>,
}

/// A part of the questions, by their CRC-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// The half by which the weights were chosen.
    Tuned,
    /// A quarter by which choices were checked.
    Checked,
    /// A quarter that is measured only before a release: nothing was chosen by it.
    Sealed,
}

impl Split {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tuned => "tuned",
            Self::Checked => "checked",
            Self::Sealed => "sealed",
        }
    }
}

impl Question {
    pub(crate) fn split(&self) -> Split {
        match crc32(self.text.as_bytes()) % 4 {
            1 => Split::Checked,
            3 => Split::Sealed,
            _ => Split::Tuned,
        }
    }
}

/// CRC-32, so that the parts are the same for every program and version.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Documents and questions about them.
pub(crate) struct QuestionSet {
    pub(crate) name: &'static str,
    pub(crate) documents: Vec<CorpusDocument>,
    pub(crate) questions: Vec<Question>,
}

/// The questions of perlfaq. Each section is a document, without the question.
pub(crate) fn perlfaq(root: &Path) -> Result<QuestionSet> {
    let folder =
        find(&root.join("usr/share/perl"), "perlfaq1.pod").context("perl-doc has no perlfaq1.pod")?;
    let mut documents = Vec::new();
    let mut questions = Vec::new();
    for number in 1..=9 {
        let text = std::fs::read_to_string(folder.join(format!("perlfaq{number}.pod")))?;
        for (at, section) in text.split("\n=head2 ").skip(1).enumerate() {
            let (question, answer) = section.split_once('\n').unwrap_or((section, ""));
            let answer = answer.split("\n=head1 ").next().unwrap_or_default();
            let path = format!("perlfaq{number}/{at:03}.pod");
            documents.push(CorpusDocument { path: path.clone(), text: answer.to_owned() });
            questions.push(Question { text: pod_text(question), answers: [path].into() });
        }
    }
    Ok(QuestionSet { name: "perlfaq", documents, questions })
}

/// The text of a line of POD, without codes such as `C<...>`.
fn pod_text(line: &str) -> String {
    let mut text = String::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            'E' if letters.peek() == Some(&'<') => {
                let name: String = letters.by_ref().skip(1).take_while(|letter| *letter != '>').collect();
                text.push(if name == "lt" { '<' } else { '>' });
            }
            'A'..='Z' if letters.peek() == Some(&'<') => _ = letters.next(),
            '<' | '>' => {}
            letter => text.push(letter),
        }
    }
    text.trim().to_owned()
}

/// The phrases and the symbols in the general index of Python's documentation. The documents are the sources of the
/// documentation, without the directives that define the index.
pub(crate) fn python(root: &Path) -> Result<[QuestionSet; 2]> {
    let html = root.join("usr/share/doc/python3.11/html");
    let sources = html.join("_sources");
    let mut documents = Vec::new();
    for path in files_below(&sources)? {
        let name = path.strip_prefix(&sources)?.to_string_lossy().replace(".rst.txt", ".rst");
        let text = without_index_directives(&std::fs::read_to_string(&path)?);
        documents.push(CorpusDocument { path: name, text });
    }
    let pages: BTreeSet<_> = documents.iter().map(|document| document.path.clone()).collect();
    let index = std::fs::read_to_string(html.join("genindex-all.html"))?;
    let (mut phrases, mut symbols) = (BTreeMap::<_, Question>::new(), BTreeMap::new());
    for IndexEntry { words, page, anchor } in index_entries(&index) {
        let page = format!("{page}.rst");
        if !pages.contains(&page) {
            continue;
        }
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if anchor.strip_prefix("index-").is_some_and(is_number) {
            let is_phrase = words
                .iter()
                .all(|word| word.chars().all(|letter| letter.is_alphabetic() || " -'".contains(letter)));
            let text = words.join(" ");
            // Entries for modules are symbols; entries for environment variables are not defined by directives.
            let is_other = words.iter().any(|word| word == "module" || word == "environment variable");
            if is_phrase && !is_other && text.split_whitespace().count() >= 2 {
                // A pair is listed twice, as `and operator` and as `operator and`: one question, in the order that comes
                // first in the alphabet.
                let mut unordered: Vec<_> =
                    text.to_lowercase().split_whitespace().map(str::to_owned).collect();
                unordered.sort();
                let new = || Question { text: text.clone(), answers: BTreeSet::new() };
                let question = phrases.entry(unordered).or_insert_with(new);
                question.text = text.min(std::mem::take(&mut question.text));
                question.answers.insert(page);
            }
        } else if anchor.contains('.') && !anchor.starts_with("c.") && !anchor.contains("cmdoption") {
            symbols.entry(anchor).or_insert_with(BTreeSet::new).insert(page);
        }
    }
    let symbols = symbols.into_iter().map(|(text, answers)| Question { text, answers }).collect();
    let phrases = phrases.into_values().collect();
    Ok([
        QuestionSet { name: "phrases", documents: documents.clone(), questions: phrases },
        QuestionSet { name: "symbols", documents, questions: symbols },
    ])
}

/// An entry of the general index.
struct IndexEntry {
    words: Vec<String>,
    page: String,
    anchor: String,
}

/// The entries of the index page, whose nested lists are phrases of several parts.
fn index_entries(html: &str) -> Vec<IndexEntry> {
    let mut entries = Vec::new();
    let mut stack: Vec<String> = Vec::new();
    let (mut depth, mut in_table, mut link) = (0_usize, false, None::<String>);
    let mut text = String::new();
    for piece in html.split('<').skip(1) {
        let (tag, after) = piece.split_once('>').unwrap_or((piece, ""));
        let name = tag.split_whitespace().next().unwrap_or_default();
        match name {
            "table" if tag.contains("indextable") => in_table = true,
            "/table" => in_table = false,
            _ if !in_table => continue,
            "ul" => depth += 1,
            "/ul" => depth = depth.saturating_sub(1),
            "li" => {
                stack.truncate(depth.saturating_sub(1));
                stack.push(String::new());
            }
            "a" => {
                link = tag.split("href=\"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned);
                text.clear();
            }
            "/a" => {
                let words = unescaped(text.trim());
                let is_number = words.starts_with('[') && words.ends_with(']');
                if let Some(last) = stack.last_mut().filter(|_| !is_number) {
                    *last = words;
                }
                if let Some((page, anchor)) =
                    link.take().as_deref().and_then(|link| link.split_once(".html#"))
                {
                    let words = stack.iter().filter(|words| !words.is_empty()).cloned().collect();
                    entries.push(IndexEntry { words, page: page.to_owned(), anchor: anchor.to_owned() });
                }
            }
            _ => {}
        }
        if link.is_some() {
            text.push_str(after);
        } else if let Some(last) = stack.last_mut().filter(|last| last.is_empty() && name == "li") {
            *last = unescaped(after.trim());
        }
    }
    entries
}

fn unescaped(text: &str) -> String {
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The text without `.. index::` directives and their contents.
fn without_index_directives(text: &str) -> String {
    let mut kept = String::new();
    let mut inside: Option<usize> = None;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        if inside.is_some_and(|level| line.trim().is_empty() || indent > level) {
            continue;
        }
        inside = line.trim_start().starts_with(".. index::").then_some(indent);
        if inside.is_none() {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// Questions about functions of this repository: the first sentences of their doc comments. The documents are the files
/// without these comments.
pub(crate) fn code(root: &Path, count: usize) -> Result<QuestionSet> {
    let mut documents = Vec::new();
    let mut questions = BTreeMap::new();
    for path in files_below(&root.join("crates"))? {
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path)?;
        let lines: Vec<_> = text.lines().collect();
        let mut kept = String::new();
        for (at, line) in lines.iter().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("/// ") else {
                if !line.trim_start().starts_with("///") {
                    kept.push_str(line);
                    kept.push('\n');
                }
                continue;
            };
            let is_first = at == 0 || !lines[at - 1].trim_start().starts_with("///");
            let end = lines[at..].iter().find(|line| !line.trim_start().starts_with(['/', '#']));
            let is_function = end.is_some_and(|line| line.contains("fn "));
            let sentence = comment.split(['.', ';']).next().unwrap_or_default().replace(['`', '[', ']'], "");
            if is_first && is_function && sentence.split_whitespace().count() >= 5 && !name.contains("tests")
            {
                questions.entry(sentence).or_insert_with(BTreeSet::new).insert(name.clone());
            }
        }
        documents.push(CorpusDocument { path: name, text: kept });
    }
    let mut questions: Vec<_> =
        questions.into_iter().map(|(text, answers)| Question { text, answers }).collect();
    // An arbitrary but fixed choice.
    questions.sort_by_key(|question| {
        let mut hasher = DefaultHasher::new();
        (&question.text, "choice").hash(&mut hasher);
        hasher.finish()
    });
    questions.truncate(count);
    Ok(QuestionSet { name: "code", documents, questions })
}

/// The folder below `root` with a file of this name.
fn find(root: &Path, name: &str) -> Option<PathBuf> {
    let paths = files_below(root).ok()?;
    paths
        .into_iter()
        .find(|path| path.file_name().is_some_and(|found| found == name))?
        .parent()
        .map(Path::to_owned)
}

/// All files below a folder, sorted.
pub(crate) fn files_below(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries =
            std::fs::read_dir(&folder).with_context(|| format!("could not read `{}`", folder.display()))?;
        for entry in entries {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => folders.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found.sort();
    Ok(found)
}
