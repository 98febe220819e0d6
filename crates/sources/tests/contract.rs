//! The contract suite, on the files and inline sources.

use std::fs;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use libris_core::contract::{Fixture, check};
use libris_core::{Source, Uri};
use libris_sources::{Files, Inline, files, inline};
use tempfile::TempDir;

struct Folder {
    dir: TempDir,
    files: Files,
}

impl Folder {
    fn with(paths: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        for path in paths {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, path.as_os_str().as_encoded_bytes()).unwrap();
        }
        let mut config = files::Config::new(dir.path());
        config.mount = Some("docs".into());
        Self { files: Files::open(config).unwrap(), dir }
    }

    fn path(&self, uri: &Uri) -> std::path::PathBuf {
        self.dir.path().join(uri.path().strip_prefix("/docs/").unwrap())
    }
}

#[async_trait]
impl Fixture for Folder {
    fn source(&self) -> &dyn Source {
        &self.files
    }

    fn unknown(&self) -> Uri {
        Uri::parse("file:///docs/no/such/file").unwrap()
    }

    fn invalid(&self) -> Vec<Uri> {
        ["..%2f..%2fetc%2fpasswd", "%00", ".git/config", "?lines=0", "?lines=1", "?bytes=x", "a%2Fb"]
            .map(|path| Uri::parse(&format!("file:///docs/{path}")).unwrap())
            .into()
    }

    async fn add(&self, number: usize) -> Option<Uri> {
        let uri = Uri::parse(&format!("file:///docs/added-{number}.txt")).unwrap();
        fs::write(self.path(&uri), "added").unwrap();
        Some(uri)
    }

    async fn change(&self, uri: &Uri) -> bool {
        fs::write(self.path(uri), "changed").is_ok()
    }

    async fn remove(&self, uri: &Uri) -> bool {
        fs::remove_file(self.path(uri)).is_ok()
    }

    async fn deadline(&self) {
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

#[tokio::test]
async fn a_flat_folder() {
    check(&Folder::with(&["a.md", "b.txt", "c.png", "d", "e.json"])).await;
}

#[tokio::test]
async fn a_nested_folder() {
    check(&Folder::with(&["a/b/c/d.md", "a/b/e.md", "a!/f", "a.txt", "g/h", "g/i/j/k"])).await;
}

#[tokio::test]
async fn a_folder_of_odd_names() {
    check(&Folder::with(&["100%/50%25", "a b/c#d", "wh?at/[x]", "日本/語", "new\nline", "a;b:c@d&e=f+g"]))
        .await;
}

struct Written {
    inline: Inline,
}

#[async_trait]
impl Fixture for Written {
    fn source(&self) -> &dyn Source {
        &self.inline
    }

    fn unknown(&self) -> Uri {
        Uri::parse("config://app/nothing").unwrap()
    }

    async fn deadline(&self) {
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

#[tokio::test]
async fn inline_resources() {
    let config: inline::Config = toml::from_str(
        r#"
        resource = [
            { uri = "config://app/settings", text = "{}", mime = "application/json" },
            { uri = "config://app/logo", base64 = "iVBORw0KGgoAAAANSUhEUg==" },
            { uri = "config://app/manifest", file = "Cargo.toml" },
            { uri = "note://one", text = "1" },
            { uri = "note://two", text = "2" },
        ]
        template = [
            { uri = "greeting://{name}{?tone}", text = "{{name}}", complete = { name = ["Ada", "Al", "Bo"] } },
        ]
        "#,
    )
    .unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    check(&Written { inline: Inline::new(config, folder).unwrap() }).await;
}

#[cfg(unix)]
mod commands {
    use super::{Duration, Fixture, Path, Source, Uri, async_trait, check};
    use libris_sources::{Commands, command};

    struct Printed(Commands);

    #[async_trait]
    impl Fixture for Printed {
        fn source(&self) -> &dyn Source {
            &self.0
        }

        fn unknown(&self) -> Uri {
            Uri::parse("manifest://nothing").unwrap()
        }

        fn invalid(&self) -> Vec<Uri> {
            [
                "say://-rf",
                "say://..%2F..%2Fetc%2Fpasswd",
                "say://a%00",
                "say://$(id)",
                "say://",
                "log://system?lines=0",
                "log://system?bytes=x",
                "log://system?other=1",
            ]
            .map(|uri| Uri::parse(uri).unwrap())
            .into()
        }

        async fn deadline(&self) {
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }

    #[tokio::test]
    async fn commands() {
        #[derive(serde::Deserialize)]
        struct File {
            command: Vec<command::Config>,
        }
        let file: File = toml::from_str(
            r#"
            command = [
                { uri = "clock://now", run = ["date"], mime = "text/plain", poll = "1s" },
                { uri = "log://system{?lines,bytes}", run = ["seq", "100"], cache = "1h" },
                { uri = "picture://zero", run = ["printf", "\\0\\1"] },
                { uri = "nothing://here", run = ["true"] },
                { uri = "manifest://{name}", run = ["cat", "{{name}}"], exit = { 1 = "not-found" }, complete = { name = { run = ["find", "-maxdepth", "1", "-name", "*.toml", "-printf", "%f\\n"] } } },
                { uri = "say://{word}{?twice}", run = ["echo", "{{word}}", "{{twice}}"], default = { twice = "no" }, complete = { word = ["Ada", "Al", "Bo"] } },
            ]
            "#,
        )
        .unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        check(&Printed(Commands::new(file.command, folder).unwrap())).await;
    }
}
