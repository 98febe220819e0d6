//! Work that keeps a processor busy for long, on a thread of low priority, so that short requests go before it.

use std::io;

use tokio::sync::oneshot;

/// Runs `work` on a thread of its own; an error if the thread cannot be started or panics.
///
/// A thread of its own, since a priority that was lowered cannot be raised again without privileges.
pub(super) async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let (sender, result) = oneshot::channel();
    let work = move || {
        lower_priority();
        // Whoever asked may have gone.
        let _ = sender.send(work());
    };
    std::thread::Builder::new().name("long-search".into()).spawn(work)?;
    result.await.map_err(|_| io::Error::other("the thread panicked"))
}

/// Gives this thread the lowest priority. Elsewhere than on Linux it would be that of the whole process.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(cause) = rustix::process::setpriority_process(None, 19) {
        tracing::debug!(%cause, "could not lower the priority of a thread");
    }
}
