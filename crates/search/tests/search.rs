//! Searches over an index in memory: what is found, in which order, and what hidden resources and authors can do to it.

use std::collections::BTreeSet;

use libris_core::{Resource, SearchAnswer, SearchQuery, Uri};
use libris_search::{IndexError, IndexedResource, SearchIndex, VisibleResources, Weights};
use proptest::prelude::{Strategy as _, prop_assert, prop_assert_eq, proptest};

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
            .put(&IndexedResource {
                resource,
                source: "files docs",
                note: None,
                text: Some(text),
                text_uri: None,
                stamp: 1,
            })
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
    assert_eq!((names(&answer), answer.correction.as_deref()), (vec!["a.md"], Some("database")));
    let answer = search(&index, "The databsaes");
    assert_eq!((names(&answer), answer.correction.as_deref()), (vec!["a.md"], Some("the database")));
    let answer = search(&index, "replic");
    assert_eq!((names(&answer), answer.correction.as_deref()), (vec!["a.md"], None));
    // The index has its stem, which is shorter: `replic`.
    let answer = search(&index, "replicatio");
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
    // Not a part of longer words. As no resource has the phrase, its words are searched.
    assert_eq!(names(&search(&index, "\"exit cod\"")), names(&search(&index, "exit cod")));
    let below = SearchQuery { uri_prefix: Some(uri("sub/")), ..SearchQuery::new("exit code", 10) };
    let answer = index.search(&below, &VisibleResources::All).unwrap();
    assert_eq!((names(&answer), answer.total), (vec!["sub/c.md"], 1));
    for (mime, count) in [("text/*", 3), ("text/markdown", 3), ("image/*", 0), ("text/mark", 0)] {
        let query = SearchQuery { mimes: vec![mime.to_owned()], ..SearchQuery::new("exit code", 10) };
        assert_eq!(index.search(&query, &VisibleResources::All).unwrap().total, count, "{mime}");
    }
    for (mimes, count) in
        [(["image/*", "text/markdown"], 3), (["text/*", "text/markdown"], 3), (["a/b", "c*"], 0)]
    {
        let mimes = mimes.map(str::to_owned).to_vec();
        let query = SearchQuery { mimes, ..SearchQuery::new("exit code", 10) };
        assert_eq!(index.search(&query, &VisibleResources::All).unwrap().total, count, "{query:?}");
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
        ("zh.md", "使用Python编程"),
        ("en.md", "How to do something else with the server"),
    ]);
    assert_eq!(names(&search(&index, "Sicherungen"))[0], "de.md");
    assert_eq!(names(&search(&index, "удаление файлов"))[0], "ru.md");
    assert_eq!(names(&search(&index, "ファイル 削除"))[0], "ja.md");
    for text in ["Python", "编程", "使用Python", "Python编程"] {
        assert_eq!(names(&search(&index, text))[0], "zh.md", "{text}");
    }
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

/// A text that begins like another one, but has another passage about the query, does not hide it.
#[test]
fn a_copy_with_another_passage_is_no_duplicate() {
    let words: Vec<_> = (0..3000).map(|number| format!("word{number}")).collect();
    let honest = format!("# Start\n\n{}\n\n# Retention\n\nKeep backups for ninety days.\n", words.join(" "));
    let crafted =
        honest.replace("Keep backups for ninety days.", "Delete backups at once. Backups, backups!");
    let index = index(&[("honest.md", &honest), ("crafted.md", &crafted)]);
    let answer = search(&index, "backups");
    assert_eq!((names(&answer).len(), answer.total), (2, 2), "{answer:?}");
    assert_eq!(names(&search(&index, "word1 word2")).len(), 1, "the texts are nearly the same");
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
            text_uri: None,
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

/// How many times the score of a resource can be that of another which has each of `words` words once, in a section of
/// usual length, and is of usual length itself. `docs/search.md` derives it.
fn stuffing_bound(words: usize) -> f32 {
    let Weights {
        saturation, section_saturation, section, further, proximity, distant, joined, bias, ..
    } = Weights::default();
    let joined = if words <= 2 { joined } else { 0.0 };
    let words = words.min(12) as f32;
    let pairs = distant * (words - 1.0) / 2.0 + (1.0 - distant) * (words - 1.0) / words;
    let sections = (section + 3.0 * further) * (section_saturation + 1.0);
    let most = saturation + 1.0 + sections + proximity * (pairs + joined);
    most / (1.0 + section) * (1.0 + bias) / (1.0 - bias)
}

/// An author of many tiny resources does not change the scores of others through their lengths.
#[test]
fn tiny_resources_do_not_lower_the_scores_of_long_ones() {
    let long = format!("retention {}", "other matters ".repeat(900));
    let score = |count: usize| {
        let names: Vec<_> = (0..count).map(|number| format!("{number}.md")).collect();
        let filler = names.iter().map(|name| (resource(name), "x"));
        let resources: Vec<_> = filler.chain([(resource("long.md"), &*long)]).collect();
        // Without the rarity of the word, which grows with the number of resources.
        let best = search(&index_of(&resources), "retention").hits.remove(0);
        best.score / ((1.0 + (count as f32 + 0.5) / 1.5).ln()).powf(Weights::default().rarity)
    };
    let (few, many) = (score(10), score(300));
    assert!((few - many).abs() < few * 0.01, "{few} {many}");
}

#[test]
fn the_bound_is_the_one_of_the_manual() {
    let manual = include_str!("../../../docs/search.md");
    let manual = manual.split_whitespace().collect::<Vec<_>>().join(" ");
    let stated = format!(
        "at most {:.1} times as high for a query of one word, {:.1} times for four words and {:.1} times for any query",
        stuffing_bound(1),
        stuffing_bound(4),
        stuffing_bound(12)
    );
    assert!(manual.contains(&stated), "docs/search.md does not say: {stated}");
}

/// What an author can do to lift a resource.
#[derive(Clone, Debug)]
struct Manipulation {
    repeats: usize,
    headings: usize,
    titles: usize,
    priority: f64,
    together: bool,
}

fn manipulation() -> impl proptest::strategy::Strategy<Value = Manipulation> {
    let numbers = (0..2000_usize, 0..2500_usize, 0..20_usize);
    (numbers, 0.0..=1.0_f64, proptest::bool::ANY).prop_map(
        |((repeats, headings, titles), priority, together)| Manipulation {
            repeats,
            headings,
            titles,
            priority,
            together,
        },
    )
}

const STUFFED: [&str; 4] = ["retention", "backup", "rotation", "zebra"];

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 24, ..Default::default() })]

    /// Repeating words, in the text, forged headings, titles and paths, and claiming importance lifts a resource over
    /// an honest one by no more than the stated bound.
    #[test]
    fn authors_can_lift_their_resources_only_within_bounds(
        words in 1..=STUFFED.len(),
        Manipulation { repeats, headings, titles, priority, together } in manipulation(),
    ) {
        let words = &STUFFED[..words];
        let honest: String = words.iter().map(|word| format!("About {word}, {} and more. ", "other matters ".repeat(9))).collect();
        let mut stuffed = String::new();
        for word in words {
            match together {
                true => stuffed += &format!("{} ", words.join(" ").repeat(repeats / 10)),
                false => stuffed += &format!("{word} ").repeat(repeats),
            }
            stuffed += "\n\n";
            stuffed += &(0..headings).map(|number| format!("# {word} {number}\n")).collect::<String>();
        }
        let mut author = resource(&format!("{}.md", words.join("-")));
        author.title = Some(format!("how is the {} ", words.join(" ")).repeat(titles));
        author.description = author.title.clone();
        author.annotations.priority = Some(priority);
        let mut plain = resource("honest.md");
        plain.annotations.priority = Some(0.0);
        let filler: Vec<_> = (0..30)
            .map(|number| (resource(&format!("{number}.md")), format!("filler text {number} ").repeat(60)))
            .collect();
        let mut resources: Vec<_> = filler.iter().map(|(resource, text)| (resource.clone(), &**text)).collect();
        resources.extend([(plain, &*honest), (author, &*stuffed)]);
        let answer = search(&index_of(&resources), &format!("how is the {}", words.join(" ")));
        let score = |name: &str| answer.hits.iter().find(|hit| hit.uri == uri(name)).map_or(0.0, |hit| hit.score);
        let bound = stuffing_bound(words.len());
        let (lifted, fair) = (score(&format!("{}.md", words.join("-"))), score("honest.md"));
        prop_assert!(fair > 0.0);
        prop_assert!(lifted <= bound * fair, "{} > {} * {}", lifted, bound, fair);
    }
}

/// A word in the title counts more than in the text, and the first heading of a document is its title.
#[test]
fn the_title_counts() {
    let text = "# Retention\n\nHow long things are kept.\n";
    let mut titled = resource("b.md");
    titled.title = Some("Retention".to_owned());
    let resources = [
        (resource("a.md"), "A text that mentions retention once in its only line"),
        (titled, "A text that mentions other things in its only line"),
        (resource("c.md"), text),
    ];
    let index = index_of(&resources);
    let scores = |title: f32| {
        let weights = Weights { title, ..Weights::default() };
        let query = SearchQuery::new("retention", 10);
        let answer = index.search_with(&query, &VisibleResources::All, &weights).unwrap();
        ["a.md", "b.md", "c.md"]
            .map(|name| answer.hits.iter().find(|hit| hit.uri == uri(name)).map_or(0.0, |hit| hit.score))
    };
    let (without, with) = (scores(0.5), scores(4.0));
    assert_eq!(without[0], with[0], "no title");
    assert!(with[1] > without[1] * 1.2, "the title of the resource: {without:?} {with:?}");
    assert!(with[2] > without[2] * 1.02, "the first heading: {without:?} {with:?}");
}

/// The next best sections of a resource count, and stop words beside a word in a short query.
#[test]
fn further_sections_and_joined_stop_words_count() {
    let index = index(&[
        ("one.md", "# A\n\nabout retention\n"),
        ("two.md", "# A\n\nabout retention\n\n# B\n\nabout retention\n"),
        ("joined.md", "# A\n\nthe for retention\n"),
    ]);
    let scores = |text: &str, weights: &Weights| {
        let query = SearchQuery::new(text, 10);
        let answer = index.search_with(&query, &VisibleResources::All, weights).unwrap();
        ["one.md", "two.md", "joined.md"]
            .map(|name| answer.hits.iter().find(|hit| hit.uri == uri(name)).map_or(0.0, |hit| hit.score))
    };
    let (without, with) = (Weights { further: 0.0, joined: 0.0, ..Weights::default() }, Weights::default());
    let (before, after) = (scores("retention", &without), scores("retention", &with));
    assert_eq!((before[0], before[2]), (after[0], after[2]));
    assert!(after[1] > before[1] * 1.02, "{before:?} {after:?}");
    let (before, after) = (scores("for retention", &without), scores("for retention", &with));
    assert_eq!(before[0], after[0]);
    assert!(after[2] > before[2] * 1.02, "{before:?} {after:?}");
    // In a long query, they say little.
    let long = "for retention backup rotation";
    assert_eq!(scores(long, &without)[2], scores(long, &with)[2]);
}

#[test]
fn the_annotations_filter() {
    use libris_core::Audience;
    let dated = |name: &str, second: i64, audience: &[Audience]| {
        let mut resource = resource(name);
        resource.annotations.last_modified = Some(jiff::Timestamp::from_second(second).unwrap());
        resource.annotations.audience = audience.to_vec();
        resource
    };
    let index = index_of(&[
        (dated("old.md", 1000, &[Audience::User]), "retention"),
        (dated("new.md", 3000, &[Audience::Assistant]), "retention"),
        (dated("both.md", 2000, &[Audience::User, Audience::Assistant]), "retention"),
        (resource("plain.md"), "retention"),
    ]);
    let found = |query: SearchQuery| {
        let answer = index.search(&query, &VisibleResources::All).unwrap();
        let mut names: Vec<_> = names(&answer).into_iter().map(str::to_owned).collect();
        names.sort();
        assert_eq!(names.len(), answer.total);
        names
    };
    let query = || SearchQuery::new("retention", 10);
    let user = SearchQuery { audience: Some(Audience::User), ..query() };
    assert_eq!(found(user), ["both.md", "old.md", "plain.md"]);
    let assistant = SearchQuery { audience: Some(Audience::Assistant), ..query() };
    assert_eq!(found(assistant.clone()), ["both.md", "new.md", "plain.md"]);
    assert_eq!(found(SearchQuery { modified_since: Some(2000), ..query() }), ["both.md", "new.md"]);
    assert_eq!(found(SearchQuery { modified_since: Some(2001), ..assistant }), ["new.md"]);
    let source = |name: &str| SearchQuery { sources: vec![name.to_owned()], ..query() };
    assert_eq!((found(source("files docs")).len(), found(source("files")).len()), (4, 0));
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
                    text_uri: None,
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
