//! Git repositories, made here with the `git` program and read without it.

#[cfg(unix)]
mod broken;
mod complete;
mod contract;
mod inject;
mod limits;
mod list;
mod program;
mod read;
mod sandbox;
mod shapes;
mod watch;
