//! Integration tests of the git source. The `git` program creates the repositories; the source reads them without it.

mod blame;
#[cfg(unix)]
mod broken;
mod caching;
mod complete;
mod contract;
mod descriptors;
mod folder;
mod inject;
mod limits;
mod list;
mod program;
mod read;
mod sandbox;
mod shapes;
mod teach;
mod transcript;
mod watch;
mod work_tree;
