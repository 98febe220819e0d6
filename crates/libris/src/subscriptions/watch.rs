//! The watch of a hub: opened once for all listeners, debounced, and stopped when the last listener has left.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{FutureExt as _, Shared as SharedFuture};
use futures_util::stream::BoxStream;
use libris_core::{Change, Context, Error, Prompt, Result, SourceTool, SourceTools, Uri};
use tokio::sync::oneshot;
use tokio::time::{Instant, Interval, sleep_until, timeout};

use super::{REGISTRY_BATCH, SubscriptionHubState};
use crate::lock::lock;
use crate::rights::Operation;

/// How long a request waits for the watch to open before it fails. The watch continues to open, for the next request.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The shortest interval between two `list_changed` if only descriptions or sizes changed: a growing log file must not
/// make every client list again twenty times a second.
const DESCRIBED_PAUSE: Duration = Duration::from_secs(1);

/// While the list keeps changing, the interval between two `list_changed` doubles up to this, so that a `git checkout`
/// that takes a minute does not cause a thousand notifications. The interval ends early when the list has not changed
/// for [`SETTLE_TIME`].
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// How long the watch stays open after the last listener has left, because clients reconnect.
const WATCH_LINGER: Duration = Duration::from_secs(5);

/// The state of the watch.
#[derive(Default)]
pub(super) enum WatchState {
    #[default]
    Stopped,
    /// A task is opening the watch; the future resolves to the outcome.
    Opening(SharedFuture<oneshot::Receiver<Result<(), Arc<Error>>>>),
    Running,
}

impl WatchState {
    pub(super) fn is_running(&self) -> bool {
        matches!(self, Self::Running)
    }
}

/// A drop guard of the task that opens and runs the watch: when the task ends, even by a panic, the state is stopped.
struct WatchTask {
    shared: Arc<SubscriptionHubState>,
    stopped: bool,
}

impl WatchTask {
    fn set(&mut self, state: WatchState) {
        self.stopped = matches!(state, WatchState::Stopped);
        *lock(&self.shared.watch) = state;
    }

    /// Stops the watch if there are no listeners. Returns whether it has stopped.
    fn stop_if_deserted(&mut self) -> bool {
        // A listener registers before it requests the watch, so this count includes every listener that found the
        // watch running.
        let mut watch = lock(&self.shared.watch);
        let deserted = lock(&self.shared.registry).listeners() == 0;
        if deserted {
            *watch = WatchState::Stopped;
            self.stopped = true;
        }
        deserted
    }
}

impl Drop for WatchTask {
    fn drop(&mut self) {
        if !self.stopped {
            self.set(WatchState::Stopped);
        }
    }
}

/// Detects that all listeners have left.
struct ListenerAbsence {
    ticks: Interval,
    deserted: bool,
}

impl ListenerAbsence {
    fn new() -> Self {
        Self { ticks: tokio::time::interval(WATCH_LINGER), deserted: false }
    }

    /// Waits until two consecutive ticks find no listeners, and stops the watch.
    async fn stop_when_deserted(&mut self, task: &mut WatchTask) {
        loop {
            self.ticks.tick().await;
            let deserted = lock(&task.shared.registry).listeners() == 0;
            if deserted && self.deserted && task.stop_if_deserted() {
                return;
            }
            self.deserted = deserted;
        }
    }
}

impl SubscriptionHubState {
    /// Opens the watch unless it is running. When this succeeds, no later change that the source reports is missed.
    pub(super) async fn ensure_watched(self: &Arc<Self>) -> Result<()> {
        let opening = match &mut *lock(&self.watch) {
            WatchState::Running => return Ok(()),
            WatchState::Opening(opening) => opening.clone(),
            state => {
                let (outcome, opening) = oneshot::channel();
                let opening = opening.shared();
                *state = WatchState::Opening(opening.clone());
                tokio::spawn(run(WatchTask { shared: self.clone(), stopped: false }, outcome));
                opening
            }
        };
        match timeout(OPEN_TIMEOUT, opening).await {
            Ok(Ok(outcome)) => outcome.map_err(|error| Error::from_shared(&error)),
            Ok(Err(ended)) => Err(Error::failed("watch for changes", ended)),
            Err(_) => Err(Error::Unavailable(format!(
                "watching for changes could not be started within {} seconds; try again later",
                OPEN_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Notifies the subscribers of all changed subjects, in batches that release the registry lock in between.
    async fn notify_changed(&self) {
        let changed = lock(&self.registry).take_changed();
        for batch in changed.chunks(REGISTRY_BATCH) {
            lock(&self.registry).notify_changed(batch);
            tokio::task::yield_now().await;
        }
    }

    /// Lists the prompts and the tools of the source.
    async fn features(&self) -> ListedFeatures {
        let context = Context::default();
        let (prompts, tools) = tokio::join!(self.source.prompts(&context), async {
            match self.source.has_tools() {
                true => self.source.tools(&context).await,
                false => Ok(SourceTools::default()),
            }
        });
        ListedFeatures {
            prompts: prompts.ok().map(|prompts| prompts.prompts),
            tools: tools.ok().map(|tools| tools.tools),
        }
    }

    /// Lists the prompts and the tools again, and notifies the listeners that follow a list that changed.
    async fn notify_features(&self, known: &mut ListedFeatures) {
        let before = std::mem::replace(known, self.features().await);
        let registry = lock(&self.registry);
        if before.prompts != known.prompts {
            registry.notify_prompts();
        }
        if before.tools != known.tools {
            registry.notify_tools();
        }
    }

    /// Adds the rights classes that may list this resource to those whose lists have changed. Returns whether there are
    /// any.
    fn record_classes(&self, pending: &mut DebounceWindows, uri: &Uri) -> bool {
        let Some(recorded) = &mut pending.classes else { return true };
        let mut is_listed = false;
        for (class, view) in lock(&self.registry).classes() {
            if recorded.contains(&class) || view.snapshot().allows(Operation::List, uri) {
                recorded.insert(class);
                is_listed = true;
            }
        }
        is_listed
    }

    /// Records a change and starts the debounce window.
    fn gather(&self, pending: &mut DebounceWindows, change: Change) {
        let due = Instant::now() + self.config.window;
        let uri = match change {
            Change::Described(uri) => {
                if self.record_classes(pending, &uri) {
                    pending.described.get_or_insert(due);
                    pending.settled = due + SETTLE_TIME;
                }
                return;
            }
            Change::Added(uri) | Change::Removed(uri) => {
                if self.record_classes(pending, &uri) {
                    pending.list.get_or_insert(due);
                    pending.settled = due + SETTLE_TIME;
                }
                uri
            }
            Change::Updated(uri) => uri,
            Change::Features => {
                pending.features.get_or_insert(due);
                return;
            }
            _ => {
                pending.list.get_or_insert(due);
                pending.classes = None;
                pending.updates.get_or_insert(due);
                let subjects = {
                    let mut registry = lock(&self.registry);
                    registry.change_all();
                    registry.subjects()
                };
                // A source that was added does not follow the subjects of existing subscriptions yet.
                subjects.iter().for_each(|subject| self.update_following(subject));
                return;
            }
        };
        let subject = self.source.subject(&uri);
        if lock(&self.registry).change(&subject) {
            pending.updates.get_or_insert(due);
        }
    }
}

/// Opens the watch, reports the outcome, and notifies listeners until all have left.
async fn run(mut task: WatchTask, outcome: oneshot::Sender<Result<(), Arc<Error>>>) {
    let shared = task.shared.clone();
    let opened = tokio::select! {
        opened = shared.source.watch() => opened,
        () = async { ListenerAbsence::new().stop_when_deserted(&mut task).await } => return,
    };
    let (changes, opened) = match opened {
        Ok(Some(changes)) => (Some(changes), Ok(())),
        Ok(None) => (None, Ok(())),
        Err(error) => (None, Err(Arc::new(error))),
    };
    // The prompts and tools are listed before the first listener can list them, so that no change is missed.
    let features = if changes.is_some() { shared.features().await } else { ListedFeatures::default() };
    task.set(if changes.is_some() { WatchState::Running } else { WatchState::Stopped });
    // All waiting requests may have been cancelled.
    let _ = outcome.send(opened);
    if let Some(changes) = changes {
        notify(task, changes, features).await;
    }
}

/// Notifies listeners of changes until all have left.
async fn notify(mut task: WatchTask, mut changes: BoxStream<'static, Change>, mut features: ListedFeatures) {
    let shared = task.shared.clone();
    let mut pending = DebounceWindows {
        list: None,
        described: None,
        classes: Some(HashSet::new()),
        settled: Instant::now(),
        updates: None,
        features: None,
    };
    let mut pace = ListChangedPacing { pause: shared.config.window, last: None };
    let mut absence = ListenerAbsence::new();
    loop {
        let due = pending.due(&pace);
        tokio::select! {
            biased;
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let now = Instant::now();
                if pending.list_due(&pace).is_some_and(|due| due <= now) {
                    pending.list = None;
                    pending.described = None;
                    pace.tick(now, shared.config.window);
                    let classes = pending.classes.replace(HashSet::new());
                    lock(&shared.registry).notify_list(classes.as_ref());
                    if classes.is_none() {
                        // Sources may have been replaced, and with them the prompts and tools.
                        pending.features = Some(now);
                    }
                }
                if pending.features.is_some_and(|due| due <= now) {
                    pending.features = None;
                    shared.notify_features(&mut features).await;
                }
                if pending.updates.is_some_and(|due| due <= now) {
                    pending.updates = None;
                    shared.notify_changed().await;
                }
            }
            change = changes.next() => match change {
                None => {
                    task.set(WatchState::Stopped);
                    // A stream that ended may have missed changes.
                    lock(&shared.registry).notify_list(None);
                    lock(&shared.registry).change_all();
                    return shared.notify_changed().await;
                }
                Some(change) => shared.gather(&mut pending, change),
            },
            () = absence.stop_when_deserted(&mut task) => return,
        }
    }
}

/// The prompts and tools of the source as they were last listed; `None` for a list that failed.
#[derive(Default)]
struct ListedFeatures {
    prompts: Option<Vec<Prompt>>,
    tools: Option<Arc<[SourceTool]>>,
}

/// The ends of the debounce windows of pending changes.
struct DebounceWindows {
    /// The end of the window for added and removed resources.
    list: Option<Instant>,
    /// The end of the window for changed descriptions of listed resources.
    described: Option<Instant>,
    /// The rights classes whose lists have changed; `None` for all.
    classes: Option<HashSet<u64>>,
    /// When the list counts as settled, unless it changes again.
    settled: Instant,
    /// The end of the window for changes of subscribed resources.
    updates: Option<Instant>,
    /// The end of the window for changes of prompts and tools.
    features: Option<Instant>,
}

impl DebounceWindows {
    fn list_due(&self, pace: &ListChangedPacing) -> Option<Instant> {
        let list = self.list.map(|due| pace.hold(due, Duration::ZERO, self.settled));
        let described = self.described.map(|due| pace.hold(due, DESCRIBED_PAUSE, self.settled));
        list.into_iter().chain(described).min()
    }

    fn due(&self, pace: &ListChangedPacing) -> Option<Instant> {
        self.list_due(pace).into_iter().chain(self.updates).chain(self.features).min()
    }
}

/// Rate limiting of `list_changed` with a growing interval.
struct ListChangedPacing {
    /// The current interval.
    pause: Duration,
    /// When `list_changed` was sent last.
    last: Option<Instant>,
}

impl ListChangedPacing {
    /// Delays `due` until the interval after the last `list_changed` is over or the list has settled, and at least
    /// until `shortest` after the last one.
    fn hold(&self, due: Instant, shortest: Duration, settled: Instant) -> Instant {
        let Some(last) = self.last else { return due };
        due.max(last + shortest).max((last + self.pause).min(settled))
    }

    /// Records that `list_changed` is sent, and doubles the interval if the list keeps changing.
    fn tick(&mut self, now: Instant, window: Duration) {
        let busy = self.last.is_some_and(|last| now < last + (self.pause + SETTLE_TIME) * 2);
        self.pause = if busy { (self.pause * 2).min(LONGEST_PAUSE) } else { window };
        self.last = Some(now);
    }
}
