//! The stdio transport: one message per line.
//!
//! A reader thread parses messages. It also writes the responses that are ready at once. Other requests run as tasks on
//! the runtime, and a writer thread writes their responses. A client that does not read its responses blocks the writer
//! and soon the reader (backpressure), so the number of requests in flight bounds the memory.
//!
//! The reader accepts up to `READ_AHEAD` times as many requests as may run, so that it still sees cancellations while
//! requests are queued. At this limit it blocks.
//!
//! A blocking read or write cannot be interrupted. Neither thread therefore belongs to the runtime, whose shutdown
//! would wait for it. Both are detached: the reader ends when its blocking read returns (input or end of file), the
//! writer when its blocking write returns (the client reads, or closes the pipe).

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use libris_core::Client;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::call::{Call, Reporter};
use crate::content_budget::{ContentBudget, Outgoing, Share};
use crate::envelope::{self, Framed, Id, Incoming, Malformed, Message};
use crate::failure::{ErrorObject, INTERNAL_ERROR, INVALID_REQUEST};
use crate::lines::{Line, Lines};
use crate::lock::lock;
use crate::output::Output;
use crate::protocol::{self, Protocol, RequestEnvelope};
use crate::request::{ListenFilter, McpRequest, Params};
use crate::{Caller, Channel, Limits, Listener, Revision, Service, ServiceView};

pub use crate::output::OutputStream;
pub use crate::pipes::standard;

/// The reader accepts up to this many times `limits.in_flight` requests (running and queued), then blocks.
const READ_AHEAD: usize = 8;

/// A request takes one `accepted` permit, and another one per this many bytes of its size. A response larger than this
/// must reserve memory.
const LARGE_MESSAGE: usize = 64 << 10;

/// How long a response waits for memory: without limit, because the only client frees the memory itself, by reading its
/// responses.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The maximum number of open `subscriptions/listen` streams.
const MAX_LISTEN_STREAMS: usize = 64;

/// How long requests in flight may still take after the server is stopped.
const SHUTDOWN_TIME_LIMIT: Duration = Duration::from_secs(5);

/// Serves one client until `input` ends or `stop` is cancelled, then ends open streams, answers the requests in
/// flight and returns. If the future is dropped, requests in flight are aborted.
///
/// Returns `TimedOut` if the requests in flight are not answered within `SHUTDOWN_TIME_LIMIT` after `stop`, or if, after
/// the end of the input, no queued message was written for `limits.time + SHUTDOWN_TIME_LIMIT`.
///
/// The two threads may outlive the future: the reader until it gets input or an end of file, the writer until the
/// client reads what is being written, or closes the pipe.
pub async fn serve<R, W>(
    service: Arc<dyn Service>,
    limits: Limits,
    input: R,
    output: W,
    stop: CancellationToken,
) -> io::Result<()>
where
    R: Read + Send + 'static,
    W: OutputStream,
{
    let protocol = Protocol::new(service, limits);
    let view = protocol.admit(&Caller { channel: Channel::Stdio, ..Caller::default() }).await;
    let view = view.map_err(|refusal| io::Error::new(io::ErrorKind::PermissionDenied, refusal.message()))?;
    let (queue, queued) = mpsc::channel::<Outgoing>(4);
    // There is only one client, so it may use the whole budget.
    let content_budget = ContentBudget::new(protocol.limits.content_bytes, Share::All, FOREVER);
    let output = Arc::new(Mutex::new(Output::new(output)));
    let connection = Arc::new(StdioConnection {
        in_flight: Arc::new(Semaphore::new(protocol.limits.in_flight)),
        accepted: Arc::new(Semaphore::new(READ_AHEAD * protocol.limits.in_flight)),
        listen_streams: Arc::new(Semaphore::new(MAX_LISTEN_STREAMS)),
        content_budget,
        protocol,
        view,
        output: output.clone(),
        running: Mutex::default(),
        queue: queue.downgrade(),
        closing: stop.child_token(),
    });
    let _abort_on_end = AbortOnEnd(connection.clone());
    let written = Arc::new(AtomicU64::new(0));
    let count = written.clone();
    let writer = spawn_detached("stdio-writer", move || write_queued(&output, queued, &count))?;
    let runtime = Handle::current();
    let reading = connection.clone();
    let reader = spawn_detached("stdio-reader", move || reading.read_messages(&runtime, input))?;
    let input_ended = tokio::select! {
        outcome = reader => outcome.map_err(io::Error::other)?,
        () = stop.cancelled() => Ok(()),
    };
    connection.closing.cancel();
    // Every request holds permits of `accepted` until its response is queued, so acquiring all of them waits for all
    // requests.
    let ended = async {
        let all = u32::try_from(READ_AHEAD * connection.protocol.limits.in_flight).unwrap_or(u32::MAX);
        let _ = connection.accepted.acquire_many(all).await;
        let _ = connection.listen_streams.acquire_many(MAX_LISTEN_STREAMS as u32).await;
        drop(queue);
        writer.await.map_err(io::Error::other)?
    };
    let answered = tokio::select! {
        answered = ended => answered,
        () = grace_period_over(&stop) => Err(io::ErrorKind::TimedOut.into()),
        () = writer_stalled(&written, connection.protocol.limits.time + SHUTDOWN_TIME_LIMIT) => {
            Err(io::ErrorKind::TimedOut.into())
        }
    };
    let outcome = input_ended.and(answered);
    // A client that disconnects closes its end of the output too, which is not an error.
    outcome.or_else(|cause| if cause.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(cause) })
}

/// Completes `SHUTDOWN_TIME_LIMIT` after `stop` is cancelled.
async fn grace_period_over(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(SHUTDOWN_TIME_LIMIT).await;
}

/// Completes when no queued message was written for `time`. A client that has closed the input thus gets the responses
/// to all its requests, as long as it reads them.
async fn writer_stalled(written: &AtomicU64, time: Duration) {
    let mut before = None;
    while before != Some(written.load(Ordering::Relaxed)) {
        before = Some(written.load(Ordering::Relaxed));
        tokio::time::sleep(time).await;
    }
}

/// Runs `work` on a detached thread. The receiver yields its result, or an error if it panics.
fn spawn_detached<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (outcome, receiver) = oneshot::channel();
    // Sending fails if the receiver was dropped, which is fine.
    std::thread::Builder::new().name(name.to_owned()).spawn(move || drop(outcome.send(work())))?;
    Ok(receiver)
}

/// The writer thread: writes queued messages until all senders are dropped.
fn write_queued<W: OutputStream>(
    output: &Mutex<Output<W>>,
    mut queued: mpsc::Receiver<Outgoing>,
    written: &AtomicU64,
) -> io::Result<()> {
    while let Some(Outgoing { framed, lease }) = queued.blocking_recv() {
        let mut output = lock(output);
        output.push(framed)?;
        if queued.is_empty() {
            output.flush()?;
        }
        written.fetch_add(1, Ordering::Relaxed);
        drop(lease);
    }
    Ok(())
}

/// Aborts the requests and stops the reader of a connection when the future that serves it ends or is dropped.
struct AbortOnEnd<W>(Arc<StdioConnection<W>>);

impl<W> Drop for AbortOnEnd<W> {
    fn drop(&mut self) {
        self.0.closing.cancel();
        // The reader treats a closed semaphore as the end of its input.
        self.0.accepted.close();
        lock(&self.0.running).drain().for_each(|(_, task)| task.abort());
    }
}

struct StdioConnection<W> {
    protocol: Protocol,
    view: Arc<dyn ServiceView>,
    output: Arc<Mutex<Output<W>>>,
    in_flight: Arc<Semaphore>,
    /// Bounds the accepted requests: those in flight and those queued. Closed when the connection ends.
    accepted: Arc<Semaphore>,
    listen_streams: Arc<Semaphore>,
    /// Bounds the memory of contents, from before they are loaded until the response is written.
    content_budget: Arc<ContentBudget>,
    /// The tasks of unanswered requests and open streams, by request id.
    running: Mutex<HashMap<Id, AbortHandle>>,
    /// The queue of the writer thread. Weak: the strong sender belongs to the future that serves the connection, so that
    /// the writer ends when that future is dropped.
    queue: mpsc::WeakSender<Outgoing>,
    closing: CancellationToken,
}

/// The session that `initialize` has opened.
struct StdioSession {
    revision: Revision,
    shows_apps: bool,
    listener: Arc<dyn Listener>,
    /// `Some` once the task that sends notifications was started; dropping it stops the task.
    notifier: Option<DropGuard>,
}

/// Whether the client shows apps, which it declares when it opens the session, or in each request.
fn shows_apps(session: Option<&StdioSession>, method: &str, params: &Params<'_>) -> bool {
    session.is_some_and(|session| session.shows_apps) || params.shows_apps(method)
}

impl<W: OutputStream> StdioConnection<W> {
    fn read_messages(self: Arc<Self>, runtime: &Handle, input: impl Read) -> io::Result<()> {
        let _entered = runtime.enter();
        let mut lines = Lines::new(input, self.protocol.limits.message);
        let mut session: Option<StdioSession> = None;
        loop {
            if !lines.has_line() {
                lock(&self.output).flush()?;
            }
            match lines.next()?.filter(|_| !self.accepted.is_closed()) {
                None => break,
                Some(Line::TooLong) => {
                    let limit = self.protocol.limits.message;
                    let why = format!("the message is larger than the limit of {limit} bytes");
                    self.write(Framed::error(None, &ErrorObject::new(INVALID_REQUEST, why)))?;
                }
                Some(Line::Whole(line, _)) if line.iter().all(u8::is_ascii_whitespace) => {}
                Some(Line::Whole(line, arrived)) => match envelope::parse(line, self.protocol.limits.batch) {
                    Ok(Incoming::One(message)) => {
                        self.message(runtime, &mut session, arrived, line.len(), message)?;
                    }
                    Ok(Incoming::Batch(batch)) => {
                        self.batch(runtime, session.as_ref(), line.len(), &batch)?;
                    }
                    Err(Malformed { id, error }) => self.write(Framed::error(id.as_ref(), &error))?,
                },
            }
        }
        lock(&self.output).flush()
    }

    fn message(
        self: &Arc<Self>,
        runtime: &Handle,
        session: &mut Option<StdioSession>,
        arrived: Instant,
        size: usize,
        message: Message<'_>,
    ) -> io::Result<()> {
        match message {
            Message::Response => Ok(()),
            Message::Notification { method, params } => {
                match (&*method, session) {
                    ("notifications/cancelled", _) => self.cancel(&params),
                    ("notifications/initialized", Some(session)) => {
                        self.start_notifications(runtime, session);
                    }
                    _ => {}
                }
                Ok(())
            }
            Message::Request { id, method, params } => {
                if let Some(framed) = self.cached(session.as_ref(), arrived, &id, &method, &params) {
                    return self.write(framed);
                }
                let agreed = session.as_ref().map(|session| session.revision);
                let shows_apps = shows_apps(session.as_ref(), &method, &params);
                let parsed = protocol::parse_request(&*self.view, &method, &params, agreed).and_then(
                    |(revision, request)| {
                        let token = params.meta()?.progress_token();
                        let reporter = token.map(|token| {
                            let queue = self.queue.clone();
                            // If the queue is full, a progress notification is dropped, never the response.
                            Reporter::new(token, move |framed| {
                                drop(queue.upgrade().map(|queue| queue.try_send(Outgoing::from(framed))));
                            })
                        });
                        let call = self.call(revision).showing_apps(shows_apps);
                        Ok((call.with_reporter(reporter), request))
                    },
                );
                match parsed {
                    Err(error) => self.write(Framed::error(Some(&id), &error)),
                    Ok((call, request)) => self.request(runtime, session, size, id, call, request),
                }
            }
        }
    }

    /// The cached response to a request; `None` if there is none, or if the id of the request is in use: such a request
    /// is refused later.
    fn cached(
        &self,
        session: Option<&StdioSession>,
        arrived: Instant,
        id: &Id,
        method: &str,
        params: &Params<'_>,
    ) -> Option<Framed> {
        let agreed = session.map(|session| session.revision);
        let revision = protocol::revision(method, params.meta().ok()?, agreed).ok()?;
        if lock(&self.running).contains_key(id) {
            return None;
        }
        let listener = session.map(|session| &*session.listener);
        let shows_apps = shows_apps(session, method, params);
        let envelope = RequestEnvelope { arrived, id, method, params, shows_apps };
        self.protocol.cached(&*self.view, revision, listener, envelope)
    }

    fn request(
        self: &Arc<Self>,
        runtime: &Handle,
        session: &mut Option<StdioSession>,
        size: usize,
        id: Id,
        call: Call,
        request: McpRequest,
    ) -> io::Result<()> {
        match &request {
            McpRequest::Listen(filter) => return self.listen(runtime, id, call, filter.clone()),
            McpRequest::Initialize { asked, shows_apps, .. } => match self.view.listener(call.client) {
                Ok(listener) => {
                    *session = Some(StdioSession {
                        revision: Revision::negotiate(asked),
                        shows_apps: *shows_apps,
                        listener,
                        notifier: None,
                    });
                }
                Err(failure) => {
                    return self.write(Framed::error(Some(&id), &failure.object(call.revision)));
                }
            },
            McpRequest::Subscribe { .. } => {
                if let Some(session) = session {
                    self.start_notifications(runtime, session);
                }
            }
            _ => {}
        }
        let call = call.with_listener(session.as_ref().map(|session| session.listener.clone()));
        let connection = self.clone();
        let key = id.clone();
        let in_flight = (!request.is_exempt()).then(|| self.in_flight.clone());
        self.answer(runtime, Some(key), size, in_flight, async move {
            let framed = connection.protocol.answer(&call, &id, &request).await;
            Some(connection.response(&call, Some(&id), framed).await)
        })
    }

    fn call(&self, revision: Revision) -> Call {
        Call::new(self.view.clone(), revision).with_client(Client::default(), &self.content_budget)
    }

    /// Attaches a memory reservation to a large response: the reservation that the call made, resized, or a new one.
    async fn response(&self, call: &Call, id: Option<&Id>, framed: Framed) -> Outgoing {
        // Small responses need no reservation: there are at most as many as requests in flight.
        let Some(memory) = call.memory.as_ref().filter(|_| framed.size() > LARGE_MESSAGE) else {
            return framed.into();
        };
        match memory.lease_for(&framed).await {
            Some(lease) => Outgoing { framed, lease: Some(lease) },
            None => {
                let why = "too many responses wait to be read; read them, and try again";
                Framed::error(id, &ErrorObject::new(INTERNAL_ERROR, why)).into()
            }
        }
    }

    /// Starts the task that sends the notifications of a session, if it was not started before.
    fn start_notifications(self: &Arc<Self>, runtime: &Handle, session: &mut StdioSession) {
        if session.notifier.is_some() {
            return;
        }
        let (connection, closing) = (self.clone(), self.closing.child_token());
        session.notifier = Some(closing.clone().drop_guard());
        let listener = session.listener.clone();
        let sending = async move {
            protocol::follow_lists(&*listener).await;
            while connection.queue(protocol::notification(&listener.next().await, "").into()).await.is_some()
            {
            }
        };
        runtime.spawn(async move {
            tokio::select! {
                () = sending => {}
                () = closing.cancelled() => {}
            }
        });
    }

    /// Sends the notifications that `subscriptions/listen` asks for, until it is cancelled or the connection ends.
    fn listen(
        self: &Arc<Self>,
        runtime: &Handle,
        id: Id,
        call: Call,
        filter: ListenFilter,
    ) -> io::Result<()> {
        let Ok(permit) = self.listen_streams.clone().try_acquire_owned() else {
            let why = format!(
                "at most {MAX_LISTEN_STREAMS} `subscriptions/listen` streams may be open; cancel one"
            );
            return self.write(Framed::error(Some(&id), &ErrorObject::new(INTERNAL_ERROR, why)));
        };
        let connection = self.clone();
        let key = id.clone();
        let mut running = lock(&self.running);
        if running.contains_key(&key) {
            drop(running);
            return self.write(Framed::error(Some(&key), &id_in_use()));
        }
        let task = runtime.spawn(async move {
            let closing = connection.closing.clone();
            match connection.protocol.listen(&call, &id, &filter, closing).await {
                Ok(mut stream) => {
                    while let Some(framed) = stream.next().await {
                        connection.queue(framed).await;
                    }
                }
                Err(error) => {
                    connection.queue(Framed::error(Some(&id), &error).into()).await;
                }
            }
            lock(&connection.running).remove(&id);
            drop(permit);
        });
        running.insert(key, task.abort_handle());
        Ok(())
    }

    fn batch(
        self: &Arc<Self>,
        runtime: &Handle,
        session: Option<&StdioSession>,
        size: usize,
        batch: &[&str],
    ) -> io::Result<()> {
        let items: Vec<Box<str>> = batch.iter().map(|&item| item.into()).collect();
        let call = session.map(|session| {
            let call = self.call(session.revision).showing_apps(session.shows_apps);
            call.with_listener(Some(session.listener.clone()))
        });
        let connection = self.clone();
        let in_flight = Some(self.in_flight.clone());
        self.answer(runtime, None, size, in_flight, async move {
            let framed = connection.protocol.batch(call.as_ref(), &items).await?;
            match &call {
                Some(call) => Some(connection.response(call, None, framed).await),
                None => Some(framed.into()),
            }
        })
    }

    /// Answers a message of `size` bytes. If `answer` is ready when first polled, this thread writes the response;
    /// otherwise a task awaits `answer` and queues the response for the writer thread. If `in_flight` is given,
    /// `answer` is polled only after a permit of this semaphore is acquired.
    fn answer(
        self: &Arc<Self>,
        runtime: &Handle,
        id: Option<Id>,
        size: usize,
        in_flight: Option<Arc<Semaphore>>,
        answer: impl Future<Output = Option<Outgoing>> + Send + 'static,
    ) -> io::Result<()> {
        // A large message takes several permits, or queued messages could take too much memory.
        let count = (1 + size / LARGE_MESSAGE).min(READ_AHEAD * self.protocol.limits.in_flight) as u32;
        let accepted_permit = match self.accepted.clone().try_acquire_many_owned(count) {
            Ok(permit) => permit,
            Err(_) => {
                lock(&self.output).flush()?;
                runtime.block_on(self.accepted.clone().acquire_many_owned(count)).map_err(io::Error::other)?
            }
        };
        if let Some(id) = &id
            && lock(&self.running).contains_key(id)
        {
            return self.write(Framed::error(Some(id), &id_in_use()));
        }
        let mut answer = Box::pin(async move {
            let in_flight_permit = match in_flight {
                Some(in_flight) => in_flight.acquire_owned().await.ok(),
                None => None,
            };
            (answer.await, in_flight_permit)
        });
        if let Poll::Ready((framed, _)) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return framed.map_or(Ok(()), |response| self.write(response.framed));
        }
        let connection = self.clone();
        let key = id.clone();
        // Locked until the task is registered: the task must not remove its entry before that entry exists.
        let mut running = lock(&self.running);
        let task = runtime.spawn(async move {
            let (framed, in_flight_permit) = answer.await;
            if let Some(key) = &key {
                lock(&connection.running).remove(key);
            }
            if let Some(framed) = framed {
                connection.queue(framed).await;
            }
            drop((in_flight_permit, accepted_permit));
        });
        if let Some(id) = id {
            running.insert(id, task.abort_handle());
        }
        Ok(())
    }

    fn cancel(&self, params: &Params<'_>) {
        if let Some(task) =
            params.request_id.and_then(Id::parse).and_then(|id| lock(&self.running).remove(&id))
        {
            task.abort();
        }
    }

    /// Queues a message for the writer, waiting for space; `None` if the connection has ended.
    async fn queue(&self, outgoing: Outgoing) -> Option<()> {
        self.queue.upgrade()?.send(outgoing).await.ok()
    }

    fn write(&self, framed: Framed) -> io::Result<()> {
        lock(&self.output).push(framed)
    }
}

/// The error for a request whose id belongs to another unanswered request. A response to either, or a cancellation,
/// would be ambiguous.
fn id_in_use() -> ErrorObject {
    ErrorObject::new(INVALID_REQUEST, "a request with this id is in progress")
}
