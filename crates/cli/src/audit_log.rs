//! The audit log: JSON lines in a file or on a standard stream, written by a thread of its own.
//!
//! A request never waits for the log. If the lines that are not written yet exceed a limit, because the disk is slow or
//! full, further ones are dropped and counted: the next line that is written says how many are missing.

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

/// How many bytes of lines may wait to be written.
const MAX_WAITING_BYTES: usize = 4 << 20;

/// How long the end of the process waits for the last lines.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The audit log.
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

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        // Only its owner reads it: it says who reads what.
        options.mode(0o600);
    }
    options.open(path)
}

/// Writes records in a thread.
#[derive(Clone)]
pub(crate) struct AuditWriter(Arc<Shared>);

struct Shared {
    lines: Sender<AuditMessage>,
    waiting: Arc<AtomicUsize>,
    dropped: AtomicUsize,
    /// Lines dropped since the last line that was queued.
    missing: AtomicUsize,
    reopen: Arc<AtomicBool>,
}

enum AuditMessage {
    Line(String),
    /// Answered when all lines before it are written.
    Flush(Sender<()>),
    /// Wakes the thread.
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
        let output = destination.open().with_context(|| match &destination {
            Destination::File(path) => format!("could not open the audit log `{}`", path.display()),
            Destination::Stdout | Destination::Stderr => "could not open the audit log".to_owned(),
        })?;
        Self::start(destination, output)
    }

    fn start(destination: Destination, output: Box<dyn Write + Send>) -> Result<Self> {
        let (lines, queue) = channel();
        let (waiting, reopen) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let thread = LogThread {
            destination,
            output,
            waiting: waiting.clone(),
            reopen: reopen.clone(),
            failing: false,
        };
        std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || thread.run(&queue))
            .context("could not start the thread of the audit log")?;
        let (dropped, missing) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Ok(Self(Arc::new(Shared { lines, waiting, dropped, missing, reopen })))
    }

    /// Opens the file again, after it was renamed to rotate it.
    pub(crate) fn reopen(&self) {
        self.0.reopen.store(true, Ordering::Release);
        let _ = self.0.lines.send(AuditMessage::Reopen);
    }

    /// Waits until the lines so far are written, for a short time at most.
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
            shared.dropped.fetch_add(1, Ordering::Relaxed);
            shared.missing.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let missing = shared.missing.swap(0, Ordering::Relaxed);
        if missing > 0 {
            let note = format!("{{\"dropped\":{missing}}}\n");
            shared.waiting.fetch_add(note.len(), Ordering::AcqRel);
            line.insert_str(0, &note);
        }
        let _ = shared.lines.send(AuditMessage::Line(line));
    }
}

/// Waits for the last lines when it is dropped.
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
        self.0.dropped.load(Ordering::Relaxed)
    }
}

/// The thread that writes.
struct LogThread {
    destination: Destination,
    output: Box<dyn Write + Send>,
    waiting: Arc<AtomicUsize>,
    reopen: Arc<AtomicBool>,
    /// Whether the last write failed, so that only the first failure is logged.
    failing: bool,
}

impl LogThread {
    fn run(mut self, queue: &Receiver<AuditMessage>) {
        while let Ok(message) = queue.recv() {
            if self.reopen.swap(false, Ordering::AcqRel) {
                self.open_again();
            }
            match message {
                AuditMessage::Line(line) => {
                    let written = self.output.write_all(line.as_bytes());
                    self.waiting.fetch_sub(line.len(), Ordering::AcqRel);
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
    fn a_slow_disk_delays_nobody_and_what_is_missing_is_counted() {
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
