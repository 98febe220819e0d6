//! Integration tests of the SQL source: on SQLite files, and on PostgreSQL and MariaDB servers that the tests start.

#![cfg(feature = "sql")]

mod abandoned;
mod caching;
mod contract;
mod database;
mod faults;
mod filters;
mod injection;
mod keys;
mod limits;
mod memory;
mod million;
mod outage;
mod queries;
mod schemas;
mod search;
mod server;
mod sessions;
mod tls;
mod transcript;
mod values;
mod watch;
