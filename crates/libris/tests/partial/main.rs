//! A catalog with sources that fail, hang or panic, under tokio's paused clock.

mod absence;
mod listing;
mod pagination;
mod reading;
mod spans;
mod toy;
mod transcript;
mod views;
mod watching;
