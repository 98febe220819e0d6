//! Live resources through the built program: clients of both eras, real files, real faults.

mod client;
mod database;
mod faults;
mod model;
mod reload;
mod storms;
