//! Attackers run at low priority, because a real one has a machine of its own: what a bystander notices is then what
//! the server does, and not that the load generator takes its processor.

use std::sync::mpsc;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, Result, anyhow};
use rustix::process::{Pid, setpriority_process};
use rustix::thread::gettid;

/// The niceness of all threads that attack.
const NICE: i32 = 19;

type Job = Box<dyn FnOnce() + Send>;

/// The queue of the one thread that keeps its priority, and so starts whatever must not have a lower one.
static USUAL: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();

/// Lowers the priority of all threads of this process, and of those that they start.
pub(super) fn lower() -> Result<()> {
    let (sender, jobs) = mpsc::channel::<Job>();
    let (ready, id) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody waits for it any more where that fails.
        let _ = ready.send(gettid());
        jobs.iter().for_each(|job| job());
    });
    let usual = id.recv().context("a thread could not be started")?;
    USUAL.set(Mutex::new(sender)).map_err(|_| anyhow!("the priority is lowered already"))?;
    for entry in std::fs::read_dir("/proc/self/task")? {
        let thread = entry?.file_name().to_str().and_then(|id| Pid::from_raw(id.parse().ok()?));
        if let Some(thread) = thread.filter(|thread| *thread != usual) {
            setpriority_process(Some(thread), NICE).context("could not lower the priority")?;
        }
    }
    Ok(())
}

/// Runs this on a thread of usual priority, for processes and threads that it starts.
pub(super) fn usual<T: Send + 'static>(start: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (sender, started) = mpsc::channel();
    let job: Job = Box::new(move || drop(sender.send(start())));
    let queue = USUAL.get().context("the priority was not lowered")?;
    queue.lock().unwrap_or_else(PoisonError::into_inner).send(job).ok().context("the thread has ended")?;
    started.recv().context("the thread has ended")
}
