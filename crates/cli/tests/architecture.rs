//! Checks `docs/architecture.md` against the code: the names in it exist, and crates depend on what its table says. Also
//! checks that no two types of the workspace have the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|cause| panic!("`{path}`: {cause}"))
}

/// The code spans of a page, without those of fenced blocks.
fn code_spans(page: &str) -> Vec<&str> {
    let prose = page.split("```").step_by(2);
    prose.flat_map(|text| text.split('`').skip(1).step_by(2)).collect()
}

/// Whether a Rust file defines an item of this name.
fn defines(code: &str, name: &str) -> bool {
    ["fn", "struct", "trait", "enum"].iter().any(|keyword| {
        let item = format!("{keyword} {name}");
        code.match_indices(&item).any(|(at, _)| {
            let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
            !code[..at].ends_with(is_part) && !code[at + item.len()..].starts_with(is_part)
        })
    })
}

#[test]
fn every_step_names_an_item_that_exists() {
    let page = read("docs/architecture.md");
    let steps: Vec<_> = code_spans(&page).into_iter().filter_map(|span| span.split_once(".rs:")).collect();
    assert!(steps.len() >= 50, "only {} steps were found", steps.len());
    for (file, name) in steps {
        let (path, name) = (format!("{file}.rs"), name.trim());
        assert!(
            defines(&read(&path), name),
            "`{path}` defines no `{name}`; hint: correct docs/architecture.md"
        );
    }
}

#[test]
fn an_item_is_found_by_its_whole_name() {
    let code =
        "pub(crate) async fn list_now(&self) {}\npub struct Page<T>(T);\n// a reading fn\nlet fns = 1;";
    assert!(defines(code, "list_now") && defines(code, "Page"));
    assert!(
        !defines(code, "list") && !defines(code, "Pag") && !defines(code, "now") && !defines(code, "fns")
    );
}

/// What the table of crates allows: the name of each crate with those that it depends on.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = read("docs/architecture.md");
    let (_, table) = page.split_once("| crate | depends on |").expect("the table of crates");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let mut cells = row.split('|').skip(1).map(|cell| code_spans(cell).into_iter().map(str::to_owned));
        let name = cells.next().and_then(|mut names| names.next()).expect("the name of a crate");
        (name, cells.next().expect("its dependencies").collect())
    })
    .collect()
}

/// The manifests of the workspace by the names of their packages.
fn manifests() -> BTreeMap<String, toml::Table> {
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let folders = crates.map(|entry| format!("crates/{}", entry.unwrap().file_name().to_string_lossy()));
    let manifests = folders.chain(["bench".to_owned(), "examples/compare".to_owned()]).map(|folder| {
        let manifest: toml::Table = read(&format!("{folder}/Cargo.toml")).parse().unwrap();
        (manifest["package"]["name"].as_str().unwrap().to_owned(), manifest)
    });
    manifests.collect()
}

/// The packages that a manifest depends on, except for tests: also on some platforms only, and under other names.
fn dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    let table =
        |value: Option<&toml::Value>| value.and_then(toml::Value::as_table).cloned().unwrap_or_default();
    let of = |owner: &toml::Table| {
        let kinds = ["dependencies", "build-dependencies"];
        kinds.iter().flat_map(|kind| table(owner.get(*kind))).collect::<Vec<_>>()
    };
    let platforms = table(manifest.get("target"));
    let platforms = platforms.values().flat_map(|platform| of(&table(Some(platform)))).collect::<Vec<_>>();
    let all = of(manifest).into_iter().chain(platforms);
    all.map(|(name, options)| {
        options.get("package").and_then(toml::Value::as_str).map_or(name, str::to_owned)
    })
    .collect()
}

#[test]
fn crates_depend_on_what_the_table_says() {
    let (documented, manifests) = (documented(), manifests());
    let ours: BTreeSet<String> = manifests.keys().cloned().collect();
    let tools = ["bench", "compare"];
    let actual: BTreeMap<String, BTreeSet<String>> = manifests
        .iter()
        .filter(|(name, _)| !tools.contains(&name.as_str()))
        .map(|(name, manifest)| (name.clone(), dependencies(manifest).intersection(&ours).cloned().collect()))
        .collect();
    assert_eq!(actual, documented, "hint: the second is what the table in docs/architecture.md says");
}

#[test]
fn dependencies_are_found_wherever_they_stand() {
    let manifest = r#"
        [dependencies]
        a.workspace = true
        renamed = { package = "b", version = "1" }
        [build-dependencies]
        c = "1"
        [dev-dependencies]
        test = "1"
        [target.'cfg(unix)'.dependencies]
        d = "1"
    "#;
    let found = dependencies(&manifest.parse().unwrap());
    assert_eq!(found, ["a", "b", "c", "d"].map(str::to_owned).into());
}

/// Names that several types may have: `Config` is the configuration of its module, and the others have one implementation
/// for each platform, or one with and one without a feature.
const SHARED_NAMES: [&str; 8] = [
    "Config",
    "EventSource",
    "GenerationTracker",
    "GroupedChild",
    "OutputStream",
    "SecuredConnection",
    "TlsServer",
    "WakeHandle",
];

/// The names of the types that Rust code defines: structs, enums and traits anywhere, aliases outside of impl blocks.
fn types(code: &str) -> impl Iterator<Item = &str> {
    code.lines().filter_map(|line| {
        let item = line.trim_start();
        let item = match item.strip_prefix("pub(") {
            Some(rest) => rest.split_once(") ")?.1,
            None => item.strip_prefix("pub ").unwrap_or(item),
        };
        let (keyword, rest) = item.split_once(' ')?;
        let is_type =
            matches!(keyword, "struct" | "enum" | "trait") || keyword == "type" && !line.starts_with(' ');
        let end = rest.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(rest.len());
        (is_type && rest.starts_with(char::is_uppercase)).then(|| &rest[..end])
    })
}

/// All Rust files of a folder and the folders in it.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

#[test]
fn a_type_name_has_one_meaning() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let root = root().canonicalize().unwrap();
    for folder in std::fs::read_dir(root.join("crates")).unwrap() {
        for path in rust_files(&folder.unwrap().path().join("src")) {
            let code = std::fs::read_to_string(&path).unwrap();
            for name in types(&code) {
                let path = path.strip_prefix(&root).unwrap().display().to_string();
                files.entry(name.to_owned()).or_default().push(path);
            }
        }
    }
    assert!(files.len() > 500, "only {} types were found", files.len());
    files.retain(|name, files| files.len() > 1 && !SHARED_NAMES.contains(&name.as_str()));
    assert!(
        files.is_empty(),
        "types of the same name: {files:#?}; hint: give each a name that says what it is"
    );
}

#[test]
fn types_are_found_wherever_they_stand() {
    let code = "pub struct A<T>(T);\npub(in crate::b) enum B {\n    struct C;\ntype D = u8;\n    type E = u8;\n// struct F\n\
                trait G: Send {}\nstructure H;\nuse struct_of;";
    assert_eq!(types(code).collect::<Vec<_>>(), ["A", "B", "C", "D", "G"]);
}
