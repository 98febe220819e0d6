//! Searches over an index in memory: what is found, in which order, and what hidden resources and authors can do to it.

use std::collections::BTreeSet;

use libris_core::{Resource, SearchAnswer, SearchQuery, Uri};
use libris_search::{IndexError, IndexedResource, SearchIndex, VisibleResources, Weights};
use proptest::prelude::{Strategy as _, prop_assert_eq, proptest};

fn uri(name: &str) -> String {
    format!("file:///docs/{name}")
}

fn resource(name: &str) -> Resource {
    Resource {
        mime: Some("text/markdown".to_owned()),
        ..Resource::new(Uri::parse(&uri(name)).unwrap(), name)
    }
}

fn index(documents: &[(&str, &str)]) -> SearchIndex {
    let resources: Vec<_> = documents.iter().map(|(name, text)| (resource(name), *text)).collect();
    index_of(&resources)
}

fn index_of(resources: &[(Resource, &str)]) -> SearchIndex {
    let index = SearchIndex::in_memory().unwrap();
    let mut updater = index.updater().unwrap().unwrap();
    for (resource, text) in resources {
        updater
            .put(&IndexedResource { resource, source: "files docs", note: None, text: Some(text), stamp: 1 })
            .unwrap();
    }
    updater.commit().unwrap();
    drop(updater);
    index
}

fn search(index: &SearchIndex, text: &str) -> SearchAnswer {
    index.search(&SearchQuery::new(text, 10), &VisibleResources::All).unwrap()
}

fn names(answer: &SearchAnswer) -> Vec<&str> {
    answer.hits.iter().map(|hit| hit.uri.trim_start_matches("file:///docs/")).collect()
}

#[test]
fn a_hit_names_the_section_and_its_lines() {
    let text = "# Guide\n\nHello.\n\n## Keys\n\nHow to rotate\nthe signing keys.\n\n## Other\n\nNothing.\n";
    let index = index(&[("guide.md", text), ("b.md", "unrelated words\n")]);
    let answer = search(&index, "rotating signing key");
    assert_eq!(names(&answer), ["guide.md"]);
    let hit = &answer.hits[0];
    let section = hit.section.as_ref().unwrap();
    assert_eq!((&*section.heading, section.first_line, section.last_line), ("Guide > Keys", 5, 9));
    let lines: Vec<_> = hit.snippet.iter().map(|line| (line.number, &*line.text)).collect();
    assert_eq!(lines, [(7, "How to rotate"), (8, "the signing keys.")]);
    let marked: Vec<_> =
        hit.snippet[1].matches.iter().map(|range| &hit.snippet[1].text[range.clone()]).collect();
    assert_eq!(marked, ["signing", "keys"]);
}

#[test]
fn misspelt_and_incomplete_words_are_found() {
    let index = index(&[("a.md", "Replication of the database"), ("b.md", "Something else")]);
    let answer = search(&index, "databsae");
    assert_eq!((names(&answer), answer.correction.as_deref()), (vec!["a.md"], Some("databas")));
    let answer = search(&index, "replic");
    assert_eq!((names(&answer), answer.correction.as_deref()), (vec!["a.md"], None));
    assert_eq!(search(&index, "zzzzzz").hits, []);
    assert_eq!(search(&index, "").hits, []);
}

#[test]
fn identifiers_are_found_by_their_parts_and_their_spellings() {
    let index = index(&[
        ("a.rs", "fn read_http_file() {}\n"),
        ("b.rs", "// reads a file, not over http\nfn other() {}\n"),
    ]);
    for text in ["readHttpFile", "read_http_file", "read-http-file", "http file"] {
        assert_eq!(names(&search(&index, text))[0], "a.rs", "{text}");
    }
}

#[test]
fn phrases_exclusions_and_filters_apply() {
    let documents = [
        ("a.md", "the exit code of a program"),
        ("b.md", "the code to exit a program"),
        ("sub/c.md", "exit code on windows"),
    ];
    let index = index(&documents);
    assert_eq!(names(&search(&index, "\"exit code\"")).len(), 2);
    assert_eq!(names(&search(&index, "\"exit code\" -windows")), ["a.md"]);
    let below = SearchQuery { uri_prefix: Some(uri("sub/")), ..SearchQuery::new("exit code", 10) };
    let answer = index.search(&below, &VisibleResources::All).unwrap();
    assert_eq!((names(&answer), answer.total), (vec!["sub/c.md"], 1));
    for (mime, count) in [("text/*", 3), ("text/markdown", 3), ("image/*", 0), ("text/mark", 0)] {
        let query = SearchQuery { mimes: vec![mime.to_owned()], ..SearchQuery::new("exit code", 10) };
        assert_eq!(index.search(&query, &VisibleResources::All).unwrap().total, count, "{mime}");
    }
    let other = SearchQuery { sources: vec!["sql shop".to_owned()], ..SearchQuery::new("exit code", 10) };
    assert_eq!(index.search(&other, &VisibleResources::All).unwrap().total, 0);
}

#[test]
fn other_languages_need_no_configuration() {
    let index = index(&[
        ("de.md", "Die Sicherung der Daten und wie man sie wiederherstellt, wenn der Server nicht läuft."),
        ("ru.md", "Как удалить файлы из индекса, если это не нужно"),
        ("ja.md", "索引からファイルを削除する方法"),
        ("en.md", "How to do something else with the server"),
    ]);
    assert_eq!(names(&search(&index, "Sicherungen"))[0], "de.md");
    assert_eq!(names(&search(&index, "удаление файлов"))[0], "ru.md");
    assert_eq!(names(&search(&index, "ファイル 削除"))[0], "ja.md");
}

#[test]
fn near_duplicates_are_folded() {
    let words: Vec<_> = (0..300).map(|number| format!("word{number}")).collect();
    let text = words.join(" ");
    let copy = text.replace("word250 ", "changed ");
    let index = index(&[("a.md", &text), ("b.md", &copy), ("c.md", "word1 only")]);
    let answer = search(&index, "word1 word2");
    assert_eq!(names(&answer), ["a.md", "c.md"]);
    assert_eq!((answer.hits[0].duplicates.clone(), answer.total), (vec![uri("b.md")], 3));
}

#[test]
fn updates_replace_and_remove() {
    let index = index(&[("a.md", "alpha"), ("b.md", "alpha")]);
    let mut updater = index.updater().unwrap().unwrap();
    let changed = resource("a.md");
    updater
        .put(&IndexedResource {
            resource: &changed,
            source: "files docs",
            note: Some("why"),
            text: Some("beta"),
            stamp: 2,
        })
        .unwrap();
    updater.remove(&uri("b.md"));
    updater.commit().unwrap();
    assert_eq!(search(&index, "alpha").hits, []);
    let answer = search(&index, "beta");
    assert_eq!((names(&answer), answer.hits[0].note.as_deref()), (vec!["a.md"], Some("why")));
    assert_eq!(index.len().unwrap(), 1);
    assert_eq!(index.stamps().unwrap().into_values().collect::<Vec<_>>(), [2]);
    assert!(index.updater().unwrap().is_none(), "there is one updater at a time");
}

/// Repeating a word, forging headings and claiming importance move a score by no more than `docs/search.md` states.
#[test]
fn authors_can_lift_their_resources_only_within_bounds() {
    let honest =
        "The retention of backups is thirty days. ".to_owned() + &"Other words follow here. ".repeat(20);
    let stuffed = "retention ".repeat(2000);
    let forged: String = (0..2000).map(|number| format!("# retention {number}\n")).collect();
    let filler: Vec<_> = (0..30)
        .map(|number| (format!("{number}.md"), format!("filler text {number} about nothing")))
        .collect();
    let mut resources: Vec<_> = filler.iter().map(|(name, text)| (resource(name), &**text)).collect();
    resources.extend([
        (resource("honest.md"), &*honest),
        (resource("stuffed.md"), &stuffed),
        (resource("forged.md"), &forged),
    ]);
    let index = index_of(&resources);
    let answer = search(&index, "retention");
    let score = |name: &str| answer.hits.iter().find(|hit| hit.uri == uri(name)).unwrap().score;
    let Weights { saturation, section_saturation, .. } = Weights::default();
    let bound = (saturation + 1.0).max(section_saturation + 1.0) * 1.5;
    for name in ["stuffed.md", "forged.md"] {
        assert!(
            score(name) <= bound * score("honest.md"),
            "{name}: {} > {bound} * {}",
            score(name),
            score("honest.md")
        );
    }
}

#[test]
fn priority_moves_a_score_by_no_more_than_its_bound() {
    let text = "The retention of backups";
    let mut important = resource("important.md");
    important.annotations.priority = Some(1.0);
    let mut optional = resource("optional.md");
    optional.annotations.priority = Some(0.0);
    let index = index_of(&[(important, text), (optional, text), (resource("plain.md"), text)]);
    let answer = search(&index, "retention");
    let score = |name: &str| answer.hits.iter().find(|hit| hit.uri == uri(name)).unwrap().score;
    let bias = Weights::default().bias;
    assert!(score("important.md") > score("plain.md") && score("plain.md") > score("optional.md"));
    assert!(score("important.md") <= score("plain.md") * (1.0 + bias));
    assert!(score("optional.md") >= score("plain.md") * (1.0 - bias));
}

const VOCABULARY: [&str; 12] = [
    "backup",
    "server",
    "keys",
    "rotate",
    "index",
    "search",
    "replica",
    "readFile",
    "config",
    "retention",
    "backups",
    "zebra",
];

fn texts() -> impl proptest::strategy::Strategy<Value = Vec<(Vec<usize>, bool)>> {
    let words = proptest::collection::vec(0..VOCABULARY.len(), 1..12);
    proptest::collection::vec((words, proptest::bool::ANY), 1..12)
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 24, ..Default::default() })]

    /// The answer to a caller who may not see some resources is that of an index without them: the same hits, scores,
    /// snippets, counts and corrections.
    #[test]
    fn hidden_resources_have_no_influence(
        documents in texts(),
        query in proptest::collection::vec(0..VOCABULARY.len(), 1..4).prop_map(|words| {
            words.into_iter().map(|word| VOCABULARY[word]).collect::<Vec<_>>().join(" ")
        }),
        typo in proptest::bool::ANY,
    ) {
        let query = if typo { query.replacen('e', "ee", 1) } else { query };
        let all: Vec<_> = documents.iter().enumerate().map(|(number, (words, _))| {
            let text = words.iter().map(|word| VOCABULARY[*word]).collect::<Vec<_>>().join(" ");
            (resource(&format!("{number}.md")), text)
        }).collect();
        let visible: BTreeSet<String> = all.iter().zip(&documents)
            .filter(|(_, (_, is_visible))| *is_visible)
            .map(|((resource, _), _)| resource.uri.as_str().to_owned())
            .collect();
        let borrowed: Vec<_> = all.iter().map(|(resource, text)| (resource.clone(), &**text)).collect();
        let only: Vec<_> = borrowed.iter().filter(|(resource, _)| visible.contains(resource.uri.as_str())).cloned().collect();
        let sees = |uri: &str| visible.contains(uri);
        let query = SearchQuery::new(query, 10);
        let hiding = index_of(&borrowed).search(&query, &VisibleResources::Class { class: 7, sees: &sees }).unwrap();
        let without = index_of(&only).search(&query, &VisibleResources::All).unwrap();
        prop_assert_eq!(hiding, without);
    }
}

#[test]
fn a_damaged_index_is_an_error_and_not_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let fill = || {
        let index = SearchIndex::open(&path).unwrap();
        let mut updater = index.updater().unwrap().unwrap();
        for number in 0..20 {
            let resource = resource(&format!("{number}.md"));
            let text = format!("text {number} about retention");
            updater
                .put(&IndexedResource {
                    resource: &resource,
                    source: "s",
                    note: None,
                    text: Some(&text),
                    stamp: 1,
                })
                .unwrap();
        }
        updater.commit().unwrap();
    };
    fill();
    assert_eq!(search(&SearchIndex::open(&path).unwrap(), "retention").total, 20);
    let files: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
    for file in files {
        let length = std::fs::metadata(&file).unwrap().len();
        if length == 0 {
            continue;
        }
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, &whole[..length as usize / 2]).unwrap();
        let used = std::panic::catch_unwind(|| -> Result<usize, IndexError> {
            let index = SearchIndex::open(&path)?;
            index.verify()?;
            index.stamps()?;
            index
                .search(&SearchQuery::new("retention", 10), &VisibleResources::All)
                .map(|answer| answer.total)
        });
        // Either the file is not needed, or the damage is noticed.
        match used {
            Ok(Ok(total)) => assert_eq!(total, 20, "{file:?}"),
            Ok(Err(error)) => {
                assert!(matches!(error, IndexError::Damaged(_) | IndexError::Unwritable(_)), "{file:?}")
            }
            Err(_) => panic!("{file:?} makes opening or searching panic"),
        }
        std::fs::write(&file, whole).unwrap();
    }
}
