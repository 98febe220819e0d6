//! A catalog some of whose sources fail, hang or panic, in a time that the tests move themselves.

mod listing;
mod pagination;
mod reading;
mod toy;
mod views;
mod watching;
