//! Static embeddings: vectors of texts, so that a text is found by what it means. The model is a folder that the user
//! gives; nothing is ever downloaded.

#[cfg(feature = "embeddings")]
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
#[cfg(feature = "embeddings")]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The largest file of a model, in bytes.
#[cfg(feature = "embeddings")]
const MAX_FILE: u64 = 1 << 30;

/// The number of dimensions whose signs the index stores.
pub(crate) const SIGNS: usize = 256;

/// The number of 64-bit words that the signs of a section take.
pub(crate) const SIGN_WORDS: usize = SIGNS / 64;

/// The bytes that the index has for the vector of each section.
pub(crate) const BYTES_PER_SECTION: usize = SIGNS / 8;

/// Why an embedding model cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The program was built without the feature `embeddings`.
    #[error(
        "this program has no support for embedding models; hint: build it with the feature `embeddings`, or remove \
         `search.model`"
    )]
    Unsupported,
    /// A file of the model is missing, too large or unreadable.
    #[error(
        "`{file}` of the embedding model cannot be read; hint: set `search.model` to a folder with the files \
         `tokenizer.json`, `model.safetensors` and `config.json` of a Model2Vec model"
    )]
    Unreadable {
        /// The name of the file.
        file: &'static str,
        /// Why it cannot be read.
        #[source]
        cause: io::Error,
    },
    /// The files are no valid model.
    #[error(
        "the embedding model is damaged or not of Model2Vec; hint: copy its files again, or set another `search.model`"
    )]
    Damaged(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A Model2Vec model in memory.
pub struct EmbeddingModel {
    #[cfg(feature = "embeddings")]
    model: model2vec_rs::model::StaticModel,
    #[cfg(feature = "embeddings")]
    fingerprint: u64,
    #[cfg(feature = "embeddings")]
    bytes: usize,
    has_failed: AtomicBool,
}

impl EmbeddingModel {
    /// Reads the model in a folder.
    #[cfg(not(feature = "embeddings"))]
    pub fn open(_folder: &Path) -> Result<Self, ModelError> {
        Err(ModelError::Unsupported)
    }

    /// Reads the model in a folder.
    #[cfg(feature = "embeddings")]
    pub fn open(folder: &Path) -> Result<Self, ModelError> {
        let read = |file: &'static str| -> Result<Vec<u8>, ModelError> {
            let path = folder.join(file);
            let data = std::fs::metadata(&path).and_then(|data| match data.len() {
                0..=MAX_FILE => std::fs::read(&path),
                _ => Err(io::Error::other(format!("it has more than {MAX_FILE} bytes"))),
            });
            data.map_err(|cause| ModelError::Unreadable { file, cause })
        };
        let files = [read("tokenizer.json")?, read("model.safetensors")?, read("config.json")?];
        let [tokenizer, tensors, config] = &files;
        // The crate checks the sizes of the tensors, but some damage causes a panic.
        let parsed = catch_unwind(|| {
            model2vec_rs::model::StaticModel::from_bytes(tokenizer, tensors, config, Some(true))
                .map(model2vec_rs::model::StaticModel::quantize_int8)
        });
        let model = match parsed {
            Ok(parsed) => parsed.map_err(|cause| ModelError::Damaged(cause.into()))?,
            Err(_) => return Err(ModelError::Damaged("reading it panicked".into())),
        };
        let mut hasher = DefaultHasher::new();
        files.hash(&mut hasher);
        let bytes = files.iter().map(Vec::len).sum();
        let model = Self { model, fingerprint: hasher.finish(), bytes, has_failed: AtomicBool::new(false) };
        model.vector("a b c d e f g h i j k l m n o p q r s t u v w x y z");
        match model.has_failed() {
            true => Err(ModelError::Damaged("it has no vectors for some of its tokens".into())),
            false => Ok(model),
        }
    }

    /// The vector of a text, of length 1; `None` if the model knows none of its words.
    #[cfg(feature = "embeddings")]
    pub(crate) fn vector(&self, text: &str) -> Option<Vec<f32>> {
        if self.has_failed() {
            return None;
        }
        let encoded = catch_unwind(AssertUnwindSafe(|| self.model.encode_single(text)));
        let vector = encoded.inspect_err(|_| self.has_failed.store(true, Ordering::Relaxed)).ok()?;
        if !vector.iter().all(|value| value.is_finite()) {
            self.has_failed.store(true, Ordering::Relaxed);
            return None;
        }
        vector.iter().any(|value| *value != 0.0).then_some(vector)
    }

    /// The vector of a text, of length 1; `None` if the model knows none of its words.
    #[cfg(not(feature = "embeddings"))]
    pub(crate) fn vector(&self, _text: &str) -> Option<Vec<f32>> {
        None
    }

    /// Whether the model turned out to be damaged when it was used. Then it is not used any more.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// A hash of the files of the model.
    #[cfg(feature = "embeddings")]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// A hash of the files of the model.
    #[cfg(not(feature = "embeddings"))]
    pub fn fingerprint(&self) -> u64 {
        0
    }

    /// The memory of the model, in bytes: at most the size of its files.
    #[cfg(feature = "embeddings")]
    pub fn memory(&self) -> usize {
        self.bytes
    }

    /// The memory of the model, in bytes.
    #[cfg(not(feature = "embeddings"))]
    pub fn memory(&self) -> usize {
        0
    }
}

/// The signs of the first [`SIGNS`] dimensions, one bit each.
pub(crate) fn signs(vector: &[f32]) -> [u64; SIGN_WORDS] {
    let mut signs = [0; SIGN_WORDS];
    for (at, _) in vector.iter().take(SIGNS).enumerate().filter(|(_, value)| **value > 0.0) {
        signs[at / 64] |= 1 << (at % 64);
    }
    signs
}

/// The text of a section that determines its vector.
pub(crate) fn section_text(heading: &str, text: &str) -> String {
    format!("{heading}\n{text}")
}
