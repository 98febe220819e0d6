//! Databases, asked for real: SQLite in a file, PostgreSQL and MariaDB as servers that the tests start.

#![cfg(feature = "sql")]

mod abandoned;
mod contract;
mod database;
mod injection;
mod limits;
mod memory;
mod million;
mod outage;
mod queries;
mod schemas;
mod server;
mod values;
mod watch;
