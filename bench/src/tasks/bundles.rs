//! How often a bundle contains the passage that answers a question, compared with the full texts of the first ten hits.
//!
//! A question consists of the rarest words of a sentence of the manual. The passage that answers it is the next
//! sentence, so a question rarely contains words of its answer.

use std::collections::HashMap;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::program::Binary;
use crate::report::{Aim, Report};

/// The number of questions.
const QUESTIONS: usize = 50;

/// The number of words of a question.
const WORDS: usize = 6;

/// The budget of a bundle, in tokens.
const BUDGET: &str = "8000";

struct SentencePair {
    question: String,
    passage: String,
}

pub(super) fn run(binary: &Binary, report: &mut Report) -> Result<()> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").canonicalize()?;
    let cache = tempfile::tempdir()?;
    let config = cache.path().join("libris.toml");
    fs::write(
        &config,
        format!("cache_folder = \"index\"\n[[files]]\npath = {:?}\ninclude = [\"*.md\"]\n", docs),
    )?;
    let questions = questions(&docs)?;
    let (mut in_bundles, mut in_hits, mut bundle_tokens, mut hit_tokens) = (0, 0, 0.0, 0.0);
    for SentencePair { question, passage } in &questions {
        let holds = |text: &str| normal(text).contains(&normal(passage));
        let bundle = run_json(binary, &config, &["bundle", "--query", question, "--budget", BUDGET])?;
        let passages = bundle["passages"].as_array().context("a bundle has passages")?;
        in_bundles +=
            usize::from(passages.iter().any(|passage| holds(passage["text"].as_str().unwrap_or_default())));
        bundle_tokens += bundle["tokens"].as_f64().unwrap_or_default();
        let found = run_json(binary, &config, &["search", question, "--limit", "10"])?;
        let mut is_held = false;
        for hit in found["hits"].as_array().context("a search has hits")? {
            let name = hit["name"].as_str().unwrap_or_default();
            let text = fs::read_to_string(docs.join(name)).with_context(|| name.to_owned())?;
            hit_tokens += libris::count_tokens(&text) as f64;
            is_held |= holds(&text);
        }
        in_hits += usize::from(is_held);
    }
    report.add("bundles: passages in ten hits whole", in_hits as f64, "");
    report.judge("bundles: passages in bundles", in_bundles as f64, "", Aim::AtLeast(in_hits as f64));
    report.add("bundles: tokens of ten hits whole", hit_tokens / QUESTIONS as f64, "");
    let share = bundle_tokens / hit_tokens;
    report.judge("bundles: tokens of a bundle, of those of ten hits", share, "×", Aim::AtMost(1.0 / 3.0));
    Ok(())
}

fn run_json(binary: &Binary, config: &Path, arguments: &[&str]) -> Result<Value> {
    let output =
        Command::new(binary.path()).args(arguments).arg("--json").arg("--config").arg(config).output()?;
    ensure!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// A text with each run of white space as one space.
fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| word.len() > 3);
    words.map(str::to_lowercase)
}

/// Questions from sentences of all pages, chosen by a hash, so that they are spread over the manual.
fn questions(docs: &Path) -> Result<Vec<SentencePair>> {
    let (mut pairs, mut frequencies): (Vec<(String, String)>, HashMap<String, usize>) = Default::default();
    let mut pages: Vec<_> = fs::read_dir(docs)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    pages.sort();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(page)?;
        words(&text).for_each(|word| *frequencies.entry(word).or_default() += 1);
        for paragraph in
            text.split("\n\n").filter(|text| text.starts_with(|letter: char| letter.is_alphabetic()))
        {
            let paragraph = normal(paragraph);
            let sentences: Vec<_> = paragraph.split_inclusive(". ").map(str::trim).collect();
            for pair in sentences.windows(2) {
                if pair.iter().all(|sentence| (40..240).contains(&sentence.len())) {
                    pairs.push((pair[0].to_owned(), pair[1].to_owned()));
                }
            }
        }
    }
    let hash = |text: &str| {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        hasher.finish()
    };
    pairs.sort_by_key(|(sentence, _)| hash(sentence));
    pairs.truncate(QUESTIONS);
    ensure!(pairs.len() == QUESTIONS, "the manual has too few sentences");
    let question = |sentence: &str| {
        let mut rare: Vec<_> = words(sentence).collect();
        rare.sort_by_key(|word| (frequencies.get(word).copied().unwrap_or_default(), word.clone()));
        rare.dedup();
        rare.truncate(WORDS);
        rare.join(" ")
    };
    Ok(pairs
        .into_iter()
        .map(|(sentence, passage)| SentencePair { question: question(&sentence), passage })
        .collect())
}
