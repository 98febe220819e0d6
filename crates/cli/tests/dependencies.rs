//! Checks the dependencies of the workspace: licences, registries, minimum Rust version and duplicate versions.

#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The licences that a dependency may have.
const LICENCES: [&str; 11] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates with another licence. MPL-2.0 applies to the files of the crate only, and Libris does not change them. The
/// manifest of model2vec-rs names no licence; its file `LICENSE` is that of MIT.
const LICENCE_EXCEPTIONS: [(&str, &str); 2] = [("model2vec-rs", "none"), ("uluru", "MPL-2.0")];

/// The crates that are compiled in several versions, with the dependencies that prevent a single one.
const DUPLICATES: &[(&str, &str)] = &[
    ("base64", "sqlx 0.8"),
    ("bit-set", "tiktoken-rs has the older one, proptest the newer"),
    ("bit-vec", "bit-set"),
    ("block-buffer", "digest"),
    ("const-oid", "digest"),
    ("cpufeatures", "sha2"),
    ("crypto-common", "digest"),
    ("darling", "tokenizers, which model2vec-rs uses, has the older one"),
    ("darling_core", "darling"),
    ("darling_macro", "darling"),
    ("digest", "sqlx 0.8; gix has the newer one"),
    ("fallible-iterator", "tokio-postgres, which the benchmarks use; rusqlite has the newer one"),
    ("fancy-regex", "tokenizers, which model2vec-rs uses, has the older one"),
    ("fearless_simd", "vello_common, which hayro uses, has the older one"),
    ("foldhash", "hashbrown"),
    ("getrandom", "ring 0.17 and sqlx 0.8"),
    ("hashbrown", "rusqlite, sqlx, gix and quick_cache each have their own"),
    ("hashlink", "rusqlite, whose version is bound to the SQLite of sqlx"),
    ("hayro-ccitt", "unpdf has the older one, its dependency hayro-jbig2 the next, hayro the newest"),
    ("hayro-jbig2", "unpdf has the older one, hayro the newer"),
    ("hmac", "sqlx 0.8; tokio-postgres, which the benchmarks use, has the newer one"),
    ("io-lifetimes", "cap-std has the newer one, its dependency fs-set-times the older"),
    ("md-5", "sqlx 0.8; unpdf has the newer one"),
    ("miniz_oxide", "png has the older one, flate2 the newer"),
    ("rand", "sqlx 0.8; tantivy has the newer one"),
    ("rand_chacha", "rand"),
    ("rand_core", "sqlx 0.8"),
    ("sha2", "sqlx 0.8"),
    ("syn", "procedural macros of gix and tracing"),
    ("synstructure", "asn1-rs, the parser of client certificates; yoke has the newer one"),
    ("thiserror", "oauth2, which rmcp uses, has the older one"),
    ("thiserror-impl", "thiserror"),
    ("whoami", "sqlx 0.8; tokio-postgres, which the benchmarks use, has the newer one"),
];

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .args(["--offline", "--locked", "--all-features"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// All packages that the workspace can depend on under Linux, as `cargo metadata` describes them.
fn packages() -> Vec<Value> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let text = cargo(&["metadata", "--format-version=1", "--filter-platform", &platform]);
    let mut metadata: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(metadata["packages"].take()).unwrap()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}

/// Splits an SPDX expression at an operator that is in no parentheses.
fn operands<'a>(expression: &'a str, operator: &str) -> Vec<&'a str> {
    let (mut operands, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, letter) in expression.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 && at >= start && expression[at..].starts_with(operator) => {
                operands.push(&expression[start..at]);
                start = at + operator.len();
            }
            _ => {}
        }
    }
    operands.push(&expression[start..]);
    operands
}

/// Whether an SPDX expression lets us choose among the allowed licences. A `/` is the former spelling of `OR`.
fn is_allowed(expression: &str, allowed: &dyn Fn(&str) -> bool) -> bool {
    let expression = expression.trim();
    for (operator, any) in [(" OR ", true), ("/", true), (" AND ", false)] {
        let operands = operands(expression, operator);
        if operands.len() > 1 {
            let mut allowed = operands.into_iter().map(|operand| is_allowed(operand, allowed));
            return if any { allowed.any(|allowed| allowed) } else { allowed.all(|allowed| allowed) };
        }
    }
    match expression.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        Some(inner) => is_allowed(inner, allowed),
        None => allowed(expression),
    }
}

#[test]
fn licences_are_allowed() {
    for package in packages() {
        let name = name(&package);
        let licence = package["license"].as_str().unwrap_or("none");
        let allowed =
            |licence: &str| LICENCES.contains(&licence) || LICENCE_EXCEPTIONS.contains(&(name, licence));
        assert!(
            is_allowed(licence, &allowed),
            "`{name}` has the licence `{licence}`; hint: use another crate, or allow the licence in this test and \
             explain why in the commit"
        );
    }
}

#[test]
fn licence_expressions_are_evaluated() {
    let allowed = |licence: &str| ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].contains(&licence);
    for expression in [
        "MIT",
        "GPL-3.0 OR MIT",
        "GPL-3.0/MIT",
        "GPL-3.0 / MIT",
        "(GPL-3.0 OR MIT) AND ISC",
        "GPL-3.0 OR MIT AND ISC",
        "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
    ] {
        assert!(is_allowed(expression, &allowed), "{expression}");
    }
    for expression in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", "Apache-2.0", "MITX"] {
        assert!(!is_allowed(expression, &allowed), "{expression}");
    }
}

/// Whether a package is from the registry, or a member of the workspace.
fn has_known_origin(package: &Value, root: &Path) -> bool {
    match package["source"].as_str() {
        Some(source) => source == "registry+https://github.com/rust-lang/crates.io-index",
        None => Path::new(package["manifest_path"].as_str().unwrap()).starts_with(root),
    }
}

#[test]
fn dependencies_come_from_the_registry() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    for package in packages() {
        assert!(
            has_known_origin(&package, &root),
            "`{}` is neither from the registry nor in the workspace: {}",
            name(&package),
            package["source"]
        );
    }
}

#[test]
fn other_registries_repositories_and_folders_are_not_known_origins() {
    let package = |source: Value, folder: &str| serde_json::json!({ "source": source, "manifest_path": format!("{folder}/Cargo.toml") });
    let registry = "registry+https://github.com/rust-lang/crates.io-index";
    for (known, source, folder) in [
        (true, registry.into(), "/registry/a"),
        (true, Value::Null, "/project/crates/a"),
        (false, Value::Null, "/elsewhere/a"),
        (false, "registry+https://registry.example/index".into(), "/registry/a"),
        (false, "git+https://github.com/rust-lang/crates.io-index".into(), "/project/crates/a"),
    ] {
        let package = package(source, folder);
        assert_eq!(has_known_origin(&package, Path::new("/project")), known, "{package}");
    }
}

/// Whether a crate that needs a Rust version compiles with our minimum version. A missing patch version is 0.
fn is_supported(needed: &str, minimum: &str) -> bool {
    let numbers = |version: &str| {
        let mut numbers: Vec<u32> = version.split('.').map(|part| part.parse().unwrap()).collect();
        numbers.resize(3, 0);
        numbers
    };
    numbers(needed) <= numbers(minimum)
}

#[test]
fn rust_versions_are_compared_by_number() {
    for needed in ["1.93", "1.93.0", "1.92.1", "1.9", "1.85", "0.99"] {
        assert!(is_supported(needed, "1.93"), "{needed}");
    }
    for needed in ["1.93.1", "1.94", "1.100", "2.0", "2"] {
        assert!(!is_supported(needed, "1.93"), "{needed}");
    }
}

/// `clippy::incompatible_msrv` checks our own code against `rust-version`; this is for the code of dependencies.
#[test]
fn dependencies_support_the_minimum_rust_version() {
    let manifest: toml::Table =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")).parse().unwrap();
    let minimum = manifest["workspace"]["package"]["rust-version"].as_str().unwrap();
    for package in packages() {
        let needed = package["rust_version"].as_str();
        if package["source"].is_null() {
            assert_eq!(
                needed,
                Some(minimum),
                "`{}`; hint: add `rust-version.workspace = true`",
                name(&package)
            );
        }
        assert!(
            needed.is_none_or(|needed| is_supported(needed, minimum)),
            "`{}` needs Rust {}; hint: raise `rust-version` in Cargo.toml",
            name(&package),
            needed.unwrap()
        );
    }
}

#[test]
fn duplicate_versions_are_listed() {
    let tree = cargo(&["tree", "--workspace", "--prefix=none", "--format={p}"]);
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in tree.lines() {
        let mut words = line.split(' ');
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            versions.entry(name).or_default().insert(version);
        }
    }
    assert!(versions.contains_key("libris-cli") && versions.len() > 100, "{versions:?}");
    versions.retain(|_, versions| versions.len() > 1);
    let listed: BTreeSet<_> = DUPLICATES.iter().map(|(name, _)| *name).collect();
    for (name, versions) in &versions {
        assert!(
            listed.contains(name),
            "`{name}` is compiled in the versions {versions:?}; hint: use one version, or add it to `DUPLICATES` with \
             the reason"
        );
    }
    for name in listed {
        assert!(
            versions.contains_key(name),
            "`{name}` has one version only; hint: remove it from `DUPLICATES`"
        );
    }
}
