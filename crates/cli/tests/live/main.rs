//! Notifications through the binary: clients of both eras, real files and faults.
//!
//! On Windows only the model: the other tests need Unix signals, permissions or database servers.

#[cfg_attr(windows, allow(dead_code, reason = "the other tests use the rest"))]
mod client;
#[cfg(unix)]
mod database;
#[cfg(unix)]
mod faults;
mod model;
#[cfg(unix)]
mod outage;
#[cfg(unix)]
mod read_after_write;
#[cfg(unix)]
mod reload;
/// Database servers, as the tests of the sources start them.
#[cfg(unix)]
#[allow(dead_code)]
#[path = "../../../sources/tests/sql/server.rs"]
mod server;
#[cfg(unix)]
mod storms;
