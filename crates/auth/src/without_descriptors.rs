//! Tests of a process that has no free file descriptors.

use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The environment variable that marks the child process in which a test exhausts the file descriptors.
const CHILD: &str = "LIBRIS_TEST_DESCRIPTORS";

/// Runs the test of this name again in a child process, so that its resource limits affect no other test. Returns
/// whether this is the child process.
pub(crate) fn is_child(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
    false
}

/// A process that cannot open files, until this is dropped.
pub(crate) struct NoDescriptors(Rlimit);

impl NoDescriptors {
    pub(crate) fn begin() -> Self {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
        Self(before)
    }
}

impl Drop for NoDescriptors {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.0).unwrap();
    }
}
