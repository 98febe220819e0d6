//! Where Libris and rmcp 3.8 answer differently, and why Libris is right or free to.

use crate::wire::Transport;

pub(crate) const LEGACY: &[&str] = &["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
pub(crate) const MODERN: &[&str] = &["2026-07-28"];

const STDIO: &[Transport] = &[Transport::Stdio];
const HTTP: &[Transport] = &[Transport::Http];
const BOTH: &[Transport] = &[Transport::Stdio, Transport::Http];

/// One difference. `libris` and `rmcp` are the JSON at `path`, or `absent`.
pub(crate) struct Deviation {
    pub(crate) revisions: &'static [&'static str],
    pub(crate) transports: &'static [Transport],
    pub(crate) cases: &'static [&'static str],
    pub(crate) path: &'static str,
    pub(crate) libris: &'static str,
    pub(crate) rmcp: &'static str,
    pub(crate) why: &'static str,
}

pub(crate) const DEVIATIONS: &[Deviation] = &[];
