//! Searches with an embedding model: what is found by its meaning, and what happens with a model that cannot be used.

mod model;

use std::sync::Arc;

use libris_core::{Resource, SearchAnswer, SearchQuery, Uri};
use libris_search::{EmbeddingModel, IndexedResource, ModelError, SearchIndex, VisibleResources};
use proptest::prelude::{prop_assert_eq, proptest};

fn opened(rows: usize) -> Arc<EmbeddingModel> {
    let folder = tempfile::tempdir().unwrap();
    model::write(folder.path(), rows);
    Arc::new(EmbeddingModel::open(folder.path()).unwrap())
}

/// An index of texts at the URIs `note:NAME`.
fn index(texts: &[(String, String)], model: Option<Arc<EmbeddingModel>>) -> SearchIndex {
    let index = SearchIndex::in_memory().unwrap().with_model(model);
    let mut updater = index.updater().unwrap().unwrap();
    for (name, text) in texts {
        let resource = Resource::new(Uri::parse(&format!("note:{name}")).unwrap(), "note");
        let indexed = IndexedResource {
            resource: &resource,
            source: "notes",
            note: None,
            text: Some(text),
            text_uri: None,
            stamp: 1,
        };
        updater.add(&indexed).unwrap();
    }
    updater.commit().unwrap();
    drop(updater);
    index
}

fn texts(texts: &[(&str, &str)]) -> Vec<(String, String)> {
    texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn search(index: &SearchIndex, query: &str) -> SearchAnswer {
    index.search(&SearchQuery::new(query, 10), &VisibleResources::All).unwrap()
}

fn uris(answer: &SearchAnswer) -> Vec<&str> {
    answer.hits.iter().map(|hit| &*hit.uri).collect()
}

#[test]
fn a_synonym_is_found() {
    let texts = texts(&[
        ("auto", "# First\n\ncook the meal\n\n# Second\n\nthe automobile\n"),
        ("meal", "prepare a meal"),
        ("copy", "a copy of the backup"),
    ]);
    assert_eq!(search(&index(&texts, None), "car").total, 0, "the word alone finds nothing");
    let index = index(&texts, Some(opened(model::TOKENS)));
    let answer = search(&index, "car");
    assert_eq!((uris(&answer), answer.total), (vec!["note:auto"], 1));
    let section = answer.hits[0].section.as_ref().unwrap();
    assert_eq!((&*section.heading, section.first_line, section.last_line), ("Second", 5, 7));
    assert_eq!(answer.hits[0].snippet[0].text, "# Second");
    // A text with the word comes before one with a synonym.
    assert_eq!(uris(&search(&index, "prepare"))[..2], ["note:meal", "note:auto"]);
    // Excluded words, phrases and unknown words are no matter of meaning.
    for query in ["car -automobile", "\"car\"", "zebra"] {
        assert_eq!(search(&index, query).total, 0, "{query}");
    }
}

/// Hidden resources that are more similar do not displace others.
#[test]
fn hidden_resources_do_not_take_the_places_of_visible_ones() {
    let hidden = (0..300).map(|number| (format!("hidden-{number}"), "vehicle vehicle".to_owned()));
    let visible = [("visible".to_owned(), "the automobile of a".to_owned())];
    let model = opened(model::TOKENS);
    let all = index(&hidden.chain(visible.clone()).collect::<Vec<_>>(), Some(model.clone()));
    let sees = |uri: &str| uri == "note:visible";
    let query = SearchQuery::new("car", 10);
    let answer = all.search(&query, &VisibleResources::Class { class: 1, sees: &sees }).unwrap();
    assert_eq!(uris(&answer), ["note:visible"]);
    assert_eq!(answer, search(&index(&visible, Some(model)), "car"));
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 24, ..Default::default() })]

    /// The answer to a caller who may not see some resources is that of an index without them.
    #[test]
    fn hidden_resources_have_no_influence(
        documents in proptest::collection::vec(
            (proptest::collection::vec(0..model::MEANINGS.len(), 1..8), proptest::bool::ANY),
            1..12,
        ),
        query in proptest::collection::vec(0..model::MEANINGS.len(), 1..4),
    ) {
        let text = |words: &[usize]| {
            words.iter().map(|word| model::MEANINGS[*word].0).collect::<Vec<_>>().join(" ")
        };
        let all: Vec<_> = documents
            .iter()
            .enumerate()
            .map(|(number, (words, _))| (number.to_string(), text(words)))
            .collect();
        let is_visible = |number: usize| documents[number].1;
        let only: Vec<_> = all.iter().enumerate().filter(|(at, _)| is_visible(*at)).map(|(_, note)| note.clone()).collect();
        let sees = |uri: &str| is_visible(uri.trim_start_matches("note:").parse().unwrap());
        let model = opened(model::TOKENS);
        let hiding = index(&all, Some(model.clone()));
        let query = SearchQuery::new(text(&query), 10);
        let hidden = hiding.search(&query, &VisibleResources::Class { class: 1, sees: &sees }).unwrap();
        let without = index(&only, Some(model)).search(&query, &VisibleResources::All).unwrap();
        prop_assert_eq!(hidden, without);
    }
}

#[test]
fn a_model_that_cannot_be_read_is_an_error_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let open = || EmbeddingModel::open(folder.path()).err().unwrap();
    let error = open();
    assert!(matches!(error, ModelError::Unreadable { file: "tokenizer.json", .. }), "{error}");
    assert!(error.to_string().contains("hint: set `search.model` to a folder"), "{error}");
    for file in ["tokenizer.json", "model.safetensors", "config.json"] {
        model::write(folder.path(), model::TOKENS);
        let path = folder.path().join(file);
        let data = std::fs::read(&path).unwrap();
        std::fs::write(&path, &data[..data.len() / 2]).unwrap();
        let error = open();
        assert!(matches!(error, ModelError::Damaged(_)), "{file}: {error}");
        assert!(error.to_string().contains("hint: copy its files again"), "{error}");
    }
}

/// A model whose tokenizer has more tokens than there are vectors fails when such a token is used.
#[test]
fn a_model_that_fails_later_is_not_used_any_more() {
    let model = opened(3);
    let texts = texts(&[("a", "the automobile"), ("b", "a copy of the backup")]);
    let index = index(&texts, Some(model.clone()));
    assert!(model.has_failed() && index.has_failed_model());
    assert_eq!(uris(&search(&index, "backup")), ["note:b"]);
    assert_eq!(search(&index, "car").total, 0);
}

/// The vectors and the model count in the limit of an index in memory.
#[test]
fn the_memory_includes_the_vectors() {
    let text: String = (0..500).map(|number| format!("# Heading {number}\n\n")).collect();
    let texts = [("many".to_owned(), text)];
    let model = opened(model::TOKENS);
    let memory = |model: Option<Arc<EmbeddingModel>>| {
        let index = SearchIndex::in_memory().unwrap().with_model(model);
        let before = index.memory().unwrap();
        let updater = index.updater().unwrap().unwrap();
        let resource = Resource::new(Uri::parse("note:many.md").unwrap(), "many.md");
        let text = Some(&*texts[0].1);
        let indexed = IndexedResource {
            resource: &resource,
            source: "notes",
            note: None,
            text,
            text_uri: None,
            stamp: 1,
        };
        updater.add(&indexed).unwrap();
        (before, index.memory().unwrap() - before)
    };
    let (without, with) = (memory(None), memory(Some(model.clone())));
    assert_eq!((without.0, with.0), (0, model.memory()));
    assert_eq!(with.1, without.1 + 500 * 32);
}

/// The index in a folder has the vectors, and another model is noticed by its fingerprint.
#[test]
fn the_vectors_are_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let model = opened(model::TOKENS);
    let resource = Resource::new(Uri::parse("note:auto").unwrap(), "note");
    let indexed = IndexedResource {
        resource: &resource,
        source: "notes",
        note: None,
        text: Some("the automobile"),
        text_uri: None,
        stamp: 1,
    };
    let open = || SearchIndex::open(folder.path()).unwrap().with_model(Some(model.clone()));
    let index = open();
    let mut updater = index.updater().unwrap().unwrap();
    updater.add(&indexed).unwrap();
    updater.commit().unwrap();
    updater.finish().unwrap();
    drop(index);
    assert_eq!(uris(&search(&open(), "car")), ["note:auto"]);
    assert_ne!(opened(model::TOKENS - 1).fingerprint(), model.fingerprint());
    assert_eq!(opened(model::TOKENS).fingerprint(), open().model_fingerprint());
}
