//! Cached responses: those whose proof holds are what a new read returns, after any change of the refs.
//!
//! `LIBRIS_MODEL_OPERATIONS=10000 cargo test --test git never_stale` runs more operations.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use libris_core::{Completion, CompletionRequest, Context, Proof, Source as _, Uri, UriTemplate};
use libris_sources::Git;

use crate::sandbox::{Sandbox, config, run};

const FILES: [&str; 3] = ["one.txt", "two.txt", "deep/three.txt"];
const BRANCHES: [&str; 3] = ["main", "feature/one", "two"];

/// The completion of a ref or commit that begins with this text.
async fn completed(git: &Git, typed: &str) -> Completion {
    let template = UriTemplate::parse(&format!("{}commit/{{id}}{{?format}}", git.root())).unwrap();
    let known = BTreeMap::new();
    let request = CompletionRequest { template: &template, variable: "id", typed, known: &known, limit: 100 };
    git.complete(request, &Context::default()).await.unwrap()
}

/// What a read, a list or a completion returns, and its proof.
async fn response(git: &Git, path: &str) -> (String, Option<Proof>) {
    let context = Context::default();
    if path == "list" {
        let page = git.list(None, 100, &context).await.unwrap();
        return (format!("{:?}", page.resources), page.freshness.proof);
    }
    if path == "refs" {
        let completion = completed(git, "").await;
        return (format!("{:?}", completion.values), completion.proof);
    }
    match git.read(&Uri::parse(&format!("{}{path}", git.root())).unwrap(), &context).await {
        Ok(contents) => (format!("{:?}", contents.parts), contents.freshness.proof),
        Err(error) => (error.to_string(), error.proof().cloned()),
    }
}

/// Makes a change, or none if it is not possible.
fn change(sandbox: &Sandbox, number: usize, random: &mut impl FnMut(usize) -> usize) {
    let (file, branch) = (FILES[random(FILES.len())], BRANCHES[random(BRANCHES.len())]);
    let attempt = |arguments: &[&str]| {
        let _ = crate::sandbox::command(&sandbox.work).args(arguments).output();
    };
    match random(7) {
        0 => attempt(&["branch", branch]),
        1 => attempt(&["branch", "-D", branch]),
        2 => attempt(&["switch", branch]),
        3 => attempt(&["pack-refs", "--all"]),
        4 => attempt(&["branch", "-f", branch, "HEAD~1"]),
        _ => {
            sandbox.write(file, format!("text {number}").as_bytes());
            sandbox.commit("write");
        }
    }
}

/// There is one pause in this many operations, and at least one.
const PAUSE_INTERVAL: usize = 200;

/// The time without a change after which the stamps of refs are trusted. Without pauses, the test would hardly ever
/// compare stamps only.
const SETTLE: Duration = Duration::from_millis(2200);

#[tokio::test]
async fn cached_responses_are_never_stale() {
    let operations = std::env::var("LIBRIS_MODEL_OPERATIONS").map_or(60, |number| number.parse().unwrap());
    let sandbox = Sandbox::with(&[("one.txt", "first")]);
    let git = sandbox.open();
    let mut paths =
        vec!["list".to_owned(), "refs".to_owned(), "log/HEAD".to_owned(), "tree/HEAD/".to_owned()];
    for rev in ["HEAD", "main", "feature%2Fone", "two"] {
        paths.extend(FILES.map(|file| format!("tree/{rev}/{file}")));
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |most: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) as usize % most
    };
    let mut cached = HashMap::new();
    let (mut reused, mut outdated) = (0, 0);
    for number in 0..operations {
        if number % PAUSE_INTERVAL == operations / 2 % PAUSE_INTERVAL {
            tokio::time::sleep(SETTLE).await;
            for path in &paths {
                cached.insert(path, response(&git, path).await);
            }
        }
        change(&sandbox, number, &mut random);
        for _ in 0..8 {
            let path = &paths[random(paths.len())];
            let (now, proof) = response(&git, path).await;
            if let Some((before, proof)) = cached.insert(path, (now.clone(), proof)) {
                let is_valid = proof.as_ref().is_some_and(Proof::holds);
                assert!(!is_valid || before == now, "operation {number}: {path}: {before} is now {now}");
                (reused, outdated) = (reused + usize::from(is_valid), outdated + usize::from(!is_valid));
            }
        }
    }
    assert!(reused > 10 && outdated > 10, "{reused} reused, {outdated} outdated");
}

/// A proof covers the ref that a symbolic ref leads to, wherever that is stored and however the symbolic ref is written.
#[tokio::test]
async fn a_proof_ends_when_the_target_of_a_symbolic_ref_moves() {
    let sandbox = Sandbox::with(&[("one.txt", "first")]);
    // Git writes a space after `ref:`, but does not need it.
    std::fs::write(sandbox.work.join(".git/refs/heads/alias"), "ref:refs/heads/main\n").unwrap();
    // The refs in `refs/worktree/` are private to a linked working tree.
    let linked = sandbox.dir.path().join("linked");
    sandbox.git(&["worktree", "add", "--quiet", "--detach", linked.to_str().unwrap()]);
    run(&linked, &["update-ref", "refs/worktree/mine", "HEAD"]);
    run(&linked, &["symbolic-ref", "HEAD", "refs/worktree/mine"]);
    let cases =
        [(sandbox.open(), "tree/alias/one.txt"), (Git::open(config(&linked)).unwrap(), "tree/HEAD/one.txt")];
    let mut proofs = Vec::new();
    for (git, path) in &cases {
        let (text, proof) = response(git, path).await;
        assert!(text.contains("first"), "{path}: {text}");
        let proof = proof.unwrap();
        assert!(proof.holds(), "{path}");
        proofs.push(proof);
    }
    sandbox.write("one.txt", b"second");
    let second = sandbox.commit("second");
    run(&linked, &["update-ref", "refs/worktree/mine", &second]);
    for ((git, path), proof) in cases.iter().zip(proofs) {
        assert!(response(git, path).await.0.contains("second"), "{path}");
        assert!(!proof.holds(), "{path}");
    }
}

/// From four digits on, a completion searches all objects, to which one may be added at any time.
#[tokio::test]
async fn completions_of_a_few_digits_are_cached() {
    let sandbox = Sandbox::with(&[("one.txt", "first")]);
    sandbox.git(&["branch", "feed"]);
    let git = sandbox.open();
    let proof = async |typed: &str| {
        let completion = completed(&git, typed).await;
        assert!(completion.values.contains(&"feed".to_owned()), "{typed}: {:?}", completion.values);
        completion.proof
    };
    // The names of refs have no proof until their folders are settled.
    tokio::time::sleep(SETTLE).await;
    let before = proof("fee").await.unwrap();
    assert!(before.holds());
    assert!(proof("feed").await.is_none());
    sandbox.git(&["branch", "feel"]);
    assert!(!before.holds());
    assert!(completed(&git, "fee").await.values.contains(&"feel".to_owned()));
}
