//! Runs work on blocking threads: with limited concurrency, a bounded queue and a deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libris_core::{Context, Error, Result, Uri};
use tokio::time::timeout_at;

use super::repo::{Deadline, Task, TaskRepository};
use super::{Git, GitInner};

/// The maximum number of concurrent tasks of one repository. Each may hold a large file in memory.
pub(super) const MAX_CONCURRENT_TASKS: usize = 4;

/// The maximum number of tasks that wait for a permit.
pub(super) const MAX_QUEUED_TASKS: usize = 256;

/// How long after the deadline a caller waits for the task to end. A task checks the deadline itself, so a task that
/// takes longer must be blocked in a system call.
const DEADLINE_GRACE: Duration = Duration::from_secs(1);

impl Git {
    /// Runs work for a request that reads `uri`. Dropping the future cancels the work.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        uri: &Uri,
        context: &Context,
        work: impl FnOnce(&GitInner, &TaskRepository<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let cancel = CancelTaskOnDrop::default();
        let deadline = self.inner.deadline(Arc::clone(&cancel.gone));
        self.inner.blocking(Task { uri: uri.clone(), context: context.clone(), deadline }, work).await
    }
}

/// Cancels a task when the future of its caller is dropped.
#[derive(Default)]
struct CancelTaskOnDrop {
    gone: Arc<AtomicBool>,
}

impl Drop for CancelTaskOnDrop {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

impl GitInner {
    /// The deadline of a request that begins now; `gone` is set when the caller is gone.
    pub(super) fn deadline(&self, gone: Arc<AtomicBool>) -> Deadline {
        Deadline::new(Instant::now(), self.config.timeout, gone)
    }

    /// A task of the source itself, without a request.
    pub(super) fn own_task(&self) -> Task {
        let deadline = self.deadline(Arc::default());
        Task { uri: self.space.root.clone(), context: Context::default(), deadline }
    }

    /// Runs work on a blocking thread with one of [`MAX_CONCURRENT_TASKS`] permits, of which one client may have three
    /// quarters. The deadline of the task includes the wait for a permit. Work that is blocked in a system call holds its
    /// permit until it ends, so that there are never more threads than permits; its caller stops waiting
    /// [`DEADLINE_GRACE`] after the deadline.
    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        task: Task,
        work: impl FnOnce(&Self, &TaskRepository<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let until = task.deadline.until();
        let permit = timeout_at(until.into(), self.running.take(task.context.client(), 1)).await;
        let permit = permit.ok().flatten().ok_or_else(|| {
            Error::Unavailable(format!("the repository `{}` is busy: try again later", self.name))
        })?;
        let until = until + DEADLINE_GRACE;
        let inner = Arc::clone(self);
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            inner.repo.check(&inner.name)?;
            work(&inner, &inner.repo.for_task(task))
        });
        match timeout_at(until.into(), work).await {
            Ok(Ok(result)) => result,
            Ok(Err(cause)) => Err(Error::failed("finish reading the repository", cause)),
            Err(_) => {
                tracing::warn!(name = self.name, "a read of the repository is blocked in a system call");
                Err(Error::Unavailable(format!(
                    "the repository `{}` does not answer; hint: check the disk that it is on",
                    self.name
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use libris_core::{Client, Context, Error, Result};

    use super::{Git, MAX_CONCURRENT_TASKS, MAX_QUEUED_TASKS};
    use crate::git::Config;

    /// An empty repository, created without running git.
    fn repository(timeout: Duration) -> (tempfile::TempDir, Git) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["objects", "refs"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        std::fs::write(folder.path().join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let git = Git::open(Config { timeout, name: Some("repo".into()), ..Config::new(folder.path()) });
        (folder, git.unwrap())
    }

    fn client(number: u8) -> Client {
        Client::at([10, 0, 0, number].into())
    }

    /// Runs work for a client with this number.
    async fn work<T: Send + 'static>(
        git: &Git,
        number: u8,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let context = Context::default().with_client(client(number));
        git.blocking(git.root(), &context, |_, _| work()).await
    }

    fn is_unavailable<T>(result: &Result<T>, why: &str) -> bool {
        matches!(result, Err(Error::Unavailable(said)) if said.contains(why))
    }

    /// Starts work that blocks until the sender is dropped.
    fn block(
        git: &Arc<Git>,
        number: u8,
    ) -> (mpsc::Sender<()>, tokio::task::JoinHandle<Result<Result<(), mpsc::RecvTimeoutError>>>) {
        let (send, receive) = mpsc::channel::<()>();
        let git = Arc::clone(git);
        let blocked = tokio::spawn(async move {
            work(&git, number, move || Ok(receive.recv_timeout(Duration::from_secs(60)))).await
        });
        (send, blocked)
    }

    #[tokio::test]
    async fn blocked_work_keeps_its_permit_and_its_caller_times_out() {
        let (_folder, git) = repository(Duration::from_millis(200));
        let git = Arc::new(git);
        let (release, blocked): (Vec<_>, Vec<_>) =
            [1, 1, 1, 2].map(|number| block(&git, number)).into_iter().unzip();
        while git.inner.running.used() < MAX_CONCURRENT_TASKS {
            tokio::task::yield_now().await;
        }
        let queued = (0..MAX_QUEUED_TASKS + 10).map(|_| work(&git, 3, || Ok(())));
        let queued = futures_util::future::join_all(queued).await;
        assert!(queued.iter().all(|result| is_unavailable(result, "busy")));
        for task in blocked {
            assert!(is_unavailable(&task.await.unwrap(), "does not answer"));
        }
        // Their callers have timed out, but their threads still hold the permits.
        assert_eq!(git.inner.running.used(), MAX_CONCURRENT_TASKS);
        drop(release);
        while git.inner.running.used() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(work(&git, 3, || Ok(())).await.is_ok());
    }

    #[tokio::test]
    async fn the_queue_is_bounded() {
        let (_folder, git) = repository(Duration::from_secs(60));
        let git = Arc::new(git);
        let all =
            [(1, 3), (2, 1)].map(|(number, permits)| git.inner.running.try_take(client(number), permits));
        let wait = |number| Box::pin(work(&git, number, || Ok(())));
        let mut queued: Vec<_> = (0..MAX_QUEUED_TASKS).map(|at| wait(3 + (at % 2) as u8)).collect();
        assert!(queued.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
        let refused = tokio::time::timeout(Duration::from_secs(20), work(&git, 5, || Ok(()))).await;
        assert!(is_unavailable(&refused.expect("it does not wait"), "busy"));
        drop(all);
        let queued = futures_util::future::join_all(queued).await;
        assert!(queued.iter().all(Result::is_ok));
    }

    #[tokio::test]
    async fn tasks_of_one_client_leave_a_permit_to_others() {
        let (_folder, git) = repository(Duration::from_secs(60));
        let git = Arc::new(git);
        let (release, blocked): (Vec<_>, Vec<_>) = (0..8).map(|_| block(&git, 1)).unzip();
        while git.inner.running.used() < MAX_CONCURRENT_TASKS - 1 {
            tokio::task::yield_now().await;
        }
        let other = tokio::time::timeout(Duration::from_secs(20), work(&git, 2, || Ok(()))).await;
        assert!(other.expect("another client is served").is_ok());
        drop(release);
        for task in blocked {
            assert!(task.await.unwrap().is_ok());
        }
    }
}
