//! Documents as text in the program: configuration, notifications, memory.

#![cfg(unix)]

#[path = "../live/client.rs"]
#[allow(dead_code, reason = "written for other tests")]
mod client;
mod program;
#[path = "../../../documents/tests/samples/mod.rs"]
mod samples;
