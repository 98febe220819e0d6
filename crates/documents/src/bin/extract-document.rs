//! The child process of an extraction as a separate program, for tests and for programs that embed the layer.

use std::process::ExitCode;

fn main() -> ExitCode {
    libris_documents::child::run()
}
