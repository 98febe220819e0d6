//! The layer over real sources, with real child processes.

#![cfg(unix)]

mod added;
mod contract;
mod hostile;
mod images;
mod memory;
mod other_queries;
mod parts;
mod processes;
#[path = "../samples/mod.rs"]
mod samples;
mod selection;
mod transcript;

use std::path::Path;
use std::sync::Arc;

use libris_core::{ContentBody, Context, Result, Source, Uri};
use libris_documents::{DocumentReader, Documents, PlainRead, ReaderConfig};
use libris_sources::{Files, files};

/// A reader whose child is the built binary.
fn reader(change: impl FnOnce(&mut ReaderConfig)) -> Arc<DocumentReader> {
    let mut config = ReaderConfig::new(env!("CARGO_BIN_EXE_extract-document"), None::<&str>);
    // Tests run on slow machines, with a child that is not optimised.
    config.limits.cpu = std::time::Duration::from_secs(600);
    config.limits.wall = std::time::Duration::from_secs(600);
    change(&mut config);
    Arc::new(DocumentReader::new(config))
}

/// A folder as the source `file:///docs/`.
fn folder(path: &Path) -> Arc<dyn Source> {
    let mut config = files::Config::new(path);
    config.mount = Some("docs".into());
    Arc::new(Files::open(config).unwrap())
}

/// The documents of a folder.
fn documents(path: &Path) -> Documents {
    Documents::new(folder(path), reader(|_| {}), PlainRead::Original)
}

fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

/// The text at a URI.
async fn read(source: &dyn Source, text: &str) -> Result<String> {
    let contents = source.read(&uri(text), &Context::default()).await?;
    assert_eq!(contents.parts.len(), 1);
    assert_eq!(contents.parts[0].uri, uri(text));
    match contents.parts.into_iter().next().unwrap().body {
        ContentBody::Text(text) => Ok(text),
        ContentBody::Bytes(bytes) => Ok(format!("{} bytes", bytes.len())),
    }
}

/// The message of a read that fails.
async fn refusal(source: &dyn Source, text: &str) -> String {
    match read(source, text).await {
        Ok(text) => panic!("it reads as {text:?}"),
        Err(error) => error.to_string(),
    }
}
