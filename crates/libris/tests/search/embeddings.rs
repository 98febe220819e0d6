//! Static embeddings through a view, and a model that cannot be used.

use libris::SearchConfig;

use super::{files, folder, indexed, search, status, uris, view};

#[path = "../../../search/tests/model/mod.rs"]
mod model;

#[tokio::test(flavor = "multi_thread")]
async fn a_synonym_is_found_with_the_model() {
    let folder = folder(&[("a.md", "the automobile"), ("b.md", "prepare a meal")]);
    let path = folder.path().join("model");
    model::write(&path, model::TOKENS);
    let cache = tempfile::tempdir().unwrap();
    let plain = SearchConfig { folder: Some(cache.path().join("index")), ..SearchConfig::default() };
    let catalog = indexed(vec![files(&folder)], plain.clone()).await;
    assert_eq!(search(&view(&catalog), "car").await.total, 0);
    drop(catalog);
    // The index that was built without the model gets its vectors.
    let config = SearchConfig { model: Some(path.clone()), ..plain };
    let catalog = indexed(vec![files(&folder)], config).await;
    assert_eq!(uris(&search(&view(&catalog), "car").await), ["file:///docs/a.md"]);
    assert!(!status(&catalog).await.contains("model"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_usable_model_words_are_found_and_the_status_says_so() {
    let folder = folder(&[("a.md", "the automobile"), ("b.md", "prepare a meal")]);
    let (missing, damaged) = (folder.path().join("missing"), folder.path().join("damaged"));
    // Not even the tokens of the texts have vectors.
    model::write(&damaged, 1);
    for path in [missing, damaged] {
        let config = SearchConfig { model: Some(path.clone()), ..SearchConfig::default() };
        let catalog = indexed(vec![files(&folder)], config).await;
        assert_eq!(uris(&search(&view(&catalog), "automobile").await), ["file:///docs/a.md"]);
        let status = status(&catalog).await;
        assert!(
            status.contains("the embedding model cannot be used, so only words are compared"),
            "{status}"
        );
        assert!(!status.contains(path.to_str().unwrap()), "{status}");
    }
}
