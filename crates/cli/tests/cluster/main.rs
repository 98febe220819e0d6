//! Replicas of the binary on a real Redis: changes, sessions and faults.
//!
//! Each replica serves a folder of its own under the same name, so that the others learn of its changes only through
//! Redis.

#![cfg(target_os = "linux")]

mod addresses;
mod balancer;
mod cache;
mod changes;
#[allow(dead_code, reason = "the tests of notifications use more of it")]
#[path = "../live/client.rs"]
mod client;
mod faults;
mod history;
mod index;
mod limits;
mod polling;
mod replicas;
mod service;
mod sessions;
mod storm;
#[allow(dead_code, reason = "the tests of gateways use more of it")]
#[path = "../remote/toolbox.rs"]
mod toolbox;
#[path = "../remote/upstream.rs"]
mod upstream;
