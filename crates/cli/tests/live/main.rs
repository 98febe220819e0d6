//! Notifications through the binary: clients of both eras, real files and faults.

mod client;
mod database;
mod faults;
mod model;
mod outage;
mod read_after_write;
mod reload;
/// Database servers, as the tests of the sources start them.
#[allow(dead_code)]
#[path = "../../../sources/tests/sql/server.rs"]
mod server;
mod storms;
