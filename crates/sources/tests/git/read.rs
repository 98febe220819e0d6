//! Reading files, parts, folders, refs, logs, commits and diffs.

use std::sync::Arc;
use std::time::Duration;

use libris_core::{CacheScope, Content, ContentBody, Context, Error, Source, Uri, Visibility};
use libris_sources::{Git, git};

use crate::sandbox::{Sandbox, ask, config, json, part, text, uri};

fn numbers(to: usize) -> String {
    (1..=to).map(|number| format!("line {number}\n")).collect()
}

#[tokio::test]
async fn files_at_any_revision() {
    let sandbox = Sandbox::with(&[("a.txt", "one\n")]);
    let first = sandbox.git(&["rev-parse", "HEAD"]);
    sandbox.git(&["tag", "v1"]);
    sandbox.git(&["tag", "--annotate", "v1-signed", "--message", "the first"]);
    sandbox.write("a.txt", b"two\n");
    sandbox.commit("second");
    sandbox.git(&["branch", "feature/x"]);
    let source = sandbox.open();
    for (rev, held) in [
        ("HEAD", "two\n"),
        ("main", "two\n"),
        ("heads%2Fmain", "two\n"),
        ("refs%2Fheads%2Fmain", "two\n"),
        ("feature%2Fx", "two\n"),
        ("HEAD~1", "one\n"),
        ("HEAD%5E", "one\n"),
        ("main~", "one\n"),
        ("v1", "one\n"),
        ("v1-signed", "one\n"),
        ("tags%2Fv1", "one\n"),
        (&first, "one\n"),
        (&first[..7], "one\n"),
    ] {
        assert_eq!(text(&source, &format!("blob/{rev}/a.txt")).await, held, "{rev}");
        assert_eq!(text(&source, &format!("tree/{rev}/a.txt")).await, held, "{rev}");
    }
    for rest in [
        "blob/HEAD~2/a.txt",
        "blob/nothing/a.txt",
        "blob/HEAD%5E2/a.txt",
        "blob/abcdef1/a.txt",
        "blob/HEAD/a.txt/",
        "blob/HEAD/a.txt/b",
    ] {
        assert!(ask(&source, rest).await.is_err_and(|error| error.is_not_found()), "{rest}");
    }
}

#[tokio::test]
async fn what_another_repository_has_is_not_found() {
    let sandbox = Sandbox::with(&[("a.txt", "one\n")]);
    let source = sandbox.open();
    for rest in ["blob/HEAD/a.txt", "tree/HEAD", "refs", "log/HEAD", "commit/HEAD", "diff/HEAD/HEAD"] {
        assert!(ask(&source, rest).await.is_ok(), "{rest}");
        for root in ["git://other/", "git://repo2/", "git://rep/", "hg://repo/"] {
            let uri = Uri::parse(&format!("{root}{rest}")).unwrap();
            assert_eq!(source.covers(&uri), None, "{uri}");
            let read = source.read(&uri, &Context::default()).await;
            assert!(matches!(read, Err(Error::NotFound(_))), "{uri}: {read:?}");
        }
    }
}

#[tokio::test]
async fn parts_of_files() {
    let sandbox = Sandbox::with(&[("a.txt", &numbers(20)), ("latin", "")]);
    sandbox.write("latin", b"caf\xe9 cr\xe8me br\xfbl\xe9e, d\xe9j\xe0 vu\n");
    sandbox.write("x.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    sandbox.commit("second");
    let source = sandbox.open();
    assert_eq!(text(&source, "blob/HEAD/a.txt?lines=2-3").await, "line 2\nline 3\n");
    insta::assert_json_snapshot!(part(&source, "blob/HEAD/a.txt?lines=2-3").await.meta, @r#"
    {
      "dev.libris/next": "git://repo/blob/HEAD/a.txt?lines=4-5",
      "dev.libris/totalBytes": 151,
      "dev.libris/totalLines": 20
    }
    "#);
    assert_eq!(text(&source, "tree/HEAD/a.txt?lines=-1").await, "line 20\n");
    assert_eq!(text(&source, "blob/HEAD/a.txt?bytes=0-5").await, "line 1");
    assert_eq!(text(&source, "blob/HEAD/a.txt?lines=").await, numbers(20));
    assert_eq!(
        text(&source, "blob/HEAD/latin").await,
        "caf\u{e9} cr\u{e8}me br\u{fb}l\u{e9}e, d\u{e9}j\u{e0} vu\n"
    );
    assert_eq!(part(&source, "blob/HEAD/x.png?bytes=1-3").await.body, ContentBody::Bytes("PNG".into()));
    for rest in [
        "blob/HEAD/a.txt?lines=21",
        "blob/HEAD/x.png?lines=1",
        "blob/HEAD/?lines=1",
        "blob/HEAD/a.txt?bytes=5",
    ] {
        assert!(matches!(ask(&source, rest).await, Err(Error::Invalid(_))), "{rest}");
    }
}

#[tokio::test]
async fn what_is_too_large_says_how_to_read_a_part() {
    let sandbox = Sandbox::with(&[("big.txt", &numbers(2000)), ("small.txt", "small\n")]);
    sandbox.write("big.txt", numbers(3000).replace("line", "LINE").as_bytes());
    sandbox.commit("second");
    let mut config = config(&sandbox.work);
    config.max_size = 1000;
    let source = Git::open(config).unwrap();
    let Err(Error::TooLarge { size, limit, hint, .. }) = ask(&source, "blob/HEAD/big.txt").await else {
        panic!()
    };
    assert!(size > limit && hint.unwrap().contains("?lines=1-500"));
    assert_eq!(text(&source, "blob/HEAD/big.txt?lines=1500-1501").await, "LINE 1500\nLINE 1501\n");
    for (range, expected) in [("lines=1-", "ask for fewer lines"), ("bytes=0-1000", "ask for fewer bytes")] {
        let Err(Error::TooLarge { hint, .. }) = ask(&source, &format!("blob/HEAD/big.txt?{range}")).await
        else {
            panic!()
        };
        assert_eq!(hint.as_deref(), Some(expected));
    }
    let parts = ask(&source, "tree/HEAD/").await.unwrap().parts;
    let uris: Vec<_> = parts.iter().map(|part| part.uri.path()).collect();
    assert_eq!(uris, ["/tree/HEAD/", "/tree/HEAD/small.txt"]);
    assert_eq!(parts[1].body, ContentBody::Text("small\n".into()));
    // A file that is too large for a diff is reported like a binary one.
    assert!(text(&source, "diff/HEAD~1/HEAD").await.contains("Binary files a/big.txt and b/big.txt differ"));
}

#[tokio::test]
async fn a_diff_that_is_too_large_says_so() {
    let sandbox = Sandbox::with(&[("a.txt", "a\n")]);
    for number in 0..20 {
        sandbox.write(&format!("folder/{number}.txt"), numbers(50).as_bytes());
    }
    sandbox.commit("second");
    let mut config = config(&sandbox.work);
    config.max_size = 2000;
    let source = Git::open(config).unwrap();
    let Err(Error::TooLarge { hint, .. }) = ask(&source, "diff/HEAD~1/HEAD").await else { panic!() };
    assert!(hint.unwrap().contains("?path="));
    assert!(text(&source, "diff/HEAD~1/HEAD?path=folder%2F3.txt").await.contains("+line 50"));
}

#[tokio::test]
async fn an_answer_may_not_take_for_ever() {
    let sandbox = Sandbox::with(&[("a.txt", "a\n")]);
    let mut config = config(&sandbox.work);
    config.timeout = Duration::from_nanos(1);
    let source = Git::open(config).unwrap();
    for rest in ["blob/HEAD/a.txt", "log/HEAD", "commit/HEAD", "diff/HEAD/HEAD", "tree/HEAD/"] {
        let Err(Error::Unavailable(said)) = ask(&source, rest).await else { panic!("{rest}") };
        assert!(said.contains("took longer than"), "{said}");
    }
    assert!(matches!(source.list(None, 10, &Context::default()).await, Err(Error::Unavailable(_))));
}

#[tokio::test]
async fn pages_for_people_and_programs() {
    let sandbox = Sandbox::with(&[("a.txt", "one\n"), ("b.txt", "b\n")]);
    sandbox.write("a.txt", b"two\n");
    sandbox.write("c d.txt", b"c\n");
    std::fs::remove_file(sandbox.work.join("b.txt")).unwrap();
    let second = sandbox.commit("Change *everything*\n\nBecause of reasons.");
    sandbox.git(&["tag", "v1"]);
    let source = sandbox.open();
    let first = sandbox.git(&["rev-parse", "HEAD~1"]);
    let plain = |page: String| {
        page.replace(&second, "<second>")
            .replace(&second[..10], "<sec>")
            .replace(&first, "<first>")
            .replace(&first[..10], "<fir>")
    };
    insta::assert_snapshot!(plain(text(&source, "refs").await), @r"
    # Refs of repo

    `HEAD` is main at `<sec>`.

    ## Branches

    - main `<sec>` 2023-11-15 Change \*everything\* ([files](<git://repo/tree/main/>), [log](<git://repo/log/main>))

    ## Tags

    - v1 `<sec>` 2023-11-15 Change \*everything\* ([files](<git://repo/tree/v1/>), [log](<git://repo/log/v1>))
    ");
    insta::assert_snapshot!(plain(text(&source, "log/main").await), @r"
    # Log of main

    - [`<sec>`](<git://repo/commit/<second>>) 2023-11-15 Ada Lovelace: Change \*everything\*
    - [`<fir>`](<git://repo/commit/<first>>) 2023-11-15 Ada Lovelace: first
    ");
    insta::assert_snapshot!(plain(text(&source, "log/main?path=b.txt&limit=1").await), @r"
    # Log of main: b.txt

    - [`<sec>`](<git://repo/commit/<second>>) 2023-11-15 Ada Lovelace: Change \*everything\*

    There are more: ask for them with `limit=2`.
    ");
    insta::assert_snapshot!(plain(text(&source, "commit/HEAD").await), @r"
    # Change \*everything\*

    - commit: `<second>`
    - parent: [`<first>`](<git://repo/commit/<first>>) ([diff](<git://repo/diff/<first>/<second>>))
    - author: Ada Lovelace \<ada@example.com\>, 2023-11-15T00:14:20+02:00
    - committer: Ada Lovelace \<ada@example.com\>, 2023-11-15T00:14:20+02:00
    - files: [tree](<git://repo/tree/<second>/>)

    Because of reasons.

    ## Changes

    3 files changed, 2 insertions, 2 deletions

    - M [a.txt](<git://repo/tree/<second>/a.txt>) (+1 -1)
    - D [b.txt](<git://repo/tree/<first>/b.txt>) (+0 -1)
    - A [c d.txt](<git://repo/tree/<second>/c%20d.txt>) (+1 -0)

    ## Patch

    ```diff
    diff --git a/a.txt b/a.txt
    index 5626abf0f72e58d7a153368ba57db4c673c0e171..f719efd430d52bcfc8566a43b2eb655688d38871 100644
    --- a/a.txt
    +++ b/a.txt
    @@ -1 +1 @@
    -one
    +two
    diff --git a/b.txt b/b.txt
    deleted file mode 100644
    index 61780798228d17af2d34fce4cfbdf35556832472..0000000000000000000000000000000000000000
    --- a/b.txt
    +++ /dev/null
    @@ -1 +0,0 @@
    -b
    diff --git a/c d.txt b/c d.txt
    new file mode 100644
    index 0000000000000000000000000000000000000000..f2ad6c76f0115a6ba5b00456a849810e7ec0af20
    --- /dev/null
    +++ b/c d.txt	
    @@ -0,0 +1 @@
    +c
    ```
    ");
    let commit = json(&source, "commit/v1?format=json").await;
    assert_eq!(commit["message"], "Change *everything*\n\nBecause of reasons.\n");
    assert_eq!(commit["changes"].as_array().unwrap().len(), 3);
    let refs = json(&source, "refs?format=json").await;
    assert_eq!((&refs["head"]["branch"], &refs["refs"][1]["name"]), (&"main".into(), &"refs/tags/v1".into()));
    let part = part(&source, "diff/HEAD~1/HEAD?path=a.txt").await;
    assert_eq!(part.mime.as_deref(), Some("text/x-diff"));
}

#[tokio::test]
async fn what_never_changes_may_be_kept() {
    let sandbox = Sandbox::with(&[("a.txt", "one\n")]);
    let id = sandbox.git(&["rev-parse", "HEAD"]);
    let mut config = config(&sandbox.work);
    config.scope = CacheScope::Public;
    config.ttl = Duration::from_secs(5);
    let source = Git::open(config).unwrap();
    for rest in
        [format!("blob/{id}/a.txt"), format!("commit/{id}"), format!("log/{id}~0"), format!("diff/{id}/{id}")]
    {
        let contents = ask(&source, &rest).await.unwrap();
        let cache = contents.freshness;
        assert_eq!((cache.ttl.as_secs(), cache.scope), (31_536_000, CacheScope::Public), "{rest}");
        assert!(cache.proof.unwrap().holds(), "{rest}");
    }
    for rest in [
        "blob/main/a.txt".to_owned(),
        format!("blob/{}/a.txt", &id[..8]),
        format!("diff/main/{id}"),
        "refs".to_owned(),
    ] {
        let freshness = ask(&source, &rest).await.unwrap().freshness;
        assert_eq!((freshness.ttl.as_secs(), freshness.scope), (5, CacheScope::Public), "{rest}");
    }
    let page = source.list(None, 10, &Context::default()).await.unwrap();
    assert_eq!((page.freshness.ttl.as_secs(), page.freshness.scope), (5, CacheScope::Public));
}

/// Changes of modes, types, line endings and unusual names give the patch that `git diff` prints.
#[cfg(unix)]
#[tokio::test]
async fn patches_of_all_kinds_are_those_of_diff() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let sandbox = Sandbox::with(&[
        ("mode", "same\n"),
        ("both", "one\n"),
        ("gone", "gone\n"),
        ("end", "no newline"),
        ("kind", "a file\n"),
        ("dir", "a file\n"),
        ("sp ace", "x\n"),
        ("üml\"aut", "x\n"),
        ("empty-gone", ""),
        ("far", &numbers(100)),
        ("crlf", "a\r\nb\r\n"),
    ]);
    sandbox.write("binary", b"\0\x01");
    sandbox.commit("binary");
    let executable = |path: &str| {
        let path = sandbox.work.join(path);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    executable("mode");
    sandbox.write("both", b"two\n");
    executable("both");
    for path in ["gone", "kind", "dir", "empty-gone"] {
        std::fs::remove_file(sandbox.work.join(path)).unwrap();
    }
    symlink("both", sandbox.work.join("kind")).unwrap();
    symlink("gone", sandbox.work.join("new-link")).unwrap();
    for (path, data) in [
        ("end", &b"newline now\n"[..]),
        ("dir/inside", b"x\n"),
        ("dir-after", b"x\n"),
        ("sp ace", b"y\n"),
        ("üml\"aut", b"y\n"),
        ("empty-new", b""),
        ("binary", b"\0\x02"),
        ("crlf", b"a\r\nc\r\n"),
    ] {
        sandbox.write(path, data);
    }
    let far: String = numbers(100)
        .replace("line 3\n", "changed\n")
        .replace("line 50\n", "")
        .replace("line 98\n", "line 98\nadded\n");
    sandbox.write("far", far.as_bytes());
    sandbox.commit("all kinds");
    let printed = sandbox.git(&["diff", "--find-renames", "--full-index", "HEAD~1", "HEAD"]);
    let source = sandbox.open();
    assert_eq!(text(&source, "diff/HEAD~1/HEAD").await.trim_end(), printed);
    let printed = sandbox.git(&["diff", "--find-renames", "--full-index", "HEAD", "HEAD~1"]);
    assert_eq!(text(&source, "diff/HEAD/HEAD~1").await.trim_end(), printed);
}

/// Hides URIs that contain `secret`.
struct NoSecrets;

impl Visibility for NoSecrets {
    fn sees(&self, uri: &Uri) -> bool {
        !uri.as_str().contains("secret")
    }
}

#[tokio::test]
async fn hidden_entries_are_neither_given_nor_counted() {
    let context = || Context::default().with_visibility(Arc::new(NoSecrets));
    let names = ["a.txt", "b-secret.txt", "c/d.txt", "e-secret/f.txt", "g.txt", "h-secret.txt", "i.txt"];
    let whole = Sandbox::with(&names.map(|name| (name, "12345")));
    let reduced: Vec<_> = names.into_iter().filter(|name| !name.contains("secret")).collect();
    let reduced = Sandbox::with(&reduced.iter().map(|name| (*name, "12345")).collect::<Vec<_>>());
    // Hidden entries count neither against the limit of entries nor against that of bytes.
    for (entries, bytes) in [(0, 1000), (1, 1000), (2, 1000), (3, 1000), (4, 1000), (100, 600), (100, 0)] {
        let [whole, reduced] = [&whole, &reduced].map(|sandbox| {
            let config =
                git::Config { directory_entries: entries, directory_bytes: bytes, ..sandbox.config() };
            Git::open(config).unwrap()
        });
        let root = uri("tree/HEAD/");
        let seen = whole.read(&root, &context()).await.unwrap().parts;
        assert_eq!(seen, reduced.read(&root, &Context::default()).await.unwrap().parts, "{entries} {bytes}");
        assert_ne!(seen, whole.read(&root, &Context::default()).await.unwrap().parts, "{entries} {bytes}");
    }
    // A directory with hidden entries only reads as an empty one.
    let only = Sandbox::with(&[("x/secret.txt", "12345")]);
    let seen = only.open().read(&uri("tree/HEAD/x/"), &context()).await.unwrap().parts;
    assert_eq!(seen, [Content::text(uri("tree/HEAD/x/"), "text/markdown", "# x/ at HEAD\n\nNo entries.\n")]);
}

#[tokio::test]
async fn diffs_and_commits_show_nothing_of_hidden_files() {
    let sandbox =
        Sandbox::with(&[("a.txt", "one\n"), ("b-secret.txt", "one\n"), ("c-secret/d.txt", "one\n")]);
    for name in ["a.txt", "b-secret.txt", "c-secret/d.txt"] {
        sandbox.write(name, b"two\n");
    }
    sandbox.commit("change");
    let source = sandbox.open();
    let context = Context::default().with_visibility(Arc::new(NoSecrets));
    for path in ["diff/HEAD~1/HEAD", "commit/HEAD", "commit/HEAD?format=json"] {
        let whole = text(&source, path).await;
        assert!(whole.contains("a.txt") && whole.contains("secret"), "{whole}");
        let parts = source.read(&uri(path), &context).await.unwrap().parts;
        let ContentBody::Text(seen) = &parts[0].body else { panic!("{path} is no text") };
        assert!(seen.contains("a.txt") && !seen.contains("secret"), "{seen}");
    }
    for path in [
        "log/HEAD?path=b-secret.txt",
        "log/HEAD?path=c-secret",
        "diff/HEAD~1/HEAD?path=b-secret.txt",
        "diff/HEAD~1/HEAD?path=c-secret%2Fd.txt",
    ] {
        assert!(!text(&source, path).await.is_empty());
        let hidden = source.read(&uri(path), &context).await;
        assert!(matches!(hidden, Err(Error::NotFound(_))), "{path}: {hidden:?}");
    }
}
