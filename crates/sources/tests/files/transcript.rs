//! What a client gets from a folder: its list and templates, a folder, a part of a file, and wrong URIs.

use std::fmt::Write;
use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use libris_core::{ContentBody, Context, Source, Uri};
use libris_sources::Files;
use libris_sources::files::Config;
use tempfile::TempDir;

/// A small handbook.
fn handbook(change: impl FnOnce(&mut Config)) -> (TempDir, Files) {
    let outside = TempDir::new().unwrap();
    let folder = outside.path().join("handbook");
    let log: String = (1..=600).map(|line| format!("line {line}\n")).collect();
    let files: &[(&str, &[u8])] = &[
        ("README.md", b"# The handbook\n\nHow we work.\n"),
        ("build.log", log.as_bytes()),
        ("guide/first-day.html", b"<!doctype html><title>Your first day</title><p>Welcome.\n"),
        ("guide/on-call.md", b"---\ntitle: On call\ndescription: Who answers at night.\n---\n\nAda.\n"),
        ("guide/rates.ipynb", br##"{"cells": [{"cell_type": "markdown", "source": ["# Growth rates\n"]}]}"##),
        ("licences/ada/copyright", b"Copyright Ada\n"),
        ("licences/bob/copyright", b"Copyright Bob\n"),
        ("logo.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0"),
    ];
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for (path, content) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        File::open(path).unwrap().set_modified(time).unwrap();
    }
    let mut config = Config::new(folder);
    change(&mut config);
    let files = Files::open(config).unwrap();
    (outside, files)
}

/// The requests of a client with their results, for people.
struct Transcript<'a> {
    files: &'a Files,
    text: String,
}

impl<'a> Transcript<'a> {
    fn new(files: &'a Files) -> Self {
        Self { files, text: String::new() }
    }

    async fn list(&mut self) {
        self.text.push_str("> resources/list\n");
        for resource in self.files.list(None, 100, &Context::default()).await.unwrap().resources {
            let _ = write!(self.text, "{} {}", resource.uri, resource.mime.unwrap());
            let _ = resource.size.map(|size| write!(self.text, " {size} bytes"));
            let _ = write!(self.text, "\n    name: {}\n", resource.name);
            let _ = resource.title.map(|title| writeln!(self.text, "    title: {title}"));
            let _ = resource.description.map(|text| writeln!(self.text, "    description: {text}"));
        }
        self.text.push('\n');
    }

    async fn templates(&mut self) {
        self.text.push_str("> resources/templates/list\n");
        for template in self.files.templates(&Context::default()).await.unwrap().templates {
            let (title, description) = (template.title.unwrap(), template.description.unwrap());
            let (uri, name) = (template.uri, template.name);
            let _ = write!(
                self.text,
                "{uri}\n    name: {name}\n    title: {title}\n    description: {description}\n"
            );
        }
        self.text.push('\n');
    }

    async fn read(&mut self, uri: &str) {
        let _ = writeln!(self.text, "> resources/read {uri}");
        match self.files.read(&Uri::parse(uri).unwrap(), &Context::default()).await {
            Ok(contents) => {
                for part in contents.parts {
                    let _ = writeln!(self.text, "{} {}", part.uri, part.mime.unwrap());
                    for (key, value) in part.meta.iter().flatten() {
                        let _ = writeln!(self.text, "_meta {key}: {value}");
                    }
                    let _ = match part.body {
                        ContentBody::Text(text) => writeln!(self.text, "{text}"),
                        ContentBody::Bytes(bytes) => {
                            writeln!(self.text, "({} bytes as base64)\n", bytes.len())
                        }
                    };
                }
            }
            Err(error) => {
                let _ = writeln!(self.text, "error: {error}\n");
            }
        }
    }
}

#[tokio::test]
async fn list_of_a_folder() {
    let (_outside, files) = handbook(|_| ());
    let mut transcript = Transcript::new(&files);
    transcript.list().await;
    transcript.templates().await;
    insta::assert_snapshot!(transcript.text);
}

#[tokio::test]
async fn list_with_limits() {
    let (_outside, files) = handbook(|config| {
        config.scheme = Some("docs".into());
        config.title = Some("Our handbook".into());
        config.depth = Some(1);
        config.max_listed = Some(4);
    });
    let mut transcript = Transcript::new(&files);
    transcript.list().await;
    transcript.templates().await;
    transcript.read("docs://handbook/licences/").await;
    insta::assert_snapshot!(transcript.text);
}

#[tokio::test]
async fn read_of_folders() {
    let (_outside, files) = handbook(|_| ());
    let mut transcript = Transcript::new(&files);
    transcript.read("file:///handbook/").await;
    transcript.read("file:///handbook/guide/").await;
    insta::assert_snapshot!(transcript.text);
}

#[tokio::test]
async fn read_of_parts() {
    let (_outside, files) = handbook(|_| ());
    let mut transcript = Transcript::new(&files);
    for part in ["lines=1-3", "lines=4-6", "lines=599-700", "lines=-2", "bytes=0-13"] {
        transcript.read(&format!("file:///handbook/build.log?{part}")).await;
    }
    insta::assert_snapshot!(transcript.text);
}

#[tokio::test]
async fn wrong_uris() {
    let (_outside, files) = handbook(|_| ());
    let mut transcript = Transcript::new(&files);
    for path in [
        "REDME.md",
        "guide/oncall.md",
        "guid/on-call.md",
        "nothing-like-it",
        "licences/ada/copyright/x",
        "README.md/",
        "guide/on-call.md?line=1-5",
        "guide/?lines=1-5",
        "guide/on-call.md?format=json",
        "build.log?lines=700-",
    ] {
        transcript.read(&format!("file:///handbook/{path}")).await;
    }
    insta::assert_snapshot!(transcript.text);
}

#[tokio::test]
async fn a_single_file() {
    let (outside, _) = handbook(|_| ());
    let files = Files::open(Config::new(outside.path().join("handbook/README.md"))).unwrap();
    let mut transcript = Transcript::new(&files);
    transcript.list().await;
    transcript.templates().await;
    transcript.read("file:///README.md").await;
    transcript.read("file:///README.md?lines=1").await;
    insta::assert_snapshot!(transcript.text);
}
