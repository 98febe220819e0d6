//! Rules, `libris explain`, the warnings of `libris check`, and the audit log, with the binary.

#[cfg(unix)]
mod audit;
#[cfg(unix)]
mod logged_server;
#[cfg(unix)]
mod reload;
#[cfg(unix)]
mod secrets;
#[cfg(unix)]
mod upstream;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Longer than anything takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn libris(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_libris"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

/// A server over stdio.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn serve(folder: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_libris"))
            .args(["serve", "--stdio"])
            .current_dir(folder)
            .env("USER", "ada")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn read(&mut self, uri: &str) -> Value {
        self.ask("resources/read", json!({ "uri": uri }))
    }

    fn ask(&mut self, method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        writeln!(self.input.as_ref().unwrap(), "{message}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|cause| panic!("{cause}: {line:?}"))
    }

    /// Reads until the answer is as expected.
    fn read_until(&mut self, uri: &str, expected: impl Fn(&Value) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.read(uri);
            if expected(&answer) {
                return;
            }
            assert!(Instant::now() < end, "{answer}");
            std::thread::yield_now();
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SOURCE: &str = "[[files]]\npath = \"docs\"\n";

fn folder(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("docs")).unwrap();
    std::fs::write(folder.path().join("docs/a.md"), "public").unwrap();
    std::fs::write(folder.path().join("docs/b.md"), "secret").unwrap();
    std::fs::write(folder.path().join("libris.toml"), format!("{SOURCE}{config}")).unwrap();
    folder
}

fn is_allowed(answer: &Value) -> bool {
    answer.get("result").is_some()
}

#[test]
fn the_local_user_has_the_rights_that_rules_grant_and_loses_them_when_they_change() {
    let folder = folder(
        "[audit]\nfile = \"audit.log\"\n\
         [[rule]]\nuser = \"ada\"\nuri = \"file:///docs/**\"\naction = \"allow\"\n",
    );
    let mut program = Program::serve(folder.path());
    let secret = "file:///docs/b.md";
    assert!(is_allowed(&program.read(secret)));
    let rule = "[[rule]]\nuri = \"file:///docs/b.md\"\naction = \"deny\"\n[[rule]]\naction = \"allow\"\n";
    std::fs::write(
        folder.path().join("libris.toml"),
        format!("{SOURCE}[audit]\nfile = \"audit.log\"\n{rule}"),
    )
    .unwrap();
    program.read_until(secret, |answer| !is_allowed(answer));
    let (hidden, absent) = (program.read(secret), program.read("file:///docs/c.md"));
    assert_eq!(hidden.to_string().replace("b.md", "c.md"), absent.to_string());
    assert!(is_allowed(&program.read("file:///docs/a.md")));
    // A configuration that does not parse changes nothing.
    std::fs::write(folder.path().join("libris.toml"), format!("{SOURCE}[[rule]]\naction = \"alow\"\n"))
        .unwrap();
    std::fs::write(folder.path().join("docs/new.md"), "new").unwrap();
    program.read_until("file:///docs/new.md", is_allowed);
    assert!(!is_allowed(&program.read(secret)));
    // The end of the input ends the server, which writes its log.
    drop(program.input.take());
    program.child.wait().unwrap();
    let log = std::fs::read_to_string(folder.path().join("audit.log")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["who"] == "ada" && line["operation"] == "read"), "{log}");
    let decision = |line: &Value| (line["decision"].clone(), line["rule"].clone());
    assert_eq!(decision(&lines[0]), (json!("allow"), json!(1)));
    assert!(lines.iter().any(|line| decision(line) == (json!("deny"), json!(1)) && line["uri"] == secret));
}

#[test]
fn explain_names_the_rule_and_the_other_name_of_a_resource() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("git").args(["init", "--quiet", "project"]).current_dir(folder.path()).status();
    assert!(made.unwrap().success());
    let config = "[[git]]\npath = \"project\"\n\
                  [[rule]]\nuri = \"git://project/tree/HEAD/secrets/**\"\naction = \"deny\"\n\
                  [[rule]]\nuri = \"git://project/**\"\naction = \"allow\"\n";
    std::fs::write(folder.path().join("libris.toml"), config).unwrap();
    for name in ["tree/main/secrets/key", "blob/main/secrets/key?lines=1-2", "blame/v1.0/secrets/key"] {
        let (ok, text) = libris(folder.path(), &["explain", &format!("git://project/{name}")]);
        assert!(ok, "{text}");
        let alias = "rule 1, as git://project/tree/HEAD/secrets/key denies everyone everything";
        assert_eq!(text.matches(&format!("hidden: {alias}")).count(), 4, "{text}");
    }
    let (_, text) = libris(folder.path(), &["explain", "--json", "git://project/tree/main/readme"]);
    let explained: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&explained["decisions"][1]["decision"], &explained["decisions"][1]["rule"]),
        (&json!("allow"), &json!(2))
    );
    let (_, text) = libris(folder.path(), &["explain", "x:y"]);
    assert!(text.contains("hidden: no rule matches") && text.contains("no source serves this URI"), "{text}");
}

#[test]
fn check_warns_of_rules_that_can_never_match() {
    let folder = folder(
        "[[rule]]\nuri = \"file:///docs/**\"\naction = \"allow\"\n\
         [[rule]]\ngroup = \"hr\"\nuri = \"file:///docs/b.md\"\naction = \"deny\"\n\
         [[rule]]\nuri = \"flie:///docs/**\"\naction = \"deny\"\n\
         [[rule]]\nuri = \"libris://status\"\naction = \"allow\"\n",
    );
    let (ok, text) = libris(folder.path(), &["check"]);
    assert!(ok, "{text}");
    assert!(text.contains("rules: 4 rules\n"), "{text}");
    assert!(
        text.contains("warning: rule 2 can never match: earlier rules match first. It denies the group `hr`"),
        "{text}"
    );
    assert!(text.contains(
        "rule 3 can never match `flie:///docs/**`: no source serves URIs that begin with `flie:///docs`"
    ));
    assert_eq!(text.matches("warning:").count(), 2, "{text}");
    let (_, text) = libris(folder.path(), &["check", "--json"]);
    let checked: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(checked["rules"]["count"], 4);
    assert_eq!(checked["rules"]["warnings"].as_array().unwrap().len(), 2);
}

#[test]
fn a_wrong_rule_is_reported_with_a_hint() {
    let folder = folder("[[rule]]\nuri = \"file:///docs/a?lines=1\"\naction = \"deny\"\n");
    let (ok, text) = libris(folder.path(), &["check"]);
    assert!(!ok && text.contains("rule 1: the pattern `file:///docs/a?lines=1` has a `?` or `#`"), "{text}");
}

/// A page of HTML.
#[cfg(feature = "documents")]
const PAGE: &str = "<html><body><p>The treasure is under the old oak tree, near the river.</p></body></html>";

/// A PDF with one empty page.
#[cfg(feature = "documents")]
const PDF: &str = "%PDF-1.4\n1 0 obj <</Type /Catalog /Pages 2 0 R>> endobj\n\
    2 0 obj <</Type /Pages /Kids [3 0 R] /Count 1>> endobj\n\
    3 0 obj <</Type /Page /Parent 2 0 R /MediaBox [0 0 90 90]>> endobj\ntrailer <</Root 1 0 R>>\n%%EOF\n";

/// A zip archive of these members.
#[cfg(feature = "documents")]
fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, data) in members {
        archive.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(data).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

#[cfg(feature = "documents")]
fn deny(uri: &str) -> String {
    format!("[[rule]]\nuri = \"{uri}\"\naction = \"deny\"\n")
}

#[cfg(feature = "documents")]
impl Program {
    /// Asserts that a URI with `open` for `NAME` can be read, and one with `secret` looks as if it did not exist.
    fn assert_secret_is_absent(&mut self, uri: &str) {
        let [open, secret, absent] =
            ["open", "secret", "absent"].map(|name| self.read(&uri.replace("NAME", name)));
        assert!(is_allowed(&open), "{uri}: {open}");
        assert!(!is_allowed(&secret), "{uri}: {secret}");
        assert_eq!(secret.to_string().replace("secret", "absent"), absent.to_string(), "{uri}");
    }
}

/// What a rule says about a document holds for its text, and for an archive also for its members, however they are asked
/// for.
#[cfg(feature = "documents")]
#[test]
fn rules_hold_for_the_texts_and_members_of_documents() {
    let rules =
        ["secret.html", "secret.pdf", "secret.zip", "open.zip/inner/secret.html", "open.zip/secret.zip"]
            .map(|path| deny(&format!("file:///docs/{path}")))
            .concat();
    let folder = folder(&(rules + "[[rule]]\naction = \"allow\"\n"));
    let nested = archive(&[("a.html", PAGE.as_bytes())]);
    let members = [
        ("inner/a.html", PAGE.as_bytes()),
        ("inner/a.pdf", PDF.as_bytes()),
        ("inner/open.html", PAGE.as_bytes()),
        ("inner/secret.html", PAGE.as_bytes()),
        ("open.zip", &nested),
        ("secret.zip", &nested),
    ];
    for name in ["open", "secret"] {
        std::fs::write(folder.path().join(format!("docs/{name}.html")), PAGE).unwrap();
        std::fs::write(folder.path().join(format!("docs/{name}.pdf")), PDF).unwrap();
        std::fs::write(folder.path().join(format!("docs/{name}.zip")), archive(&members)).unwrap();
    }
    let mut program = Program::serve(folder.path());
    for uri in [
        "file:///docs/NAME.html",
        "file:///docs/NAME.html?as=text",
        "file:///docs/NAME.html?as=original",
        "file:///docs/NAME.pdf?as=image&pages=1&width=50",
        "file:///docs/NAME.zip/inner/a.pdf?as=image&width=50",
        "file:///docs/NAME.zip",
        "file:///docs/NAME.zip/",
        "file:///docs/NAME.zip?as=text",
        "file:///docs/NAME.zip/inner/a.html",
        "file:///docs/NAME.zip/inner/a.html?as=text",
        // A rule about one member.
        "file:///docs/open.zip/inner/NAME.html",
        "file:///docs/open.zip/inner/NAME.html?as=text",
        // A rule about an archive in an archive.
        "file:///docs/open.zip/NAME.zip",
        "file:///docs/open.zip/NAME.zip/",
        "file:///docs/open.zip/NAME.zip/a.html?as=text",
    ] {
        program.assert_secret_is_absent(uri);
    }
    for uri in ["inner%2Fsecret.html", "secret.zip%2Fa.html", "inner//secret.html", "%73ecret.zip/a.html"] {
        let answer = program.read(&format!("file:///docs/open.zip/{uri}"));
        assert!(!is_allowed(&answer), "{uri}: {answer}");
    }
    let folder = program.read("file:///docs/").to_string();
    assert!(folder.contains("open.html") && !folder.contains("secret."), "{folder}");
    let listed = program.ask("resources/list", json!({})).to_string();
    assert!(listed.contains("open.html?as=text") && listed.contains("open.pdf?as=image"), "{listed}");
    assert!(!listed.contains("secret."), "{listed}");
    let mut complete = |query: &str, variable: &str, path: &str| {
        let template = format!("file:///docs/{{+path}}{query}");
        program.ask(
            "completion/complete",
            json!({
                "ref": { "type": "ref/resource", "uri": template },
                "argument": { "name": variable, "value": "" },
                "context": { "arguments": { "path": path } },
            }),
        )
    };
    let texts = "{?as,pages,sheet,rows,chapter,cells,mails,lines,content}";
    let images = "?as=image{&pages,width}";
    let values = |answer: Value| answer["result"]["completion"]["values"].clone();
    assert_eq!(values(complete(texts, "content", "open.html")), json!(["main", "all"]));
    assert_eq!(
        complete(texts, "content", "secret.zip/inner/a.ipynb"),
        complete(texts, "content", "absent.zip/inner/a.ipynb")
    );
    assert_eq!(values(complete(images, "pages", "open.pdf")), json!(["1"]));
    assert_eq!(complete(images, "pages", "secret.pdf"), complete(images, "pages", "absent.pdf"));
}

/// A rule about a path at `HEAD` holds for the text and the members at every revision and under every name.
#[cfg(feature = "documents")]
#[test]
fn rules_hold_for_the_texts_of_documents_in_a_repository() {
    let rules =
        ["secret.html", "secret.zip"].map(|path| deny(&format!("git://repo/tree/HEAD/{path}"))).concat();
    let folder = folder(&format!("[[git]]\npath = \"repo\"\n{rules}[[rule]]\naction = \"allow\"\n"));
    let repository = folder.path().join("repo");
    std::fs::create_dir(&repository).unwrap();
    for name in ["open", "secret"] {
        std::fs::write(repository.join(format!("{name}.html")), PAGE).unwrap();
        let data = archive(&[("inner/a.html", PAGE.as_bytes())]);
        std::fs::write(repository.join(format!("{name}.zip")), data).unwrap();
    }
    for arguments in [&["init", "-q", "-b", "main"][..], &["add", "."], &["commit", "-q", "-m", "first"]] {
        let identity = ["-c", "user.name=a", "-c", "user.email=a@a.example"];
        let git = Command::new("git").args(identity).args(arguments).current_dir(&repository).status();
        assert!(git.unwrap().success());
    }
    let mut program = Program::serve(folder.path());
    for kind in ["tree", "blob"] {
        for revision in ["HEAD", "main", "heads%2Fmain"] {
            for path in
                ["NAME.html?as=text", "NAME.zip/inner/a.html", "NAME.zip/inner/a.html?as=text", "NAME.zip/"]
            {
                program.assert_secret_is_absent(&format!("git://repo/{kind}/{revision}/{path}"));
            }
        }
    }
}

/// Rules about the members of an archive: its list does not name them, and a nested archive that is hidden hides its members.
#[cfg(feature = "documents")]
#[test]
fn hidden_members_of_an_archive_are_not_named() {
    let archive = |members: &[(&str, &[u8])]| {
        let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (name, data) in members {
            archive.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            archive.write_all(data).unwrap();
        }
        archive.finish().unwrap().into_inner()
    };
    let folder = folder(
        "[[rule]]\nuri = [\"file:///docs/box.zip/private/**\", \"file:///docs/box.zip/nested.zip\"]\n\
         action = \"deny\"\n[[rule]]\naction = \"allow\"\n",
    );
    let nested = archive(&[("c.txt", b"treasure")]);
    let members: &[(&str, &[u8])] = &[
        ("open/a.txt", b"open"),
        ("private/b.txt", b"treasure"),
        ("nested.zip", &nested),
        ("other.zip", &nested),
    ];
    std::fs::write(folder.path().join("docs/box.zip"), archive(members)).unwrap();
    let mut program = Program::serve(folder.path());
    for list in ["file:///docs/box.zip/", "file:///docs/box.zip?as=text"] {
        let text = program.read(list).to_string();
        assert!(text.contains("open") && text.contains("other.zip"), "{text}");
        assert!(!text.contains("box.zip/private") && !text.contains("nested"), "{text}");
    }
    assert!(program.read("file:///docs/box.zip/other.zip/c.txt").to_string().contains("treasure"));
    for hidden in [
        "file:///docs/box.zip/private/b.txt",
        "file:///docs/box.zip/private%2Fb.txt",
        "file:///docs/box.zip/nested.zip",
        "file:///docs/box.zip/nested.zip/",
        "file:///docs/box.zip/nested.zip/c.txt",
        "file:///docs/box.zip/nested.zip%2Fc.txt",
        "file:///docs/box.zip/nested.zip/c.txt?as=text",
        "file:///docs/box.zip/open/../nested.zip/c.txt",
    ] {
        let answer = program.read(hidden);
        assert_eq!(answer["error"]["message"], "resource not found", "{hidden}: {answer}");
    }
}

/// The schema of a database does not name the tables that a rule hides.
#[cfg(feature = "sql")]
#[test]
fn hidden_tables_are_not_in_the_schema_of_the_database() {
    let folder = folder(
        "[[sql]]\nurl = \"sqlite:shop.db\"\n[[rule]]\nuri = \"sqlite://shop/users/**\"\naction = \"deny\"\n\
         [[rule]]\nuser = \"ada\"\nuri = \"sqlite://shop/orders/schema\"\nrequire = \"orders\"\n\
         [[rule]]\naction = \"allow\"\n",
    );
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/shop.db");
    std::fs::copy(examples, folder.path().join("shop.db")).unwrap();
    let mut program = Program::serve(folder.path());
    for uri in [
        "sqlite://shop/schema",
        "sqlite://shop/schema?format=json",
        "sqlite://shop/",
        "sqlite://shop/items/schema",
        "sqlite://shop/items/",
    ] {
        let answer = program.read(uri).to_string();
        assert!(!answer.contains("users"), "{uri}: {answer}");
    }
    let schema = program.read("sqlite://shop/schema").to_string();
    assert!(schema.contains("items"), "{schema}");
    // What requires a scope may be named, but its columns are not shown.
    assert!(!schema.contains("sqlite://shop/orders/rows"), "{schema}");
}
