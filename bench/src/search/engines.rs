//! The engines that answer the questions: Libris, tantivy with its defaults, and ripgrep counting matches.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use libris::{Resource, SearchQuery, Uri};
use libris_search::{IndexedResource, SearchIndex, VisibleResources, Weights};
use tantivy::collector::TopDocs;
use tantivy::query::QueryParser;
use tantivy::schema::{STORED, STRING, Schema, TEXT, Value as _};
use tantivy::{Index, TantivyDocument};

use super::questions::CorpusDocument;

/// How many of the best documents are compared.
pub(crate) const DEPTH: usize = 10;

/// Finds documents for a question.
pub(crate) trait Engine {
    fn name(&self) -> &'static str;

    /// The paths of the best documents, best first.
    fn answers(&self, question: &str) -> Result<Vec<String>>;
}

/// The index of Libris.
pub(crate) struct Libris {
    index: SearchIndex,
    weights: Weights,
}

const PREFIX: &str = "file:///corpus/";

impl Libris {
    pub(crate) fn new(documents: &[CorpusDocument], weights: Weights) -> Result<Self> {
        let index = SearchIndex::in_memory()?;
        let mut updater = index.updater()?.context("the index is being updated")?;
        for CorpusDocument { path, text } in documents {
            let name = path.rsplit('/').next().unwrap_or(path);
            let resource = Resource::new(Uri::parse(&format!("{PREFIX}{path}"))?, name);
            let indexed = IndexedResource {
                resource: &resource,
                source: "corpus",
                note: None,
                text: Some(text),
                text_uri: None,
                stamp: 0,
            };
            updater.put(&indexed)?;
        }
        updater.commit()?;
        updater.finish()?;
        Ok(Self { index, weights })
    }
}

impl Engine for Libris {
    fn name(&self) -> &'static str {
        "Libris"
    }

    fn answers(&self, question: &str) -> Result<Vec<String>> {
        let query = SearchQuery::new(question, DEPTH);
        let answer = self.index.search_with(&query, &VisibleResources::All, &self.weights)?;
        Ok(answer.hits.into_iter().map(|hit| hit.uri.replace(PREFIX, "")).collect())
    }
}

/// tantivy with one text field and its default tokenizer, BM25 parameters and query parser.
pub(crate) struct PlainBm25 {
    index: Index,
    parser: QueryParser,
    path: tantivy::schema::Field,
}

impl PlainBm25 {
    pub(crate) fn new(documents: &[CorpusDocument]) -> Result<Self> {
        let mut schema = Schema::builder();
        let path = schema.add_text_field("path", STRING | STORED);
        let body = schema.add_text_field("body", TEXT);
        let index = Index::create_in_ram(schema.build());
        let mut writer = index.writer_with_num_threads(1, 50_000_000)?;
        for document in documents {
            let mut row = TantivyDocument::new();
            row.add_text(path, &document.path);
            row.add_text(body, &document.text);
            writer.add_document(row)?;
        }
        writer.commit()?;
        let parser = QueryParser::for_index(&index, vec![body]);
        Ok(Self { index, parser, path })
    }
}

impl Engine for PlainBm25 {
    fn name(&self) -> &'static str {
        "plain BM25"
    }

    fn answers(&self, question: &str) -> Result<Vec<String>> {
        // The syntax of the query parser must not turn a question into an error or a phrase.
        let words: String =
            question.chars().map(|letter| if letter.is_alphanumeric() { letter } else { ' ' }).collect();
        let words = words.to_lowercase();
        let (query, _) = self.parser.parse_query_lenient(&words);
        let searcher = self.index.reader()?.searcher();
        let best = searcher.search(&query, &TopDocs::with_limit(DEPTH).order_by_score())?;
        let mut paths = Vec::with_capacity(best.len());
        for (_, address) in best {
            let row: TantivyDocument = searcher.doc(address)?;
            paths.extend(row.get_first(self.path).and_then(|path| path.as_str().map(str::to_owned)));
        }
        Ok(paths)
    }
}

/// Runs ripgrep for each word of the question. Documents with the most matching words come first, then those with the
/// most matches.
pub(crate) struct RipgrepCount {
    folder: tempfile::TempDir,
    /// The number of matches per document, by word. Cached, because questions share words and each count takes a
    /// process.
    counts: RefCell<HashMap<String, Vec<(String, usize)>>>,
}

impl RipgrepCount {
    pub(crate) fn new(documents: &[CorpusDocument]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        for CorpusDocument { path, text } in documents {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            std::fs::write(path, text)?;
        }
        Ok(Self { folder, counts: RefCell::default() })
    }

    /// The documents with a word, and how often they have it.
    fn count(&self, word: &str) -> Result<Vec<(String, usize)>> {
        let output = Command::new("rg")
            .args(["--ignore-case", "--fixed-strings", "--count-matches", "--no-ignore", "--", word, "."])
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .context("could not run `rg`; hint: install ripgrep")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let counts = text.lines().filter_map(|line| {
            let (path, count) = line.rsplit_once(':')?;
            Some((path.trim_start_matches("./").to_owned(), count.parse().ok()?))
        });
        Ok(counts.collect())
    }
}

impl Engine for RipgrepCount {
    fn name(&self) -> &'static str {
        "ripgrep and count"
    }

    fn answers(&self, question: &str) -> Result<Vec<String>> {
        let mut sums: HashMap<String, (usize, usize)> = HashMap::new();
        let words = question.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        for word in words.filter(|word| word.len() > 2) {
            let word = word.to_lowercase();
            let known = self.counts.borrow().get(&word).cloned();
            let counts = match known {
                Some(counts) => counts,
                None => {
                    let counts = self.count(&word)?;
                    self.counts.borrow_mut().insert(word, counts.clone());
                    counts
                }
            };
            for (path, count) in counts {
                let sum = sums.entry(path).or_default();
                sum.0 += 1;
                sum.1 += count;
            }
        }
        let mut ranked: Vec<_> = sums.into_iter().collect();
        ranked.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        Ok(ranked.into_iter().map(|(path, _)| path).take(DEPTH).collect())
    }
}
