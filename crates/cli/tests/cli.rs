//! What the commands print, whole.

use std::path::Path;
use std::process::{Command, Stdio};

use insta::assert_snapshot;

fn libris(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_libris"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .env_remove("LIBRIS_LOG")
        .output()
        .unwrap();
    format!(
        "exit: {}\n{}{}",
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap()
    )
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

#[test]
fn check_says_what_would_be_served() {
    let folder = folder(&[("docs/a.md", "---\ntitle: First\n---\n"), ("docs/b/c.txt", "text")]);
    assert_snapshot!(libris(folder.path(), &["check", "docs"]), @"
    exit: 0
    docs: 4 resources, 25 B
      file:///docs/  inode/directory
      file:///docs/a.md  text/markdown  First
      file:///docs/b/  inode/directory
      file:///docs/b/c.txt  text/plain
      template file:///docs/{+path}{?lines,bytes}
    ok
    ");
}

#[test]
fn check_prints_json_for_scripts() {
    let folder = folder(&[("docs/a.md", "# A\n")]);
    assert_snapshot!(libris(folder.path(), &["check", "docs", "--json"]), @r#"
    exit: 0
    {
      "ok": true,
      "sources": [
        {
          "count": 2,
          "resources": [
            {
              "mimeType": "inode/directory",
              "name": "docs",
              "size": null,
              "title": null,
              "uri": "file:///docs/"
            },
            {
              "mimeType": "text/markdown",
              "name": "a.md",
              "size": 4,
              "title": null,
              "uri": "file:///docs/a.md"
            }
          ],
          "size": 4,
          "source": "docs",
          "templates": [
            {
              "name": "docs",
              "title": "Files of docs",
              "uriTemplate": "file:///docs/{+path}{?lines,bytes}"
            }
          ]
        }
      ]
    }
    "#);
}

#[test]
fn check_shows_a_repository() {
    let folder = folder(&[
        ("project/README.md", "---\ntitle: First\n---\n"),
        ("project/src/main.rs", "fn main() {}\n"),
    ]);
    let project = folder.path().join("project");
    for arguments in
        [&["init", "--quiet"][..], &["add", "--all"], &["commit", "--quiet", "--message", "first"]]
    {
        let identity =
            ["-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "commit.gpgSign=false"];
        let made = Command::new("git").args(identity).args(arguments).current_dir(&project).status();
        assert!(made.unwrap().success(), "{arguments:?}");
    }
    assert_snapshot!(libris(folder.path(), &["check", "git:project"]), @"
    exit: 0
    git:project: 6 resources, 34 B
      git://project/log/HEAD  text/markdown  Log of project
      git://project/refs  text/markdown  Refs of project
      git://project/tree/HEAD/  inode/directory
      git://project/tree/HEAD/README.md  text/markdown  First
      git://project/tree/HEAD/src/  inode/directory
      git://project/tree/HEAD/src/main.rs  text/x-rust
      template git://project/blob/{ref}/{+path}{?lines,bytes}
      template git://project/commit/{id}{?format}
      template git://project/diff/{base}/{head}{?path}
      template git://project/log/{ref}{?path,limit,format}
      template git://project/refs{?format}
      template git://project/tree/{ref}/{+path}{?lines,bytes}
    ok
    ");
}

#[test]
fn what_is_no_repository_is_explained() {
    let folder = folder(&[("docs/a.md", "")]);
    assert_snapshot!(libris(folder.path(), &["serve", "git:docs"]), @"
    exit: 1
    error: could not serve `git:docs`
      because: the repository `docs` cannot be opened: it is not a git repository; hint: name the folder that contains `.git`, or a bare repository
    ");
}

#[cfg(unix)]
#[test]
fn names_do_not_command_the_terminal() {
    let folder = folder(&[("docs/a\u{1b}[31m.md", "---\ntitle: \u{1b}[2J\n---\n")]);
    assert_snapshot!(libris(folder.path(), &["check", "docs"]), @r"
    exit: 0
    docs: 2 resources, 20 B
      file:///docs/  inode/directory
      file:///docs/a%1B%5B31m.md  text/markdown  \u{1b}[2J
      template file:///docs/{+path}{?lines,bytes}
    ok
    ");
}

#[test]
fn nothing_to_serve_says_what_to_do() {
    let folder = folder(&[]);
    assert_snapshot!(libris(folder.path(), &["serve"]), @"
    exit: 1
    error: there is nothing to serve
    hint: name a folder or a database, as in `libris serve ./docs`, or create a `libris.toml`
    ");
}

#[test]
fn the_default_configuration_is_found() {
    let folder = folder(&[("libris.toml", "[[inline.resource]]\nuri = \"a:b\"\ntext = \"x\"\n")]);
    assert_snapshot!(libris(folder.path(), &["check"]), @"
    exit: 0
    libris.toml: 1 resource, 1 B
      a:b  text/plain
    ok
    ");
}

#[test]
fn an_unknown_key_is_shown_with_the_one_that_was_meant() {
    let folder = folder(&[("libris.toml", "[server]\nnmae = \"x\"\n")]);
    assert_snapshot!(libris(folder.path(), &["check"]), @"
    exit: 1
    error: `libris.toml` is not a valid configuration
    TOML parse error at line 2, column 1
      |
    2 | nmae = \"x\"
      | ^^^^
    unknown field `nmae`, expected one of `name`, `title`, `description`, `instructions`, `page_size`, `cache_bytes`, `source_timeout`, `strict`
    hint: did you mean `name`?
    ");
}

#[test]
fn an_address_for_everybody_is_refused() {
    let folder = folder(&[("docs/a.md", "")]);
    assert_snapshot!(libris(folder.path(), &["serve", "docs", "--http", "0.0.0.0:0"]), @"
    exit: 1
    error: `0.0.0.0:0` is reachable from other machines, and there is no authentication
    hint: use 127.0.0.1, or add --allow-remote to let anyone on the network read the sources
    ");
}

#[test]
fn two_folders_of_one_name_are_refused() {
    let folder = folder(&[("a/docs/x.md", ""), ("b/docs/y.md", "")]);
    assert_snapshot!(libris(folder.path(), &["check", "a/docs", "b/docs"]), @"
    exit: 1
    error: `a/docs` and `b/docs` would both have the URI `file:///docs/`
    hint: set a different `mount` for one of them in a configuration file
    ");
}

#[test]
fn two_databases_of_one_name_are_refused() {
    let folder = folder(&[("a/shop.db", ""), ("b/shop.db", "")]);
    assert_snapshot!(libris(folder.path(), &["check", "sqlite:a/shop.db", "sqlite:b/shop.db"]), @"
    exit: 1
    error: `sqlite:a/shop.db` and `sqlite:b/shop.db` would both have the URI `sqlite://shop/`
    hint: set a different `name` for one of them in a configuration file
    ");
}

#[test]
fn a_database_is_configured() {
    let config = "
        [[sql]]
        url = \"sqlite:data/shop.db\"
        [[sql.query]]
        uri = \"db://answer\"
        sql = \"SELECT 42 AS answer\"
    ";
    let folder = folder(&[("libris.toml", config), ("data/shop.db", "")]);
    assert_snapshot!(libris(folder.path(), &["check"]), @"
    exit: 0
    sqlite:data/shop.db: 3 resources, 0 B
      db://answer  application/json
      sqlite://shop/  inode/directory
      sqlite://shop/schema  text/markdown  Schema of shop
      template db://answer{?format}
      template sqlite://shop/{table}/schema{?format}
      template sqlite://shop/{table}/rows{?limit,after,format}
      template sqlite://shop/{table}/rows/{key}{?format}
    ok
    ");
}

#[test]
fn passwords_are_not_printed() {
    let folder = folder(&[("shop.db", "")]);
    for url in [
        "postgres://ada:s3cret@127.0.0.1:9/shop",
        "mysql://ada:s3cret@127.0.0.1:9/shop",
        "mysql://ada:s3cret@h",
    ] {
        for command in ["check", "triggers"] {
            let said = libris(folder.path(), &[command, url, "--log", "trace"]);
            assert!(said.starts_with("exit: 1\n") && !said.contains("s3cret"), "{said}");
        }
    }
    assert_snapshot!(libris(folder.path(), &["triggers", "sqlite:shop.db"]), @"
    exit: 1
    error: there is no PostgreSQL database among the sources
    hint: name one, as in `libris triggers postgres://localhost/shop`
    ");
}

#[test]
fn a_level_that_is_none_is_refused() {
    let folder = folder(&[("docs/x.md", "")]);
    assert_snapshot!(libris(folder.path(), &["check", "docs", "--log", "nonsense"]), @"
    exit: 1
    error: `nonsense` is not a log level
    hint: use error, warn, info, debug, trace, off, or a filter such as `libris_wire=debug`
    ");
}

#[test]
fn an_address_that_is_none_is_explained() {
    let folder = folder(&[("docs/x.md", "")]);
    let said = libris(folder.path(), &["serve", "docs", "--http", "somewhere"]);
    assert!(said.contains("expected an IP address and a port, such as `127.0.0.1:8080`"), "{said}");
}

#[cfg(unix)]
#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let folder = folder(&[("docs/x.md", "")]);
    let script = format!("{} check docs | true; exit ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_libris"));
    let status = Command::new("bash").args(["-c", &script]).current_dir(folder.path()).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_misspelt_address_does_not_show_its_password() {
    let folder = folder(&[]);
    assert_snapshot!(libris(folder.path(), &["check", "postgress://user:sekrit@host/db"]), @"
    exit: 1
    error: `postgress://` is not a supported source
    hint: name a folder by its path, a database as `sqlite:FILE`, `postgres://…` or `mysql://…`, a git repository as `git:PATH`, or an API as `openapi:FILE` or `openapi:URL`
    ");
}

#[cfg(unix)]
#[test]
fn a_configuration_that_is_no_file_or_huge_is_refused() {
    let folder = folder(&[]);
    let mkfifo = std::process::Command::new("mkfifo").arg(folder.path().join("pipe.toml")).status();
    assert!(mkfifo.unwrap().success());
    std::fs::File::create(folder.path().join("huge.toml")).unwrap().set_len(1 << 40).unwrap();
    assert_snapshot!(libris(folder.path(), &["check", "--config", "pipe.toml"]), @"
    exit: 1
    error: could not read `pipe.toml`: it is not a regular file
    hint: write the configuration to a regular file
    ");
    assert_snapshot!(libris(folder.path(), &["check", "--config", "huge.toml"]), @"
    exit: 1
    error: could not read `huge.toml`: it has more than 4194304 bytes
    hint: check the path; serve large texts from a folder instead of writing them into the configuration
    ");
}
