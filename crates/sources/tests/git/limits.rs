//! Bounds on objects, on memory and on the work for a diff.

use std::io::Write as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use futures_util::FutureExt as _;
use libris_core::{Budget, Client, ContentMemory, Context, Error, Source as _};

use crate::sandbox::{Sandbox, ask, command, text, uri};

/// Writes an object of this type without checking its content. Returns its id.
fn object(sandbox: &Sandbox, kind: &str, data: &[u8]) -> String {
    let mut git = command(&sandbox.work);
    git.args(["hash-object", "-t", kind, "-w", "--stdin", "--literally"]);
    let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(data).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Writes a commit of this tree with a message of `size` bytes.
fn commit(sandbox: &Sandbox, tree: &str, message: usize) -> String {
    let person = "Ada Lovelace <ada@example.com> 1700000000 +0000";
    let message = "x".repeat(message);
    let data = format!("tree {tree}\nauthor {person}\ncommitter {person}\n\n{message}\n");
    object(sandbox, "commit", data.as_bytes())
}

/// Writes a tree of so many entries, each of 100 bytes.
fn tree(sandbox: &Sandbox, entries: usize) -> String {
    let blob = object(sandbox, "blob", b"text");
    let id: Vec<u8> =
        (0..40).step_by(2).map(|at| u8::from_str_radix(&blob[at..at + 2], 16).unwrap()).collect();
    let mut data = Vec::new();
    for number in 0..entries {
        write!(data, "100644 {number:072}\0").unwrap();
        data.extend_from_slice(&id);
    }
    object(sandbox, "tree", &data)
}

#[track_caller]
fn is_too_large<T: std::fmt::Debug>(result: Result<T, Error>, limit: u64) {
    match result {
        Err(Error::TooLarge { limit: said, size, .. }) if said == limit && size > limit => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn commits_tags_and_trees_have_a_largest_size() {
    const MIB: u64 = 1024 * 1024;
    let sandbox = Sandbox::with(&[("a", "one")]);
    let source = sandbox.open();
    let root = sandbox.git(&["rev-parse", "HEAD^{tree}"]);

    let long = commit(&sandbox, &root, 1 << 20);
    for rest in [
        format!("commit/{long}"),
        format!("log/{long}"),
        format!("blob/{long}/a"),
        format!("diff/{long}/HEAD"),
    ] {
        is_too_large(ask(&source, &rest).await, MIB);
    }
    let shorter = commit(&sandbox, &root, 1 << 19);
    assert_eq!(text(&source, &format!("blob/{shorter}/a")).await, "one");
    assert!(text(&source, &format!("commit/{shorter}")).await.len() > 1 << 19);

    // The list of refs truncates long subjects.
    sandbox.git(&["update-ref", "refs/heads/long", &shorter]);
    assert!(text(&source, "refs").await.len() < 6_000);

    let head = sandbox.git(&["rev-parse", "HEAD"]);
    let tag = format!(
        "object {head}\ntype commit\ntag v1\ntagger Ada <ada@example.com> 1700000000 +0000\n\n{}\n",
        "x".repeat(1 << 20)
    );
    let tag = object(&sandbox, "tag", tag.as_bytes());
    is_too_large(ask(&source, &format!("blob/{tag}/a")).await, MIB);

    let wide = commit(&sandbox, &tree(&sandbox, 90_000), 1);
    for rest in [format!("tree/{wide}/"), format!("blob/{wide}/a"), format!("diff/HEAD/{wide}")] {
        is_too_large(ask(&source, &rest).await, 8 * MIB);
    }
    // If the branch itself points to such an object, listing fails with the same error.
    sandbox.git(&["update-ref", "refs/heads/main", &wide]);
    is_too_large(source.list(None, 10, &Context::default()).await, 8 * MIB);
    sandbox.git(&["update-ref", "refs/heads/main", &long]);
    is_too_large(source.list(None, 10, &Context::default()).await, MIB);
}

#[tokio::test]
async fn a_commit_has_a_thousand_parents_at_most() {
    let sandbox = Sandbox::with(&[("a", "one")]);
    let source = sandbox.open();
    let [root, head] = ["HEAD^{tree}", "HEAD"].map(|name| sandbox.git(&["rev-parse", name]));
    for (count, is_read) in [(1_000, true), (1_001, false)] {
        let parents = format!("parent {head}\n").repeat(count);
        let who = "Ada <ada@example.com> 1700000000 +0000";
        let text = format!("tree {root}\n{parents}author {who}\ncommitter {who}\n\nmany parents\n");
        let id = object(&sandbox, "commit", text.as_bytes());
        for rest in [format!("log/{id}"), format!("blob/{id}/a")] {
            assert_eq!(ask(&source, &rest).await.is_ok(), is_read, "{rest} with {count} parents");
        }
    }
}

/// A memory budget of this many bytes.
struct Bytes {
    left: AtomicUsize,
}

impl ContentMemory for Bytes {
    fn reserve(&self, bytes: usize) -> bool {
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(bytes)).is_ok()
    }

    fn grow(&self, bytes: usize) -> bool {
        self.reserve(bytes)
    }
}

#[tokio::test]
async fn memory_is_reserved_for_what_is_decoded() {
    const MIB: usize = 1024 * 1024;
    let sandbox = Sandbox::with(&[("small", "text"), ("big", "")]);
    sandbox.write("big", "a line\n".repeat(MIB / 7).as_bytes());
    sandbox.commit("one");
    sandbox.write("big", "other\n".repeat(MIB / 6).as_bytes());
    sandbox.commit("two");
    let source = sandbox.open();
    let root = sandbox.git(&["rev-parse", "HEAD^{tree}"]);
    let parent = commit(&sandbox, &root, MIB / 2);
    let wide = commit(&sandbox, &tree(&sandbox, 40_000), 1);
    let read = async |rest: &str, bytes: usize| {
        let memory = Arc::new(Bytes { left: AtomicUsize::new(bytes) });
        source.read(&uri(rest), &Context::default().with_memory(memory)).await
    };
    let wide = format!("tree/{wide}/");
    for (rest, too_little, enough) in [
        ("diff/HEAD~/HEAD", 2 * MIB, 200 * MIB),
        (&*wide, 4 * MIB, 40 * MIB),
        // Small objects reserve no memory.
        ("diff/HEAD~/HEAD?path=small", 0, 0),
        ("tree/HEAD/", 0, 0),
        ("log/HEAD", 0, 0),
        (&*format!("commit/{parent}"), 0, 0),
    ] {
        if too_little < enough {
            assert!(matches!(read(rest, too_little).await, Err(Error::Busy(_))), "{rest}");
        }
        read(rest, enough).await.unwrap_or_else(|error| panic!("{rest}: {error}"));
    }
}

/// Replaces `packed-refs` by so many branches that all lead to `HEAD`.
fn pack_branches(sandbox: &Sandbox, count: usize) {
    let head = sandbox.git(&["rev-parse", "HEAD"]);
    let lines = (0..count).map(|n| format!("{head} refs/heads/packed/{n:0>100}\n"));
    std::fs::write(sandbox.work.join(".git/packed-refs"), lines.collect::<String>()).unwrap();
}

#[tokio::test]
async fn memory_is_reserved_for_the_names_of_refs() {
    const MIB: usize = 1024 * 1024;
    let sandbox = Sandbox::with(&[("a", "text")]);
    pack_branches(&sandbox, 30_000);
    let source = sandbox.open();
    let read = async |bytes: usize| {
        let memory = Arc::new(Bytes { left: AtomicUsize::new(bytes) });
        source.read(&uri("refs"), &Context::default().with_memory(memory)).await
    };
    assert!(matches!(read(3 * MIB).await, Err(Error::Busy(_))));
    assert!(read(16 * MIB).await.is_ok());
}

#[tokio::test]
async fn refs_are_bounded_in_number_and_in_bytes() {
    let sandbox = Sandbox::with(&[("a", "text")]);
    let source = sandbox.open();
    // The branch `main` is one of them, as a file of its own.
    for (count, expected) in
        [(99_999, None), (100_000, Some("more than 100000 branches")), (150_000, Some(""))]
    {
        pack_branches(&sandbox, count);
        match (ask(&source, "refs").await, expected) {
            (Ok(_), None) => {}
            (Err(Error::Unavailable(why)), Some(part)) => assert!(why.contains(part), "{why}"),
            (result, _) => panic!("{count} refs: {result:?}"),
        }
        // A branch by its name is found as long as `packed-refs` is read at all.
        let branch = format!("tree/packed%2F{:0>100}/", 7);
        assert_eq!(ask(&source, &branch).await.is_ok(), count < 110_000, "{count} refs");
    }
}

#[tokio::test]
async fn a_diff_of_lines_that_repeat_ends() {
    const LINES: usize = 700_000;
    let sandbox = Sandbox::empty();
    // Lines that only one of the files has, between lines that are frequent in both.
    let file = |own: char| -> String {
        (0..LINES).map(|at| if at % 500 == 0 { format!("{own}\n") } else { "\n".into() }).collect()
    };
    sandbox.write("a", file('a').as_bytes());
    sandbox.commit("one");
    sandbox.write("a", file('b').as_bytes());
    sandbox.commit("two");
    let patch = text(&sandbox.open(), "diff/HEAD~/HEAD").await;
    let lines = |sign: char| patch.lines().filter(|line| line.starts_with(sign)).count();
    assert!(lines('-') > LINES / 500 && lines('+') > LINES / 500);
}

/// A memory budget that signals each reservation and grants it when the test says so.
struct Blocked {
    asked: Mutex<mpsc::Sender<()>>,
    granted: Mutex<mpsc::Receiver<()>>,
}

impl ContentMemory for Blocked {
    fn reserve(&self, _: usize) -> bool {
        self.asked.lock().unwrap().send(()).unwrap();
        self.granted.lock().unwrap().recv().is_ok()
    }

    fn grow(&self, bytes: usize) -> bool {
        self.reserve(bytes)
    }
}

#[tokio::test]
async fn the_turn_of_the_catalog_is_held_until_the_work_has_ended() {
    let sandbox = Sandbox::with(&[("a", "one")]);
    let source = sandbox.open();
    let turns = Budget::new(1);
    let turn = turns.try_take(Client::default(), 1).unwrap();
    let ((asked, has_begun), (grant, granted)) = (mpsc::channel(), mpsc::channel());
    let memory = Blocked { asked: Mutex::new(asked), granted: Mutex::new(granted) };
    let context = Context::default().with_memory(Arc::new(memory)).with_permit(turn);
    let uri = uri("blob/HEAD/a");
    let mut read = source.read(&uri, &context);
    assert!((&mut read).now_or_never().is_none());
    has_begun.recv().unwrap();
    // The read was dropped, but its blocking work continues.
    drop(read);
    drop(context);
    assert!(turns.is_full());
    grant.send(()).unwrap();
    assert!(turns.take(Client::default(), 1).await.is_some());
}
