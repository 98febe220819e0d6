//! The stdio transport: one message a line, in on one stream and out on another.
//!
//! One thread reads. A request whose answer is at hand is answered by that thread; the others run on
//! the runtime and are written by a second thread. Whoever does not read our output stops that writer
//! and soon the reader, so what is kept in memory is bounded by the number of requests in flight. Some more
//! may wait for their turn, so that a client can take requests back however many it has sent.
//!
//! A read or write that blocks cannot be interrupted. So neither thread is one of the runtime, whose shutdown would
//! wait for them: they are detached, and end when the client sends, reads or leaves.

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, Read};
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
use crate::envelope::{self, Framed, Id, Incoming, Malformed, Message};
use crate::failure::{ErrorObject, INTERNAL_ERROR, INVALID_REQUEST};
use crate::lines::{Line, Lines};
use crate::lock::lock;
use crate::output::Output;
use crate::protocol::{self, Arrived, Protocol};
use crate::request::{Filter, Params, Request};
use crate::unsent::{Outgoing, Share, Unsent};
use crate::{Caller, Limits, Listener, Revision, Service, View};

pub use crate::output::Outlet;
pub use crate::pipes::standard;

/// For each request in flight, how many are read in all before the client has to wait.
const READ: usize = 8;

/// A request counts once more for each so many bytes, and a response of more is counted in memory.
const LARGE: usize = 64 << 10;

/// How long a response waits for memory, which comes when the client reads: as long as it takes.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// How many `subscriptions/listen` streams one client may have open at once.
const LISTENS: usize = 64;

/// How long what is in flight may take to end once there is no more to read.
const GRACE: Duration = Duration::from_secs(5);

/// Serves one client until `input` ends or `stop` is cancelled, then ends what is open, answers what is
/// still in flight and returns. Where it is dropped instead, nothing more is answered. Two threads may outlive both,
/// until the client sends something, reads what was sent, or closes its ends.
pub async fn serve<R, W>(
    service: Arc<dyn Service>,
    limits: Limits,
    input: R,
    output: W,
    stop: CancellationToken,
) -> io::Result<()>
where
    R: Read + Send + 'static,
    W: Outlet,
{
    let protocol = Protocol::new(service, limits);
    let view = protocol.admit(&Caller::default()).await;
    let view = view.map_err(|refusal| io::Error::new(io::ErrorKind::PermissionDenied, refusal.message()))?;
    let (queue, queued) = mpsc::channel::<Outgoing>(4);
    // The client is the only one, and what it does not read keeps nobody else waiting.
    let unsent = Unsent::new(protocol.limits.unsent, Share::All, FOREVER);
    let output = Arc::new(Mutex::new(Output::new(output)));
    let connection = Arc::new(Connection {
        in_flight: Arc::new(Semaphore::new(protocol.limits.in_flight)),
        read: Arc::new(Semaphore::new(READ * protocol.limits.in_flight)),
        listens: Arc::new(Semaphore::new(LISTENS)),
        unsent,
        protocol,
        view,
        output: output.clone(),
        running: Mutex::default(),
        queue: queue.downgrade(),
        closing: stop.child_token(),
    });
    let _ending = Ending(connection.clone());
    let writer = detached("stdio-writer", move || write_queued(&output, queued))?;
    let runtime = Handle::current();
    let reading = connection.clone();
    let reader = detached("stdio-reader", move || reading.run(&runtime, input))?;
    let read = tokio::select! {
        read = reader => read.map_err(io::Error::other)?,
        () = stop.cancelled() => Ok(()),
    };
    connection.closing.cancel();
    // Whatever was read holds a permit until its answer is queued.
    let ended = async {
        let all = u32::try_from(READ * connection.protocol.limits.in_flight).unwrap_or(u32::MAX);
        let _ = connection.read.acquire_many(all).await;
        let _ = connection.listens.acquire_many(LISTENS as u32).await;
        drop(queue);
        writer.await.map_err(io::Error::other)?
    };
    let written = tokio::time::timeout(GRACE, ended).await;
    let outcome = read.and(written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())));
    // A client that closes both ends has left, which is how it says goodbye.
    outcome.or_else(|cause| if cause.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(cause) })
}

/// Runs `work` on a thread that nothing waits for; gives its outcome, or an error if it panics.
fn detached<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (outcome, receiver) = oneshot::channel();
    // Nobody may be there any more to hear of the outcome.
    std::thread::Builder::new().name(name.to_owned()).spawn(move || drop(outcome.send(work())))?;
    Ok(receiver)
}

/// Writes what is queued until nobody can queue anything any more.
fn write_queued<W: Outlet>(
    output: &Mutex<Output<W>>,
    mut queued: mpsc::Receiver<Outgoing>,
) -> io::Result<()> {
    while let Some(Outgoing { framed, room }) = queued.blocking_recv() {
        let mut output = lock(output);
        output.push(framed)?;
        if queued.is_empty() {
            output.flush()?;
        }
        drop(room);
    }
    Ok(())
}

/// Ends a connection with the future that serves it, also where that is dropped early.
struct Ending<W>(Arc<Connection<W>>);

impl<W> Drop for Ending<W> {
    fn drop(&mut self) {
        self.0.closing.cancel();
        // The reader takes this for the end of its input.
        self.0.read.close();
        lock(&self.0.running).drain().for_each(|(_, task)| task.abort());
    }
}

struct Connection<W> {
    protocol: Protocol,
    view: Arc<dyn View>,
    output: Arc<Mutex<Output<W>>>,
    in_flight: Arc<Semaphore>,
    /// Those in flight, and those that wait for their turn.
    read: Arc<Semaphore>,
    listens: Arc<Semaphore>,
    /// Bounds the contents in memory.
    unsent: Arc<Unsent>,
    running: Mutex<HashMap<Id, AbortHandle>>,
    /// What the writer is to write. Weak, so that the writer ends with the future that serves the connection.
    queue: mpsc::WeakSender<Outgoing>,
    closing: CancellationToken,
}

/// What `initialize` has agreed on.
struct Session {
    revision: Revision,
    listener: Arc<dyn Listener>,
    /// Once news are being sent, what ends that.
    told: Option<DropGuard>,
}

impl<W: Outlet> Connection<W> {
    fn run(self: Arc<Self>, runtime: &Handle, input: impl Read) -> io::Result<()> {
        let _entered = runtime.enter();
        let mut lines = Lines::new(input, self.protocol.limits.message);
        let mut session: Option<Session> = None;
        loop {
            if !lines.ready() {
                lock(&self.output).flush()?;
            }
            match lines.next()?.filter(|_| !self.read.is_closed()) {
                None => break,
                Some(Line::TooLong) => {
                    let why = format!("a message may have {} bytes at most", self.protocol.limits.message);
                    self.write(Framed::error(None, &ErrorObject::new(INVALID_REQUEST, why)))?;
                }
                Some(Line::Whole(line, _)) if line.iter().all(u8::is_ascii_whitespace) => {}
                Some(Line::Whole(line, since)) => match envelope::parse(line, self.protocol.limits.batch) {
                    Ok(Incoming::One(message)) => {
                        self.message(runtime, &mut session, since, line.len(), message)?;
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
        session: &mut Option<Session>,
        since: Instant,
        size: usize,
        message: Message<'_>,
    ) -> io::Result<()> {
        match message {
            Message::Response => Ok(()),
            Message::Notification { method, params } => {
                match (&*method, session) {
                    ("notifications/cancelled", _) => self.cancel(&params),
                    ("notifications/initialized", Some(session)) => self.tell(runtime, session),
                    _ => {}
                }
                Ok(())
            }
            Message::Request { id, method, params } => {
                if let Some(framed) = self.cached(session.as_ref(), since, &id, &method, &params) {
                    return self.write(framed);
                }
                let agreed = session.as_ref().map(|session| session.revision);
                let read =
                    protocol::read(&*self.view, &method, &params, agreed).and_then(|(revision, request)| {
                        let token = params.meta()?.progress_token();
                        let reporter = token.map(|token| {
                            let queue = self.queue.clone();
                            // A client that does not keep up misses a report, never the answer.
                            Reporter::new(token, move |framed| {
                                drop(queue.upgrade().map(|queue| queue.try_send(Outgoing::from(framed))));
                            })
                        });
                        Ok((self.call(revision).reporting(reporter), request))
                    });
                match read {
                    Err(error) => self.write(Framed::error(Some(&id), &error)),
                    Ok((call, request)) => self.request(runtime, session, size, id, call, request),
                }
            }
        }
    }

    /// The cached response to a request.
    fn cached(
        &self,
        session: Option<&Session>,
        since: Instant,
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
        self.protocol.cached(&*self.view, revision, listener, Arrived { since, id, method, params })
    }

    fn request(
        self: &Arc<Self>,
        runtime: &Handle,
        session: &mut Option<Session>,
        size: usize,
        id: Id,
        call: Call,
        request: Request,
    ) -> io::Result<()> {
        match &request {
            Request::Listen(filter) => return self.listen(runtime, id, call, filter.clone()),
            Request::Initialize { asked } => match self.view.listener(call.client) {
                Ok(listener) => {
                    *session = Some(Session { revision: Revision::negotiate(asked), listener, told: None });
                }
                Err(failure) => {
                    return self.write(Framed::error(Some(&id), &failure.object(call.revision)));
                }
            },
            Request::Subscribe { .. } => {
                if let Some(session) = session {
                    self.tell(runtime, session);
                }
            }
            _ => {}
        }
        let call = call.of(session.as_ref().map(|session| session.listener.clone()));
        let connection = self.clone();
        let key = id.clone();
        let turns = (!request.is_free()).then(|| self.in_flight.clone());
        self.answer(runtime, Some(key), size, turns, async move {
            let framed = connection.protocol.answer(&call, &id, &request).await;
            Some(connection.response(&call, Some(&id), framed).await)
        })
    }

    fn call(&self, revision: Revision) -> Call {
        Call::new(self.view.clone(), revision).by(Client::default(), &self.unsent)
    }

    /// An answer with the memory that it takes until it is written, of which its call may have reserved some already.
    async fn response(&self, call: &Call, id: Option<&Id>, framed: Framed) -> Outgoing {
        // Small ones are few: no more than there are requests in flight.
        let Some(memory) = call.memory.as_ref().filter(|_| framed.size() > LARGE) else {
            return framed.into();
        };
        match memory.settle(&framed).await {
            Some(room) => Outgoing { framed, room: Some(room) },
            None => {
                let why = "too many responses wait to be read; read them, and try again";
                Framed::error(id, &ErrorObject::new(INTERNAL_ERROR, why)).into()
            }
        }
    }

    /// Begins to send the news of a session.
    fn tell(self: &Arc<Self>, runtime: &Handle, session: &mut Session) {
        if session.told.is_some() {
            return;
        }
        let (connection, closing) = (self.clone(), self.closing.child_token());
        session.told = Some(closing.clone().drop_guard());
        let listener = session.listener.clone();
        let telling = async move {
            protocol::follow(&*listener).await;
            while connection.queue(protocol::notification(&listener.next().await, "").into()).await.is_some()
            {
            }
        };
        runtime.spawn(async move {
            tokio::select! {
                () = telling => {}
                () = closing.cancelled() => {}
            }
        });
    }

    /// Sends what `subscriptions/listen` asks for until it is cancelled or the connection ends.
    fn listen(self: &Arc<Self>, runtime: &Handle, id: Id, call: Call, filter: Filter) -> io::Result<()> {
        let Ok(permit) = self.listens.clone().try_acquire_owned() else {
            let why = format!("there may be {LISTENS} streams at most; cancel one");
            return self.write(Framed::error(Some(&id), &ErrorObject::new(INTERNAL_ERROR, why)));
        };
        let connection = self.clone();
        let key = id.clone();
        let mut running = lock(&self.running);
        if running.contains_key(&key) {
            drop(running);
            return self.write(Framed::error(Some(&key), &in_use()));
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
        session: Option<&Session>,
        size: usize,
        batch: &[&str],
    ) -> io::Result<()> {
        let items: Vec<Box<str>> = batch.iter().map(|&item| item.into()).collect();
        let call = session.map(|session| self.call(session.revision).of(Some(session.listener.clone())));
        let connection = self.clone();
        let turns = Some(self.in_flight.clone());
        self.answer(runtime, None, size, turns, async move {
            let framed = connection.protocol.batch(call.as_ref(), &items).await?;
            match &call {
                Some(call) => Some(connection.response(call, None, framed).await),
                None => Some(framed.into()),
            }
        })
    }

    /// Writes what `answer` gives to a message of `size` bytes: at once if it is at hand, later if not. Where there are
    /// `turns`, it waits for one.
    fn answer(
        self: &Arc<Self>,
        runtime: &Handle,
        id: Option<Id>,
        size: usize,
        turns: Option<Arc<Semaphore>>,
        answer: impl Future<Output = Option<Outgoing>> + Send + 'static,
    ) -> io::Result<()> {
        // Large messages count as several, or so many of them would take too much memory.
        let count = (1 + size / LARGE).min(READ * self.protocol.limits.in_flight) as u32;
        let read = match self.read.clone().try_acquire_many_owned(count) {
            Ok(read) => read,
            Err(_) => {
                lock(&self.output).flush()?;
                runtime.block_on(self.read.clone().acquire_many_owned(count)).map_err(io::Error::other)?
            }
        };
        if let Some(id) = &id
            && lock(&self.running).contains_key(id)
        {
            return self.write(Framed::error(Some(id), &in_use()));
        }
        let mut answer = Box::pin(async move {
            let turn = match turns {
                Some(turns) => turns.acquire_owned().await.ok(),
                None => None,
            };
            (answer.await, turn)
        });
        if let Poll::Ready((framed, _)) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return framed.map_or(Ok(()), |response| self.write(response.framed));
        }
        let connection = self.clone();
        let key = id.clone();
        // Held until the task is noted, so that it cannot end before.
        let mut running = lock(&self.running);
        let task = runtime.spawn(async move {
            let (framed, turn) = answer.await;
            if let Some(key) = &key {
                lock(&connection.running).remove(key);
            }
            if let Some(framed) = framed {
                connection.queue(framed).await;
            }
            drop((turn, read));
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

    /// Has the writer write this, once there is room in its queue; `None` if the connection has ended.
    async fn queue(&self, outgoing: Outgoing) -> Option<()> {
        self.queue.upgrade()?.send(outgoing).await.ok()
    }

    fn write(&self, framed: Framed) -> io::Result<()> {
        lock(&self.output).push(framed)
    }
}

/// A request under an id that another one has: an answer or a cancellation could mean either.
fn in_use() -> ErrorObject {
    ErrorObject::new(INVALID_REQUEST, "a request with this id is still being answered")
}
