//! Pictures of the terminal for the manual: the commands run in a terminal of 80 columns, and what they print is drawn
//! as `docs/screens/*.svg`.
//!
//! To draw them again: `LIBRIS_UPDATE=1 cargo test -p libris-cli --test screens`. Look at each picture that changed.

#![cfg(target_os = "linux")]

mod picture;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The size of the terminal.
const COLUMNS: usize = 80;

/// What the program prints once it serves.
const SERVES: &str = "Press Ctrl-C to stop.";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files to serve, and a home folder with the configurations of hosts.
fn furnished() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let copied =
        Command::new("cp").arg("-r").arg(root().join("examples/handbook")).arg(path("handbook")).status();
    assert!(copied.unwrap().success());
    std::fs::copy(root().join("examples/shop.db"), path("shop.db")).unwrap();
    std::fs::create_dir_all(path("bin")).unwrap();
    std::fs::create_dir_all(path("home/.cursor")).unwrap();
    for program in ["claude", "code", "codex"] {
        std::fs::write(path("bin").join(program), "").unwrap();
    }
    std::fs::write(path("home/.cursor/mcp.json"), "{}").unwrap();
    std::fs::write(
        path("libris.toml"),
        "[[files]]\npath = \"handbook\"\n\n[[sql]]\nurl = \"sqlite:shop.db\"\n\n[[files]]\npath = \"minutes\"\n",
    )
    .unwrap();
    std::fs::write(path("typo.toml"), "[[files]]\npath = \"handbook\"\nexlude = [\"*.tmp\"]\n").unwrap();
    // A folder of which parts are left out, and a database with two wrong queries.
    std::fs::create_dir_all(path("notes/drafts")).unwrap();
    for (name, text) in
        [(".env", "SECRET=1\n"), (".gitignore", "*.log\n"), ("build.log", ""), ("plan.md", "# Plan\n")]
    {
        std::fs::write(path("notes").join(name), text).unwrap();
    }
    std::fs::write(
        path("wrong.toml"),
        "[[files]]\npath = \"notes\"\nexclude = [\"drafts/\"]\n\n[[sql]]\nurl = \"sqlite:shop.db\"\n\
         query = [\n  { uri = \"shop://dear\", sql = \"SELECT title, prize FROM items\" },\n  \
         { uri = \"shop://new\", sql = \"SELECT title FROM itmes\" },\n]\n",
    )
    .unwrap();
    folder
}

/// A command in a terminal, which is closed when this is dropped.
struct Terminal {
    child: Child,
    screen: ChildStdout,
    printed: Vec<u8>,
}

impl Terminal {
    fn run(folder: &Path, command: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_libris");
        let rest = command.strip_prefix("libris ").unwrap();
        let mut child = Command::new("script")
            .args(["--quiet", "--flush", "--return", "--command"])
            .arg(format!("stty cols {COLUMNS} rows 50; exec '{program}' {rest}"))
            .arg("/dev/null")
            .current_dir(folder)
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", folder.join("bin").display()))
            .env("HOME", folder.join("home"))
            .env("TERM", "xterm-256color")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`script` of util-linux is installed");
        let screen = child.stdout.take().unwrap();
        Self { child, screen, printed: Vec::new() }
    }

    /// What the command has printed once that contains this text, or at its end.
    fn until(&mut self, text: &str) -> String {
        let mut chunk = [0; 4096];
        loop {
            let printed = String::from_utf8_lossy(&self.printed);
            if printed.contains(text) {
                return printed.into_owned();
            }
            match self.screen.read(&mut chunk).unwrap() {
                0 => return String::from_utf8_lossy(&self.printed).into_owned(),
                count => self.printed.extend_from_slice(&chunk[..count]),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Interrupts the command. If `script` were killed, the command would outlive it.
        let _ = self.child.stdin.take().map(|mut keyboard| keyboard.write_all(b"\x03"));
        let _ = self.child.wait();
    }
}

/// What a command prints in a terminal until it serves or ends.
fn typed(folder: &Path, command: &str) -> String {
    stable(&Terminal::run(folder, command).until(&format!("{SERVES}\r\n")))
}

/// Replaces the selected port with the default one.
fn stable(text: &str) -> String {
    ["127.0.0.1:", "the port "].into_iter().fold(text.to_owned(), |text, introduction| {
        let mut stable = String::new();
        let mut rest = &*text;
        while let Some((before, after)) = rest.split_once(introduction) {
            let digits = after.len() - after.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
            // Port 0 stands for a free port.
            let port = if digits >= 4 { "4747" } else { &after[..digits] };
            stable.push_str(&format!("{before}{introduction}{port}"));
            rest = &after[digits..];
        }
        stable + rest
    })
}

/// Compares a screen with its picture, or draws it if the environment asks for that.
fn check(name: &str, commands: &[(&str, &str)]) {
    let folder = furnished();
    let screens: Vec<_> = commands
        .iter()
        .map(|(shown, command)| format!("\u{1b}[2m$\u{1b}[0m {shown}\r\n{}", typed(folder.path(), command)))
        .collect();
    let screen = screens.join("\r\n");
    let drawn = picture::svg(&screen, COLUMNS);
    let file = root().join(format!("docs/screens/{name}.svg"));
    if std::env::var_os("LIBRIS_UPDATE").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &drawn).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        expected == drawn,
        "docs/screens/{name}.svg differs from what the program prints; hint: run this test with LIBRIS_UPDATE=1, and \
         look at the picture\n{screen}"
    );
}

#[test]
fn serve() {
    check("serve", &[("libris serve handbook shop.db", "libris serve handbook shop.db --http 127.0.0.1:0")]);
}

#[test]
fn serve_with_a_missing_folder() {
    check("serve-unavailable", &[("libris serve", "libris serve --http 127.0.0.1:0")]);
}

#[test]
fn check_command() {
    check("check", &[("libris check --show 3", "libris check --show 3")]);
}

#[test]
fn check_with_wrong_queries() {
    let command = "libris check wrong.toml --show 3";
    check("check-wrong", &[(command, command)]);
}

#[test]
fn errors() {
    fn same(command: &str) -> (&str, &str) {
        (command, command)
    }
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = format!("libris serve handbook --http {}", other.local_addr().unwrap());
    check(
        "errors",
        &[
            same("libris check typo.toml"),
            same("libris serve minutes"),
            same("libris serve handbook --http 0.0.0.0:8080"),
            ("libris serve handbook --http 127.0.0.1:4747", &in_use),
            same("libris serve ftp://example.com/"),
            same("libris srve handbook"),
        ],
    );
}

#[test]
fn check_shows_its_progress() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    for number in 0..1000 {
        std::fs::write(folder.path().join(format!("docs/{number}.md")), "").unwrap();
    }
    let printed = typed(folder.path(), "libris check docs");
    assert!(printed.starts_with("\r\u{1b}[Kdocs: 1,000 resources …\r\u{1b}[K"), "{printed:?}");
    assert!(printed.contains(": 1,001 resources, 5 templates"), "{printed:?}");
}

/// The list of an API that responds when it is told to.
#[test]
fn a_count_that_takes_long_follows_later() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[[http]]\nname = \"weather\"\nbase = \"http://{}\"\nlimits = {{ allow_private = true }}\n\
         [[http.template]]\nuri = \"weather://{{city}}\"\nurl = \"{{/city}}\"\n\
         [http.template.list]\nurl = \"cities\"\nvalues = {{ city = \"\" }}\n",
        listener.local_addr().unwrap()
    );
    std::fs::write(folder.path().join("libris.toml"), config).unwrap();
    let mut terminal = Terminal::run(folder.path(), "libris serve --http 127.0.0.1:0");
    let printed = terminal.until("0 resources so far …");
    assert!(printed.contains("0 resources so far …"), "{printed}");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let body = r#"["paris","lima"]"#;
            let head = format!("content-type: application/json\r\ncontent-length: {}", body.len());
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\nconnection: close\r\n\r\n{body}");
        }
    });
    let expected = "weather: 2 resources, 1 template";
    let printed = terminal.until(expected);
    assert!(printed.contains(expected), "{printed}");
}
