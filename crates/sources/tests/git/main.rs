//! Git repositories, made here with the `git` program and read without it.

mod contract;
mod sandbox;
