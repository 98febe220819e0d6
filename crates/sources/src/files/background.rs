//! Long CPU-bound work on a thread of low priority, so that short requests are not delayed.

use std::io;

use tokio::sync::oneshot;

/// Runs `work` on a new thread; an error if the thread cannot be started or panics.
///
/// The thread is not reused, since raising a lowered priority requires privileges.
pub(super) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (sender, result) = oneshot::channel();
    let work = move || {
        lower_priority();
        // The caller may have been cancelled.
        let _ = sender.send(work());
    };
    std::thread::Builder::new().name("long-search".into()).spawn(work)?;
    result.await.map_err(|_| io::Error::other("the thread panicked"))
}

/// Gives this thread the lowest priority. Linux only: elsewhere the call would affect the whole process.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(cause) = rustix::process::setpriority_process(None, 19) {
        tracing::debug!(%cause, "could not lower the priority of a thread");
    }
}
