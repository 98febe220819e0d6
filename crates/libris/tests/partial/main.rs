//! A catalog with sources that fail, hang or panic, under tokio's paused clock.

mod listing;
mod pagination;
mod reading;
mod spans;
mod toy;
mod views;
mod watching;
