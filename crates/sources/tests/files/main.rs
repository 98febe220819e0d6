//! The files source, seen from outside.

mod complete;
mod confine;
mod filter;
mod list;
mod names;
mod paging;
mod read;
mod sandbox;
