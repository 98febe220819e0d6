//! The stdio transport: one message a line, in on one stream and out on another.
//!
//! One thread reads. A request whose answer is at hand is answered by that thread; the others run on
//! the runtime and are written by a second thread. Whoever does not read our output stops that writer
//! and soon the reader, so what is kept in memory is bounded by the number of requests in flight.

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

use crate::call::{Call, Reporter};
use crate::envelope::{self, Framed, Id, Incoming, Malformed, Message};
use crate::failure::{ErrorObject, INVALID_REQUEST};
use crate::lines::{Line, Lines};
use crate::lock::lock;
use crate::protocol::{self, Protocol};
use crate::request::{Params, Request};
use crate::{Limits, Revision, Service};

/// Output is handed to the stream once this much has gathered, or when there is nothing to read.
const GATHER: usize = 64 << 10;

/// Serves one client until `input` ends, then answers what is still in flight and returns.
pub async fn serve<R, W>(service: Arc<dyn Service>, limits: Limits, input: R, output: W) -> io::Result<()>
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    let (queue, mut queued) = mpsc::channel::<Framed>(4);
    let connection = Arc::new(Connection {
        in_flight: Arc::new(Semaphore::new(limits.in_flight)),
        protocol: Protocol::new(service, limits),
        output: Mutex::new(Output { stream: output, gathered: Vec::with_capacity(GATHER) }),
        running: Mutex::default(),
        queue,
    });
    let writing = connection.clone();
    let writer = std::thread::spawn(move || -> io::Result<()> {
        while let Some(framed) = queued.blocking_recv() {
            let mut output = lock(&writing.output);
            output.push(&framed)?;
            if queued.is_empty() {
                output.flush()?;
            }
            // The connection itself holds a sender, so the end is told by an empty message.
            if framed.len() == 0 {
                break;
            }
        }
        Ok(())
    });
    let runtime = Handle::current();
    let reading = connection.clone();
    let outcome = tokio::task::spawn_blocking(move || reading.run(&runtime, input)).await;
    let all = u32::try_from(connection.protocol.limits.in_flight).unwrap_or(u32::MAX);
    // Whatever is in flight holds a permit until it is queued.
    let _ = tokio::time::timeout(connection.protocol.limits.time, connection.in_flight.acquire_many(all)).await;
    let _ = connection.queue.send(Framed::whole("")).await;
    let written = tokio::task::spawn_blocking(move || writer.join()).await;
    outcome.map_err(io::Error::other)??;
    written.map_err(io::Error::other)?.unwrap_or_else(|_| Err(io::Error::other("the writer panicked")))
}

struct Connection<W> {
    protocol: Protocol,
    output: Mutex<Output<W>>,
    in_flight: Arc<Semaphore>,
    running: Mutex<HashMap<Id, AbortHandle>>,
    queue: mpsc::Sender<Framed>,
}

impl<W: Write + Send + 'static> Connection<W> {
    fn run(self: Arc<Self>, runtime: &Handle, input: impl Read) -> io::Result<()> {
        let _entered = runtime.enter();
        let mut lines = Lines::new(input, self.protocol.limits.message);
        let mut session = None;
        loop {
            if !lines.ready() {
                lock(&self.output).flush()?;
            }
            match lines.next()? {
                None => break,
                Some(Line::TooLong) => {
                    let why = format!("a message may have {} bytes at most", self.protocol.limits.message);
                    self.write(&Framed::error(None, &ErrorObject::new(INVALID_REQUEST, why)))?;
                }
                Some(Line::Whole(line)) if line.iter().all(u8::is_ascii_whitespace) => {}
                Some(Line::Whole(line)) => match envelope::parse(line) {
                    Ok(Incoming::One(message)) => self.message(runtime, &mut session, message)?,
                    Ok(Incoming::Batch(batch)) => self.batch(runtime, session, &batch)?,
                    Err(Malformed { id, error }) => self.write(&Framed::error(id.as_ref(), &error))?,
                },
            }
        }
        lock(&self.output).flush()
    }

    fn message(
        self: &Arc<Self>,
        runtime: &Handle,
        session: &mut Option<Revision>,
        message: Message<'_>,
    ) -> io::Result<()> {
        match message {
            Message::Response => Ok(()),
            Message::Notification { method, params } => {
                if method == "notifications/cancelled" {
                    self.cancel(params);
                }
                Ok(())
            }
            Message::Request { id, method, params } => {
                let read = Params::parse(params).and_then(|params| {
                    let (revision, request) = protocol::read(&method, &params, *session)?;
                    let token = params.meta()?.progress_token();
                    let reporter = token.map(|token| Reporter::new(token, self.queue.clone()));
                    Ok((Call::with_progress(revision, reporter), request))
                });
                match read {
                    Err(error) => self.write(&Framed::error(Some(&id), &error)),
                    Ok((call, request)) => {
                        if let Request::Initialize { asked } = &request {
                            *session = Some(Revision::negotiate(asked));
                        }
                        let connection = self.clone();
                        let key = id.clone();
                        self.answer(runtime, Some(key), async move {
                            Some(connection.protocol.answer(&call, &id, &request).await)
                        })
                    }
                }
            }
        }
    }

    fn batch(
        self: &Arc<Self>,
        runtime: &Handle,
        session: Option<Revision>,
        batch: &[&RawValue],
    ) -> io::Result<()> {
        let items: Vec<Box<RawValue>> = batch.iter().map(|&item| item.to_owned()).collect();
        let connection = self.clone();
        self.answer(runtime, None, async move { connection.protocol.batch(session, &items).await })
    }

    /// Writes what `answer` gives: at once if it is at hand, later if not.
    fn answer(
        self: &Arc<Self>,
        runtime: &Handle,
        id: Option<Id>,
        answer: impl Future<Output = Option<Framed>> + Send + 'static,
    ) -> io::Result<()> {
        let permit = match self.in_flight.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                lock(&self.output).flush()?;
                runtime.block_on(self.in_flight.clone().acquire_owned()).map_err(io::Error::other)?
            }
        };
        let mut answer = Box::pin(answer);
        if let Poll::Ready(framed) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return framed.map_or(Ok(()), |framed| self.write(&framed));
        }
        let connection = self.clone();
        let key = id.clone();
        // Held until the task is noted, so that it cannot end before.
        let mut running = lock(&self.running);
        let task = runtime.spawn(async move {
            let framed = answer.await;
            if let Some(key) = &key {
                lock(&connection.running).remove(key);
            }
            if let Some(framed) = framed {
                let _ = connection.queue.send(framed).await;
            }
            drop(permit);
        });
        if let Some(id) = id {
            running.insert(id, task.abort_handle());
        }
        Ok(())
    }

    fn cancel(&self, params: Option<&RawValue>) {
        let id = Params::parse(params).ok().and_then(|params| params.request_id.and_then(Id::parse));
        if let Some(task) = id.and_then(|id| lock(&self.running).remove(&id)) {
            task.abort();
        }
    }

    fn write(&self, framed: &Framed) -> io::Result<()> {
        lock(&self.output).push(framed)
    }
}

struct Output<W> {
    stream: W,
    gathered: Vec<u8>,
}

impl<W: Write> Output<W> {
    fn push(&mut self, framed: &Framed) -> io::Result<()> {
        let size = framed.len();
        if size == 0 {
            return Ok(());
        }
        if self.gathered.len() + size < GATHER {
            for part in framed.parts() {
                self.gathered.extend_from_slice(part);
            }
            self.gathered.push(b'\n');
            return Ok(());
        }
        self.flush()?;
        for part in framed.parts() {
            self.stream.write_all(part)?;
        }
        self.stream.write_all(b"\n")?;
        self.stream.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.stream.write_all(&self.gathered)?;
        self.gathered.clear();
        self.stream.flush()
    }
}
