//! The audit log: JSON lines in a file or on a standard stream, written by a thread of its own.
//!
//! A request never waits for the log. Lines are dropped if too many wait to be written, because the disk is slow, and
//! lost if they cannot be written, for example because the disk is full. Both are counted: the next line that is queued
//! is preceded by a line that says how many are missing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use libris::{AuditLog, AuditRecord};
use serde::Deserialize;

use crate::terminal::advice;

/// How many bytes of lines may wait to be written.
const MAX_WAITING_BYTES: usize = 4 << 20;

/// How long to wait at most, when the process exits, for queued lines to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The section `[audit]` of the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AuditConfig {
    /// The file to which the log is appended; created if it is missing. Without one, the log goes to standard output, or
    /// to standard error if standard output is the connection to the client.
    file: Option<PathBuf>,
}

/// Where the log is written.
#[derive(Clone, Debug)]
enum Destination {
    File(PathBuf),
    Stdout,
    Stderr,
}

impl Destination {
    fn open(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(match self {
            Self::File(path) => Box::new(append(path)?),
            Self::Stdout => Box::new(io::stdout()),
            Self::Stderr => Box::new(io::stderr()),
        })
    }
}

#[cfg(unix)]
fn append(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;

    use rustix::fs::{OFlags, fcntl_setfl};

    let mut options = OpenOptions::new();
    // Readable only by the owner, because the log records who accessed what.
    options.append(true).create(true).mode(0o600);
    // Opening a FIFO that nobody reads must fail instead of blocking. Writes may block, because the log has a thread of
    // its own.
    let file = options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(file)
}

#[cfg(not(unix))]
fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// The error of a log that could not be opened.
fn unopened(destination: &Destination, cause: io::Error) -> anyhow::Error {
    match destination {
        Destination::File(path) => {
            let message = format!("could not open the audit log `{}`: {cause}", path.display());
            match is_unread_fifo(&cause) {
                true => advice(message, "it is a FIFO that no program reads: start the reader first"),
                false => anyhow::Error::msg(message),
            }
        }
        Destination::Stdout | Destination::Stderr => {
            anyhow::Error::new(cause).context("could not open the audit log")
        }
    }
}

/// Whether a file could not be opened because it is a FIFO without a reader.
#[cfg(unix)]
fn is_unread_fifo(cause: &io::Error) -> bool {
    cause.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error())
}

#[cfg(not(unix))]
fn is_unread_fifo(_: &io::Error) -> bool {
    false
}

/// Writes records in a thread.
#[derive(Clone)]
pub(crate) struct AuditWriter(Arc<Shared>);

struct Shared {
    lines: Sender<AuditMessage>,
    /// The bytes that wait to be written.
    waiting: Arc<AtomicUsize>,
    lost: Arc<LostLines>,
    /// Set to make the thread open the file again before it handles its next message. Lines that are already queued
    /// then go to the new file.
    reopen: Arc<AtomicBool>,
}

/// How many lines were dropped, or could not be written.
#[derive(Default)]
struct LostLines {
    /// Since the start, for the metrics.
    total: AtomicUsize,
    /// Since the last line that was queued; the next one reports them.
    unreported: AtomicUsize,
}

enum AuditMessage {
    /// A line, preceded by one that reports `reported` lost lines if there are any.
    Line { text: String, reported: usize },
    /// Answered when all lines before it are written.
    Flush(Sender<()>),
    /// Wakes the thread so that it checks `reopen`.
    Reopen,
}

impl AuditWriter {
    /// Opens the log, whose file is relative to `folder`. `stdio` is whether standard output is the connection to the
    /// client.
    pub(crate) fn open(config: &AuditConfig, folder: &Path, stdio: bool) -> Result<Self> {
        let destination = match (&config.file, stdio) {
            (Some(file), _) => Destination::File(folder.join(file)),
            (None, false) => Destination::Stdout,
            (None, true) => Destination::Stderr,
        };
        let output = destination.open().map_err(|cause| unopened(&destination, cause))?;
        Self::start(destination, output)
    }

    fn start(destination: Destination, output: Box<dyn Write + Send>) -> Result<Self> {
        let (lines, queue) = channel();
        let (waiting, reopen) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let lost = Arc::<LostLines>::default();
        let thread = LogThread {
            destination,
            output,
            waiting: waiting.clone(),
            lost: lost.clone(),
            reopen: reopen.clone(),
            failing: false,
        };
        std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || thread.run(&queue))
            .context("could not start the thread of the audit log")?;
        Ok(Self(Arc::new(Shared { lines, waiting, lost, reopen })))
    }

    /// Opens the file again, after it was renamed to rotate it.
    pub(crate) fn reopen(&self) {
        self.0.reopen.store(true, Ordering::Release);
        let _ = self.0.lines.send(AuditMessage::Reopen);
    }

    /// Waits until all queued lines are written, but at most for `FLUSH_TIMEOUT`.
    pub(crate) fn flush(&self) {
        let (written, receiver) = channel();
        if self.0.lines.send(AuditMessage::Flush(written)).is_ok() {
            let _ = receiver.recv_timeout(FLUSH_TIMEOUT);
        }
    }

    fn queue(&self, mut line: String) {
        let shared = &*self.0;
        let size = line.len();
        if shared.waiting.fetch_add(size, Ordering::AcqRel) + size > MAX_WAITING_BYTES {
            shared.waiting.fetch_sub(size, Ordering::AcqRel);
            shared.lost.total.fetch_add(1, Ordering::Relaxed);
            shared.lost.unreported.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let reported = shared.lost.unreported.swap(0, Ordering::Relaxed);
        if reported > 0 {
            let note = format!("{{\"dropped\":{reported}}}\n");
            shared.waiting.fetch_add(note.len(), Ordering::AcqRel);
            line.insert_str(0, &note);
        }
        let _ = shared.lines.send(AuditMessage::Line { text: line, reported });
    }
}

/// Flushes the log when it is dropped.
pub(crate) struct FlushOnDrop(pub(crate) AuditWriter);

impl Drop for FlushOnDrop {
    fn drop(&mut self) {
        self.0.flush();
    }
}

impl AuditLog for AuditWriter {
    fn record(&self, record: &AuditRecord<'_>) {
        self.queue(record.json_line(SystemTime::now()));
    }

    fn dropped(&self) -> usize {
        self.0.lost.total.load(Ordering::Relaxed)
    }
}

/// The thread that writes the log.
struct LogThread {
    destination: Destination,
    output: Box<dyn Write + Send>,
    waiting: Arc<AtomicUsize>,
    lost: Arc<LostLines>,
    reopen: Arc<AtomicBool>,
    /// Whether the last write failed, so that only the first failure in a row is logged.
    failing: bool,
}

impl LogThread {
    fn run(mut self, queue: &Receiver<AuditMessage>) {
        while let Ok(message) = queue.recv() {
            if self.reopen.swap(false, Ordering::AcqRel) {
                self.open_again();
            }
            match message {
                AuditMessage::Line { text, reported } => {
                    let written = self.output.write_all(text.as_bytes());
                    self.waiting.fetch_sub(text.len(), Ordering::AcqRel);
                    if written.is_err() {
                        self.lost.total.fetch_add(1, Ordering::Relaxed);
                        // The report of earlier losses was lost too.
                        self.lost.unreported.fetch_add(1 + reported, Ordering::Relaxed);
                    }
                    match written {
                        Ok(()) => self.failing = false,
                        Err(cause) if !self.failing => {
                            self.failing = true;
                            tracing::error!(%cause, "could not write the audit log");
                        }
                        Err(_) => {}
                    }
                }
                AuditMessage::Flush(written) => {
                    let _ = self.output.flush();
                    let _ = written.send(());
                }
                AuditMessage::Reopen => {}
            }
        }
    }

    fn open_again(&mut self) {
        match self.destination.open() {
            Ok(output) => self.output = output,
            Err(cause) => {
                tracing::error!(%cause, "could not open the audit log again; writing to the old file")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AuditConfig, AuditWriter, Destination, MAX_WAITING_BYTES};
    use libris::AuditLog as _;
    use std::io::{self, Write};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex, MutexGuard};

    /// A disk that writes only while the test does not hold its lock.
    #[derive(Clone, Default)]
    struct SlowDisk {
        gate: Arc<Mutex<()>>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl SlowDisk {
        fn stall(&self) -> MutexGuard<'_, ()> {
            self.gate.lock().unwrap()
        }

        fn text(&self) -> String {
            String::from_utf8(self.written.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for SlowDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _open = self.gate.lock().unwrap();
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_slow_disk_delays_no_request_and_dropped_lines_are_counted() {
        let disk = SlowDisk::default();
        let log = AuditWriter::start(Destination::Stderr, Box::new(disk.clone())).unwrap();
        let line = format!("{}\n", "x".repeat(9_999));
        let stalled = disk.stall();
        // Far more than fits: this returns although nothing is written.
        (0..1_000).for_each(|_| log.queue(line.clone()));
        let kept = MAX_WAITING_BYTES / line.len();
        assert_eq!(log.dropped(), 1_000 - kept);
        drop(stalled);
        log.flush();
        log.queue("last\n".to_owned());
        log.flush();
        let text = disk.text();
        assert_eq!(text.lines().filter(|line| line.starts_with('x')).count(), kept);
        assert!(text.ends_with(&format!("\n{{\"dropped\":{}}}\nlast\n", 1_000 - kept)));
    }

    /// A disk on which every write fails until there is space.
    #[derive(Clone, Default)]
    struct FullDisk {
        has_space: Arc<AtomicBool>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for FullDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.has_space.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let disk = FullDisk::default();
        let log = AuditWriter::start(Destination::Stderr, Box::new(disk.clone())).unwrap();
        for line in ["one\n", "two\n"] {
            log.queue(line.to_owned());
            log.flush();
        }
        assert_eq!(log.dropped(), 2);
        disk.has_space.store(true, Ordering::SeqCst);
        log.queue("three\n".to_owned());
        log.flush();
        assert_eq!(log.dropped(), 2);
        assert_eq!(*disk.written.lock().unwrap(), b"{\"dropped\":2}\nthree\n");
    }

    #[cfg(unix)]
    #[test]
    fn a_fifo_without_a_reader_is_an_error_and_one_with_a_reader_is_written_to() {
        use std::io::Read as _;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let config = AuditConfig { file: Some("audit.fifo".into()) };
        let open = || AuditWriter::open(&config, folder.path(), false);
        let error = crate::terminal::describe(&open().err().expect("nobody reads"));
        assert!(error.contains("start the reader first"), "{error}");
        let opened = std::thread::spawn(move || std::fs::File::open(path).unwrap());
        // The thread opens the FIFO as soon as there is a writer.
        let log = loop {
            match open() {
                Ok(log) => break log,
                Err(_) => std::thread::yield_now(),
            }
        };
        let mut reader = opened.join().unwrap();
        // More than the buffer of a pipe: writing waits for the reader, and no line is lost.
        let line = format!("{}\n", "x".repeat(9_999));
        (0..20).for_each(|_| log.queue(line.clone()));
        let mut text = vec![0; 20 * line.len()];
        reader.read_exact(&mut text).unwrap();
        assert_eq!((text, log.dropped()), (line.repeat(20).into_bytes(), 0));
        // If the reader leaves, lines are lost and counted.
        drop(reader);
        log.queue("lost\n".to_owned());
        log.flush();
        assert_eq!(log.dropped(), 1);
    }

    #[test]
    fn a_renamed_file_is_replaced_when_the_log_is_reopened() {
        let folder = tempfile::tempdir().unwrap();
        let (file, old) = (folder.path().join("audit.log"), folder.path().join("audit.log.1"));
        let log =
            AuditWriter::open(&AuditConfig { file: Some("audit.log".into()) }, folder.path(), false).unwrap();
        log.queue("one\n".to_owned());
        log.flush();
        std::fs::rename(&file, &old).unwrap();
        log.queue("two\n".to_owned());
        log.flush();
        log.reopen();
        log.queue("three\n".to_owned());
        log.flush();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "three\n");
    }
}
