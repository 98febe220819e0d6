//! Documents as text in the program: configuration, notifications, hostile files, memory, processes.

#![cfg(unix)]

#[path = "../live/client.rs"]
#[allow(dead_code, reason = "written for other tests")]
mod client;
#[cfg(target_os = "linux")]
mod hostile;
mod program;
#[path = "../../../documents/tests/samples/mod.rs"]
mod samples;
