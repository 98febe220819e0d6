//! Snapshots of the whole output of the commands.

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
    docs: 4 resources, 25 B, 5 templates
      file:///docs/  inode/directory
      file:///docs/a.md  text/markdown  First
      file:///docs/b/  inode/directory
      file:///docs/b/c.txt  text/plain  b/c.txt
      template file:///docs/{+path}{?lines,bytes}
      template file:///docs/{+folder}{?after,match,format,contents}
      template file:///docs{/path*}
      template file:///docs/{+path}{?as,pages,sheet,rows,chapter,cells,mails,lines,content}
      template file:///docs/{+path}?as=image{&pages,width}
    ok
    ");
}

#[cfg(unix)]
#[test]
fn check_names_what_is_left_out_on_purpose() {
    let folder = folder(&[
        ("docs/.cache/x", ""),
        ("docs/.gitignore", "*.tmp\n"),
        ("docs/a.md", ""),
        ("docs/b.tmp", ""),
        ("docs/c/d.log", ""),
        ("docs/c/e.pdf", ""),
        (
            "libris.toml",
            "[[files]]\npath = \"docs\"\ninclude = [\"*.md\", \"*.log\"]\nexclude = [\"*.log\"]\n",
        ),
    ]);
    std::os::unix::fs::symlink("a.md", folder.path().join("docs/f.md")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("docs/s")).unwrap());
    let said = libris(folder.path(), &["check"]);
    let named: Vec<_> = said.lines().filter(|line| line.contains("left out")).collect();
    assert_snapshot!(named.join("\n"), @"
    left out .cache  hidden
    left out .gitignore  hidden
    left out b.tmp  ignore file
    left out c/d.log  `exclude`
    left out f.md  symbolic link
    left out s  special file
    ");
    let json = libris(folder.path(), &["check", "--json"]);
    let json: serde_json::Value = serde_json::from_str(json.strip_prefix("exit: 0\n").unwrap()).unwrap();
    assert_eq!(json["sources"][0]["leftOut"]["b.tmp"], "ignore file");
    assert_eq!(json["sources"][0]["leftOut"].as_object().unwrap().len(), 6);
}

#[test]
fn check_goes_on_after_an_error_and_reports_every_source() {
    let folder = folder(&[("docs/a.md", ""), ("broken.db", "no database"), ("b.md", "")]);
    let sources = ["check", "nowhere", "sqlite:broken.db", "docs"];
    assert_snapshot!(libris(folder.path(), &sources), @"
    exit: 1
    docs: 2 resources, 5 templates
      file:///docs/  inode/directory
      file:///docs/a.md  text/markdown
      template file:///docs/{+path}{?lines,bytes}
      template file:///docs/{+folder}{?after,match,format,contents}
      template file:///docs{/path*}
      template file:///docs/{+path}{?as,pages,sheet,rows,chapter,cells,mails,lines,content}
      template file:///docs/{+path}?as=image{&pages,width}
    error: could not serve `nowhere`
      because: there is no file or folder `nowhere`
    hint: check the path
    error: could not list `sqlite:broken.db`
      because: the database `broken` cannot be used: its file is not a SQLite database
    hint: correct the path in `url`
    error: 2 of 3 sources failed
    hint: `libris serve` would serve the other sources and retry the failed ones
    ");
    let said = libris(folder.path(), &["check", "nowhere", "docs", "--json"]);
    let json: serde_json::Value = serde_json::from_str(said.strip_prefix("exit: 1\n").unwrap()).unwrap();
    assert_eq!(json["ok"], false);
    assert_eq!(json["sources"][0]["error"]["message"], "could not serve `nowhere`");
    assert_eq!(json["sources"][1]["count"], 2);
}

#[test]
fn check_shows_as_many_templates_as_resources() {
    let folder = folder(&[]);
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/openapi/library.yaml");
    std::fs::copy(library, folder.path().join("api.yaml")).unwrap();
    assert_snapshot!(libris(folder.path(), &["check", "api.yaml", "--show", "1"]), @"
    exit: 0
    openapi:api.yaml: 2 resources, 4 templates
      city-library://books  application/json  The books of the library
      … and 1 more resource
      template city-library://books{?genre*,language,page_size}
      … and 3 more templates
    ok
    ");
}

#[cfg(unix)]
#[test]
fn check_names_what_is_hidden_and_why() {
    let folder = folder(&[("docs/a.md", ""), ("docs/sub/b.md", "")]);
    // An ignore file that is a folder cannot be read, so that what it would hide is unknown.
    std::fs::create_dir(folder.path().join("docs/sub/.gitignore")).unwrap();
    let said = libris(folder.path(), &["check", "docs"]);
    assert!(said.contains("\n  warning: "), "{said}");
    assert!(!said.contains("b.md"), "{said}");
}

#[test]
fn files_are_served_as_what_they_are() {
    let folder = folder(&[
        ("docs/a.md", ""),
        ("team.toml", "[[files]]\npath = \"docs\"\n"),
        ("shop.db", ""),
        ("project/.git/HEAD", "ref: refs/heads/main\n"),
        ("project/a.md", ""),
    ]);
    let arguments = ["check", "team.toml", "shop.db", "project", "--show", "0"];
    assert_snapshot!(libris(folder.path(), &arguments), @"
    exit: 0
    docs: 2 resources, 5 templates
      … and 2 more resources
      … and 5 more templates
    sqlite:shop.db: 2 resources, 3 templates
      … and 2 more resources
      … and 3 more templates
    project: 2 resources, 5 templates
      … and 2 more resources
      … and 5 more templates
      hint: `project` is a git repository: `git:project` serves its branches, history and diffs
    ok
    ");
    assert_snapshot!(libris(folder.path(), &["check", "team.toml", "--config", "team.toml"]), @"
    exit: 1
    error: there are two configuration files, `team.toml` and `team.toml`
    hint: name one, and copy the sources of the other into it
    ");
    assert_snapshot!(libris(folder.path(), &["check", "missing.db"]), @"
    exit: 1
    error: could not serve `sqlite:missing.db`
      because: there is no file `missing.db`
    hint: check the path
    ");
    assert_snapshot!(libris(folder.path(), &["check", "sqlite:docs"]), @"
    exit: 1
    error: could not serve `sqlite:docs`
      because: `docs` is a folder
    hint: name the file of the database in it
    ");
}

#[test]
fn likely_mistakes_in_a_configuration_are_explained() {
    let folder = folder(&[
        ("table.toml", "[files]\npath = \"docs\"\n"),
        ("size.toml", "[[files]]\npath = \".\"\nmax_size = \"8 megabytes\"\n"),
        ("good.toml", "[[files]]\npath = \"docs\"\nmax_size = \"8MB\"\ndirectory_bytes = \"64 KiB\"\n"),
        ("docs/a.md", ""),
    ]);
    assert_snapshot!(libris(folder.path(), &["check", "table.toml"]), @"
    exit: 1
    error: `table.toml` is not a valid configuration
    TOML parse error at line 1, column 1
      |
    1 | [files]
      | ^^^^^^^
    invalid type: map, expected a sequence
    hint: write `[[files]]` instead of `[files]`: a configuration may have several
    ");
    assert_snapshot!(libris(folder.path(), &["check", "size.toml"]), @r#"
    exit: 1
    error: `size.toml` is not a valid configuration
    TOML parse error at line 3, column 12
      |
    3 | max_size = "8 megabytes"
      |            ^^^^^^^^^^^^^
    `8 megabytes` is not a size
    hint: write a number of bytes, or a size such as "8MB" or "64KiB"
    "#);
    assert!(libris(folder.path(), &["check", "good.toml"]).starts_with("exit: 0\n"));
}

#[test]
fn a_port_in_use_is_reported() {
    let folder = folder(&[("docs/a.md", "")]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let said = libris(folder.path(), &["serve", "docs", "--http", &format!("localhost:{port}")]);
    assert_snapshot!(said.replace(&port.to_string(), "PORT"), @"
    exit: 1
    error: the port PORT is in use by another program
    hint: stop that program, or use another port; `--http 127.0.0.1:0` selects a free one
    ");
}

#[test]
fn messages_are_coloured_on_demand_only() {
    let folder = folder(&[]);
    let said = |variables: &[(&str, &str)]| {
        let output = Command::new(env!("CARGO_BIN_EXE_libris"))
            .args(["check", "nowhere"])
            .current_dir(folder.path())
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(said(&[]).starts_with("error: "));
    assert!(said(&[("CLICOLOR_FORCE", "1")]).starts_with("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m "));
    assert!(said(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).starts_with("error: "));
}

#[test]
fn check_prints_json_for_scripts() {
    let folder = folder(&[("docs/a.md", "# A\n")]);
    std::fs::write(
        folder.path().join("libris.toml"),
        "[[inline.resource]]\nuri = \"note:a\"\n\
        text = \"x\"\ndescription = \"A note.\"\npriority = 0.5\n",
    )
    .unwrap();
    assert_snapshot!(libris(folder.path(), &["check", "--json"]), @r#"
    exit: 0
    {
      "ok": true,
      "sources": [
        {
          "count": 1,
          "resources": [
            {
              "annotations": {
                "audience": [],
                "lastModified": null,
                "priority": 0.5
              },
              "description": "A note.",
              "mimeType": "text/plain",
              "name": "a",
              "size": 1,
              "title": null,
              "uri": "note:a"
            }
          ],
          "size": 1,
          "source": "libris.toml",
          "templates": [],
          "warnings": []
        }
      ]
    }
    "#);
}

#[test]
fn check_reports_every_wrong_query_and_lists_the_database() {
    let config = "
        [[sql]]
        url = \"sqlite:shop.db\"
        [[sql.query]]
        uri = \"shop://dear\"
        sql = \"SELECT title, prize FROM items WHERE price > 100\"
        [[sql.query]]
        uri = \"shop://cheap\"
        sql = \"SELECT title FROM items WHERE price < 100\"
        [[sql.query]]
        uri = \"shop://recent\"
        sql = \"SELECT title FROM itmes\"
    ";
    let folder = folder(&[("libris.toml", config)]);
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    std::fs::copy(examples.join("shop.db"), folder.path().join("shop.db")).unwrap();
    assert_snapshot!(libris(folder.path(), &["check", "--config", "libris.toml"]), @"
    exit: 1
    sqlite:shop.db: 13 resources, 6 templates
      shop://cheap  application/json
      shop://dear  application/json
      shop://recent  application/json
      sqlite://shop/  inode/directory
      sqlite://shop/items/  inode/directory
      sqlite://shop/items/schema  text/markdown  Schema of items
      sqlite://shop/orders/  inode/directory
      sqlite://shop/orders/schema  text/markdown  Schema of orders
      sqlite://shop/schema  text/markdown  Schema of shop
      sqlite://shop/spending/  inode/directory
      … and 3 more resources
      template shop://cheap{?format}
      template shop://dear{?format}
      template shop://recent{?format}
      template sqlite://shop/{table}/schema{?format}
      template sqlite://shop/{table}/rows{?limit,after,format,filter*}
      template sqlite://shop/{table}/rows/{key}{?format}
    error: the configuration of `sqlite:shop.db` is wrong
      because: the query `shop://dear` is wrong: no such column: prize
    hint: correct its `sql`
    error: the configuration of `sqlite:shop.db` is wrong
      because: the query `shop://recent` is wrong: no such table: itmes
    hint: correct its `sql`
    ");
    let json = libris(folder.path(), &["check", "--config", "libris.toml", "--json"]);
    let json: serde_json::Value = serde_json::from_str(json.trim_start_matches("exit: 1\n")).unwrap();
    let source = &json["sources"][0];
    let errors = (json["ok"] == false, source["errors"].as_array().unwrap().len());
    assert!(errors == (true, 2) && source["count"].as_u64() > Some(0), "{json}");
    let right = config.replace("prize", "price").replace("itmes", "items");
    std::fs::write(folder.path().join("libris.toml"), right).unwrap();
    let checked = libris(folder.path(), &["check", "--config", "libris.toml", "--show", "0"]);
    assert!(checked.starts_with("exit: 0\n"), "{checked}");
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
    git:project: 9 resources, 34 B, 13 templates
      git://project/diff/staged  text/x-diff  Staged changes of project
      git://project/diff/worktree  text/x-diff  Unstaged changes of project
      git://project/log/HEAD  text/markdown  Log of project
      git://project/refs  text/markdown  Refs of project
      git://project/status  text/markdown  Status of project
      git://project/tree/HEAD/  inode/directory
      git://project/tree/HEAD/README.md  text/markdown  First
      git://project/tree/HEAD/src/  inode/directory
      git://project/tree/HEAD/src/main.rs  text/x-rust
      template git://project/blame/{ref}/{+path}{?lines,format}
      template git://project/commit/{id}{?format}
      template git://project/diff/staged{?path}
      template git://project/diff/worktree{?path}
      template git://project/diff/{base}/{head}{?path}
      template git://project/log/{ref}{?path,limit,format}
      template git://project/refs{?format}
      template git://project/status{?format}
      template git://project/tree/{ref}/{+folder}{?after,match,format,contents}
      template git://project/tree/{ref}/{+path}{?lines,bytes}
      … and 3 more templates
    ok
    ");
}

#[test]
fn what_is_no_repository_is_explained() {
    let folder = folder(&[("docs/a.md", "")]);
    assert_snapshot!(libris(folder.path(), &["serve", "git:docs"]), @"
    exit: 1
    error: could not serve `git:docs`
      because: the repository `docs` cannot be opened: it is not a git repository
    hint: name the folder that contains `.git`, or a bare repository
    ");
}

#[cfg(unix)]
#[test]
fn names_do_not_command_the_terminal() {
    let folder = folder(&[("docs/a\u{1b}[31m.md", "---\ntitle: \u{1b}[2J\n---\n")]);
    assert_snapshot!(libris(folder.path(), &["check", "docs"]), @r"
    exit: 0
    docs: 2 resources, 20 B, 5 templates
      file:///docs/  inode/directory
      file:///docs/a%1B%5B31m.md  text/markdown  \u{1b}[2J
      template file:///docs/{+path}{?lines,bytes}
      template file:///docs/{+folder}{?after,match,format,contents}
      template file:///docs{/path*}
      template file:///docs/{+path}{?as,pages,sheet,rows,chapter,cells,mails,lines,content}
      template file:///docs/{+path}?as=image{&pages,width}
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
    libris.toml: 1 resource, 1 B, 0 templates
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
    unknown field `nmae`, expected one of `name`, `title`, `description`, `instructions`, `use_resources_prompt`, `page_size`, `cache_bytes`, `source_timeout`, `strict`
    hint: did you mean `name`?
    ");
}

#[test]
fn an_address_for_everybody_is_refused() {
    let folder = folder(&[("docs/a.md", "")]);
    assert_snapshot!(libris(folder.path(), &["serve", "docs", "--http", "0.0.0.0:0"]), @"
    exit: 1
    error: `0.0.0.0:0` is reachable from other machines, and there is no authentication
    hint: use 127.0.0.1, require API keys with --keys, or add --allow-remote to let anyone on the network read the sources
    ");
}

#[test]
fn two_folders_of_one_name_are_refused() {
    let folder = folder(&[("a/docs/x.md", ""), ("b/docs/y.md", "")]);
    assert_snapshot!(libris(folder.path(), &["check", "a/docs", "b/docs", "--show", "0"]), @"
    exit: 1
    a/docs: 2 resources, 5 templates
      … and 2 more resources
      … and 5 more templates
    b/docs: 2 resources, 5 templates
      … and 2 more resources
      … and 5 more templates
    error: `a/docs` and `b/docs` would both have the URI `file:///docs/`
    hint: set a different `mount` for one of them in a configuration file
    ");
}

#[test]
fn two_databases_of_one_name_are_refused() {
    let folder = folder(&[("a/shop.db", ""), ("b/shop.db", "")]);
    assert_snapshot!(libris(folder.path(), &["serve", "sqlite:a/shop.db", "sqlite:b/shop.db"]), @"
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
    sqlite:data/shop.db: 3 resources, 4 templates
      db://answer  application/json
      sqlite://shop/  inode/directory
      sqlite://shop/schema  text/markdown  Schema of shop
      template db://answer{?format}
      template sqlite://shop/{table}/schema{?format}
      template sqlite://shop/{table}/rows{?limit,after,format,filter*}
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
    hint: name a folder by its path, a database as `sqlite:FILE`, `postgres://…` or `mysql://…`, a git repository as `git:PATH`, an API as `openapi:FILE` or `openapi:URL`, an MCP server as `https://HOST/mcp` or `-- COMMAND`, or a folder of skills as `skills:PATH`
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
