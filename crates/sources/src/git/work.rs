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

    /// Runs work on a blocking thread with one of [`MAX_CONCURRENT_TASKS`] permits. Fails if [`MAX_QUEUED_TASKS`]
    /// tasks already wait for a permit. The deadline of the task includes the wait. Work that is blocked in a system
    /// call holds its permit until it ends, so that there are never more threads than permits; its caller stops
    /// waiting [`DEADLINE_GRACE`] after the deadline.
    pub(super) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        task: Task,
        work: impl FnOnce(&Self, &TaskRepository<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let until = task.deadline.until();
        let busy = || Error::Unavailable(format!("the repository `{}` is busy: try again later", self.name));
        let permit = match Arc::clone(&self.running).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _queued = self.waiting.try_acquire().map_err(|_| busy())?;
                let permit = timeout_at(until.into(), Arc::clone(&self.running).acquire_owned());
                permit
                    .await
                    .map_err(|_| busy())?
                    .map_err(|cause| Error::failed("wait for the repository", cause))?
            }
        };
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

    use libris_core::{Context, Error, Result};

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

    async fn work<T: Send + 'static>(
        git: &Git,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        git.blocking(git.root(), &Context::default(), |_, _| work()).await
    }

    fn is_unavailable<T>(result: &Result<T>, why: &str) -> bool {
        matches!(result, Err(Error::Unavailable(said)) if said.contains(why))
    }

    #[tokio::test]
    async fn blocked_work_keeps_its_permit_and_its_caller_times_out() {
        let (_folder, git) = repository(Duration::from_millis(200));
        let git = Arc::new(git);
        let mut release = Vec::new();
        let mut blocked = Vec::new();
        for _ in 0..MAX_CONCURRENT_TASKS {
            let (send, receive) = mpsc::channel::<()>();
            release.push(send);
            let git = Arc::clone(&git);
            blocked.push(tokio::spawn(async move {
                work(&git, move || Ok(receive.recv_timeout(Duration::from_secs(60)))).await
            }));
        }
        while git.inner.running.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let queued = (0..MAX_QUEUED_TASKS + 10).map(|_| work(&git, || Ok(())));
        let queued = futures_util::future::join_all(queued).await;
        assert!(queued.iter().all(|result| is_unavailable(result, "busy")));
        for task in blocked {
            assert!(is_unavailable(&task.await.unwrap(), "does not answer"));
        }
        // Their callers have timed out, but their threads still hold the permits.
        assert_eq!(git.inner.running.available_permits(), 0);
        drop(release);
        while git.inner.running.available_permits() < MAX_CONCURRENT_TASKS {
            tokio::task::yield_now().await;
        }
        assert!(work(&git, || Ok(())).await.is_ok());
    }

    #[tokio::test]
    async fn the_queue_is_bounded() {
        let (_folder, git) = repository(Duration::from_secs(60));
        let git = Arc::new(git);
        let all =
            Arc::clone(&git.inner.running).acquire_many_owned(MAX_CONCURRENT_TASKS as u32).await.unwrap();
        let mut queued = tokio::task::JoinSet::new();
        for _ in 0..MAX_QUEUED_TASKS {
            let git = Arc::clone(&git);
            queued.spawn(async move { work(&git, || Ok(())).await });
        }
        while git.inner.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = tokio::time::timeout(Duration::from_secs(20), work(&git, || Ok(()))).await;
        assert!(is_unavailable(&refused.expect("it waits"), "busy"));
        drop(all);
        assert!(queued.join_all().await.iter().all(Result::is_ok));
    }
}
