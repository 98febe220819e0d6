//! Extraction of small documents.
