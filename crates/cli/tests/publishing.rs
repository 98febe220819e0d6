//! Every crate can be published: its manifest says what a reader of the registry needs, and no cycle prevents it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toml::Table;

/// The manifests of the crates that are published, by their folders.
fn manifests() -> BTreeMap<PathBuf, Table> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path());
    let manifests = folders.filter(|folder| folder.join("Cargo.toml").exists()).map(|folder| {
        let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        (folder, text.parse().unwrap())
    });
    manifests.collect()
}

fn name(manifest: &Table) -> &str {
    manifest["package"]["name"].as_str().unwrap()
}

#[test]
fn manifests_say_what_the_registry_shows() {
    let manifests = manifests();
    assert!(manifests.len() > 10, "only {} crates", manifests.len());
    for (folder, manifest) in &manifests {
        let (package, name) = (manifest["package"].as_table().unwrap(), name(manifest));
        for key in ["version", "edition", "rust-version", "license"] {
            assert_eq!(package[key].get("workspace"), Some(&true.into()), "{name}: `{key}`");
        }
        assert!(
            package["description"].as_str().unwrap().ends_with('.'),
            "{name}: the description is a sentence"
        );
        assert_eq!(package["documentation"].as_str(), Some(&*format!("https://docs.rs/{name}")), "{name}");
        // The registry refuses more.
        for key in ["keywords", "categories"] {
            let count = package[key].as_array().unwrap().len();
            assert!((1..=5).contains(&count), "{name}: {count} {key}");
        }
        for keyword in package["keywords"].as_array().unwrap() {
            assert!(keyword.as_str().unwrap().len() <= 20, "{name}: {keyword}");
        }
        let readme = std::fs::read_to_string(folder.join(package["readme"].as_str().unwrap())).unwrap();
        let title = if name == "libris-cli" { "# Libris\n" } else { &*format!("# {name}\n") };
        assert!(readme.starts_with(title), "{name}: {readme}");
        assert!(readme.contains("Licensed under MIT or Apache-2.0"), "{name}");
        // Features that are off by default would otherwise have no documentation.
        let documented = package.get("metadata").and_then(|metadata| metadata.get("docs.rs"));
        let all = documented.and_then(|settings| settings.get("all-features")).and_then(toml::Value::as_bool);
        assert!(all.unwrap_or(name == "libris-cli"), "{name}");
    }
}

/// The crates of ours that the registry must have before a crate can be published: also those of its tests, unless they
/// are named without a version.
fn required(manifest: &Table, ours: &BTreeSet<String>) -> BTreeSet<String> {
    let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
    let dependencies = tables.iter().filter_map(|table| manifest.get(*table)?.as_table()).flatten();
    let versioned = dependencies
        .filter(|(_, options)| options.get("workspace").is_some() || options.get("version").is_some());
    versioned.map(|(name, _)| name.clone()).filter(|name| ours.contains(name)).collect()
}

#[test]
fn crates_can_be_published_one_after_the_other() {
    let manifests: BTreeMap<_, _> =
        manifests().into_values().map(|manifest| (name(&manifest).to_owned(), manifest)).collect();
    let ours: BTreeSet<_> = manifests.keys().cloned().collect();
    let mut published = BTreeSet::new();
    while published != ours {
        let next = manifests.iter().find(|(name, manifest)| {
            !published.contains(*name) && required(manifest, &ours).is_subset(&published)
        });
        let rest: Vec<_> = ours.difference(&published).collect();
        let (name, _) = next.unwrap_or_else(|| {
            panic!(
                "{rest:?} need each other; hint: name a dependency of tests by its path, without a version"
            )
        });
        published.insert(name.clone());
    }
}
