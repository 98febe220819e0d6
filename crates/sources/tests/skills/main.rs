//! The skills source: what it publishes, and what it serves of it.

mod contract;
mod limits;
mod publication;
mod shelf;
mod transcript;
mod watch;
