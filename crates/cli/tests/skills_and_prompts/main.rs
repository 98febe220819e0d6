//! Directories, skills and prompts through the binary, in every revision.

mod directories;
mod prompts;
mod session;
mod skills;
