//! The tools of a server, over stdio and HTTP, in every protocol revision.

mod calls;
mod hidden;
mod host;
mod hostile;
mod index;
mod optional;
