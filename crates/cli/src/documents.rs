//! Documents as text: the key `documents` of the configuration, and the layer over the sources.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use libris::Source;
use libris_documents::{DocumentReader, Documents, PlainRead, ReaderConfig};
use libris_sources::settings;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The argument with which a server starts this program to extract a document.
pub(crate) const EXTRACT_COMMAND: &str = "extract-document";

/// What a read of a document returns if its URI has no parameter `as`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DocumentReading {
    /// The bytes; `?as=text` gives the text.
    #[default]
    Original,
    /// The text; `?as=original` gives the bytes.
    Text,
    /// The bytes. There are no texts, no images of pages and no archive members.
    Off,
}

/// Documents as text: one of the words `original`, `text` and `off`, or a table.
#[derive(Default, Clone, Debug, PartialEq)]
pub(crate) struct DocumentsConfig {
    keys: DocumentKeys,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DocumentKeys {
    /// What a read of a document returns if its URI has no parameter `as`: `original` for the bytes, or `text`. With
    /// `off`, there are only the bytes, and no archive members.
    read: DocumentReading,
    /// The size of the largest document whose text is extracted. At most 1 GiB.
    #[serde(deserialize_with = "settings::content_bytes")]
    max_size: u64,
    /// The size of the longest text of a document. At most 1 GiB.
    #[serde(deserialize_with = "settings::content_bytes")]
    max_text: u64,
    /// How much memory one extraction may use.
    #[serde(deserialize_with = "memory")]
    memory: u64,
    /// How much processor time one extraction may use. From 1 second to 1 hour.
    #[serde(deserialize_with = "time")]
    cpu_time: Duration,
    /// How long one extraction may take. From 1 second to 1 hour.
    #[serde(deserialize_with = "time")]
    timeout: Duration,
    /// How many documents are extracted at once.
    #[serde(deserialize_with = "settings::processes")]
    concurrent: usize,
    /// How many bytes of extracted text are cached in memory. Default: one and a half times `max_text`.
    #[serde(deserialize_with = "optional_cache_bytes")]
    cache_bytes: Option<u64>,
}

impl Default for DocumentKeys {
    fn default() -> Self {
        let ReaderConfig { limits, max_document, concurrency, .. } = reader_config();
        Self {
            read: DocumentReading::default(),
            max_size: max_document,
            max_text: limits.text,
            memory: limits.memory,
            cpu_time: limits.cpu,
            timeout: limits.wall,
            concurrent: concurrency,
            cache_bytes: None,
        }
    }
}

impl<'de> Deserialize<'de> for DocumentsConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrTable)
    }
}

struct WordOrTable;

impl<'de> Visitor<'de> for WordOrTable {
    type Value = DocumentsConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`\"original\"`, `\"text\"`, `\"off\"` or a table")
    }

    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<DocumentsConfig, E> {
        let read = DocumentReading::deserialize(serde::de::value::StrDeserializer::new(word))?;
        Ok(DocumentsConfig { keys: DocumentKeys { read, ..DocumentKeys::default() } })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DocumentsConfig, A::Error> {
        let keys = DocumentKeys::deserialize(MapAccessDeserializer::new(map))?;
        Ok(DocumentsConfig { keys })
    }
}

fn optional_cache_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    settings::cache_bytes(deserializer).map(Some)
}

fn memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    settings::bytes_within(deserializer, 64 << 20..=1 << 40)
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    settings::duration_within(deserializer, Duration::from_secs(1)..=Duration::from_secs(60 * 60))
}

/// The default configuration, with this program as the child.
fn reader_config() -> ReaderConfig {
    // After an upgrade, the path of the executable leads to another version; `/proc/self/exe` always leads to this one.
    let program = match cfg!(target_os = "linux") {
        true => "/proc/self/exe".into(),
        false => std::env::current_exe().unwrap_or_else(|_| "libris".into()),
    };
    ReaderConfig::new(program, [EXTRACT_COMMAND])
}

/// The layer over sources that serves documents as text. Clones share one reader.
#[derive(Clone)]
pub(crate) struct DocumentLayer {
    reader: Arc<DocumentReader>,
    plain: PlainRead,
}

impl DocumentLayer {
    /// The layer of a configuration; `None` if `documents` is `off`.
    pub(crate) fn new(config: &DocumentsConfig, cache_folder: Option<PathBuf>) -> Option<Self> {
        let keys = &config.keys;
        let plain = match keys.read {
            DocumentReading::Original => PlainRead::Original,
            DocumentReading::Text => PlainRead::Text,
            DocumentReading::Off => return None,
        };
        let mut reader = reader_config();
        reader.limits.text = keys.max_text;
        reader.limits.memory = keys.memory;
        reader.limits.cpu = keys.cpu_time;
        reader.limits.wall = keys.timeout;
        reader.max_document = keys.max_size;
        reader.concurrency = keys.concurrent;
        reader.cache_bytes = match keys.cache_bytes {
            Some(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
            None => ReaderConfig::cache_bytes_for(keys.max_text),
        };
        reader.cache_folder = cache_folder;
        Some(Self { reader: Arc::new(DocumentReader::new(reader)), plain })
    }

    /// The source with the texts of its documents.
    pub(crate) fn over(&self, source: Arc<dyn Source>) -> Arc<dyn Source> {
        Arc::new(Documents::new(source, self.reader.clone(), self.plain))
    }
}

#[cfg(test)]
mod tests {
    use super::{DocumentReading, DocumentsConfig};

    #[derive(serde::Deserialize)]
    struct DocumentsFile {
        documents: DocumentsConfig,
    }

    #[test]
    fn a_word_or_a_table() {
        let read = |text: &str| toml::from_str::<DocumentsFile>(text).map(|file| file.documents.keys);
        assert_eq!(read("documents = \"text\"").unwrap().read, DocumentReading::Text);
        let keys = read("[documents]\nread = \"off\"\nmemory = \"1GiB\"").unwrap();
        assert_eq!((keys.read, keys.memory), (DocumentReading::Off, 1 << 30));
        for wrong in [
            "documents = \"txt\"",
            "documents = 1",
            "[documents]\nreed = \"text\"",
            "[documents]\nmemory = 1",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
