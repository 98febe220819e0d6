//! A Model2Vec model of a few words, for tests.

use std::path::Path;

use serde_json::{Map, json};

/// Words that mean the same have the same number.
pub(crate) const MEANINGS: [(&str, usize); 12] = [
    ("a", 5),
    ("car", 0),
    ("automobile", 0),
    ("vehicle", 0),
    ("cook", 1),
    ("prepare", 1),
    ("meal", 1),
    ("backup", 2),
    ("copy", 2),
    ("the", 3),
    ("of", 4),
    ("is", 6),
];

/// The number of dimensions.
const DIMENSIONS: usize = 8;

/// Writes the model to a folder, with vectors for the first `rows` tokens only. The first token is the unknown one.
pub(crate) fn write(folder: &Path, rows: usize) {
    let words: Map<_, _> = [("[UNK]".to_owned(), json!(0))]
        .into_iter()
        .chain(MEANINGS.iter().enumerate().map(|(at, (word, _))| ((*word).to_owned(), json!(at + 1))))
        .collect();
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": { "type": "Lowercase" },
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": null,
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": words, "unk_token": "[UNK]" },
    });
    let meanings =
        [DIMENSIONS - 1].into_iter().chain(MEANINGS.iter().map(|(_, meaning)| *meaning)).take(rows);
    let values = meanings
        .flat_map(|meaning| (0..DIMENSIONS).map(move |at| if at == meaning { 1.0_f32 } else { -0.05 }));
    let data: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    let header = json!({
        "embeddings": { "dtype": "F32", "shape": [rows, DIMENSIONS], "data_offsets": [0, data.len()] },
    })
    .to_string();
    let mut tensors = (header.len() as u64).to_le_bytes().to_vec();
    tensors.extend_from_slice(header.as_bytes());
    tensors.extend_from_slice(&data);
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    std::fs::write(folder.join("model.safetensors"), tensors).unwrap();
    std::fs::write(folder.join("config.json"), r#"{ "normalize": true }"#).unwrap();
}

/// The number of tokens.
pub(crate) const TOKENS: usize = MEANINGS.len() + 1;
