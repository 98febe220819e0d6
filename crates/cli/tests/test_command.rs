//! Runs `./test quick` without some of the programs that tests need, and a step of `./test dist`, both with a `cargo` that
//! only prints its arguments.

#![cfg(target_os = "linux")]

use std::path::Path;
use std::process::{Command, Output};

/// The programs that the script itself calls.
const BASICS: [&str; 7] = ["bash", "dirname", "grep", "ls", "mktemp", "rm", "tee"];

/// Fills the folder `$1` with `cargo` and programs that do nothing, and links to those that are called.
///
/// A process of its own writes the files: a file that is open for writing, even in a child that another test forks,
/// cannot be executed.
const SET_UP: &str = r#"
folder=$1 basics=$2; shift 2
for program in $basics; do ln -s "$(command -v "$program")" "$folder/$program"; done
for program in "$@"; do printf '#!/bin/sh\n' >"$folder/$program"; done
printf '#!/bin/sh\necho "cargo $*"\n' >"$folder/cargo"
chmod +x "$folder"/*
"#;

/// Runs `./test quick` with a `PATH` of the basics and these programs.
fn quick(programs: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut set_up = Command::new("bash");
    set_up.args(["-ec", SET_UP, "set up"]).arg(folder.path()).arg(BASICS.join(" ")).args(programs);
    assert!(set_up.status().unwrap().success());
    Command::new(folder.path().join("bash"))
        .args(["./test", "quick"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env("PATH", folder.path())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn quick_skips_tests_of_missing_programs_and_lists_them() {
    let output = quick(&["cc", "git"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let tests = said.lines().find(|line| line.starts_with("cargo test ")).unwrap();
    assert_eq!(tests.matches("--skip needs_xvfb").count(), 1, "{tests}");
    for program in ["Xvfb", "maim"] {
        let line = format!("skipped: screenshot tests, `{program}` was not found; ./test installs it");
        assert!(said.lines().any(|other| other == line), "{said}");
    }
    assert!(tests.contains("--skip needs_redis"), "{tests}");
    let line = "skipped: tests of replicas, `redis-server` was not found; ./test installs it";
    assert!(said.lines().any(|other| other == line), "{said}");
    // Whether servers are installed is not up to `PATH`; a group is either run, or skipped and listed.
    for (name, group) in [
        ("needs_postgres", "PostgreSQL tests"),
        ("needs_mariadb", "MariaDB tests"),
        ("needs_nginx", "tests of a load balancer"),
    ] {
        let listed = said.contains(&format!("skipped: {group}, "));
        assert_eq!(tests.contains(&format!("--skip {name}")), listed, "{said}");
    }
}

#[test]
fn quick_runs_tests_of_installed_programs() {
    let installed =
        ["cc", "git", "Xvfb", "maim", "postgres", "mariadbd", "redis-server", "nginx", "zsh", "fish"];
    let output = quick(&installed);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.contains("cargo test ") && !said.contains("skip"), "{said}");
}

#[test]
fn quick_needs_git_and_a_c_compiler() {
    for (missing, installed, package) in [("git", "cc", "git"), ("cc", "git", "gcc")] {
        let output = quick(&[installed]);
        assert!(!output.status.success());
        let expected = format!(
            "`{missing}` was not found; hint: install the package `{package}`, or run ./test, which does\n"
        );
        assert_eq!(text(&output.stderr), expected);
    }
}

/// Runs `tests/run-semver`, given as `$1`, in a repository in the folder `$2`: before the first release, and after the second.
const RELEASES: &str = r#"
mkdir -p "$2/tests" "$2/bin" && cp "$1" "$2/tests" && cd "$2"
printf '#!/bin/sh\necho "cargo $*"\n' >bin/cargo
printf '#!/bin/sh\n' >bin/cargo-semver-checks
chmod +x bin/*
export PATH=$2/bin:$PATH GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
commit() { git -c user.name=Ada -c user.email=ada@libris.test commit --quiet --allow-empty --message "$1"; }
git init --quiet
commit one
git tag nightly
tests/run-semver
git tag v0.1.0
commit two
git tag v0.2.0
commit three
git tag vendor
tests/run-semver
"#;

#[test]
fn the_interfaces_are_compared_with_the_last_release() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/run-semver");
    let output = Command::new("bash")
        .args(["-ec", RELEASES, "releases"])
        .args([&script, folder.path()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stdout),
        "nothing to compare with: there is no release yet, that is, no tag v*\n\
         cargo semver-checks --workspace --baseline-rev v0.2.0\n"
    );
    let dist = std::fs::read_to_string(script.with_file_name("../test")).unwrap();
    assert!(dist.contains("run tests/run-semver\n"), "./test dist runs it");
}
