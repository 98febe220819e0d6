//! Memory is reserved before a program starts, and as its output grows.

use super::Bench;
use futures_util::future::join_all;
use libris_core::{ContentMemory, Context, Result, Source as _, Uri};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A script that prints a number of bytes and records that it ran.
const PRINT: &str = "#!/bin/sh\necho $1 >> runs\nhead -c $1 /dev/zero | tr '\\0' x\n";

const CONFIG: &str = "[[command]]\nuri = \"print://{bytes}/{name}\"\nrun = [\"./print\", \"{{bytes}}\", \"{{name}}\"]\nmax_size = 50000000\ntimeout = \"1m\"";

/// The memory budget of a server.
struct Total {
    most: usize,
    used: Mutex<usize>,
}

/// The reservation of one read.
struct Reserved {
    total: Arc<Total>,
    bytes: AtomicUsize,
    /// How often there was too little of it, for a read that may be repeated and for one that may not.
    waits: AtomicUsize,
    refusals: AtomicUsize,
}

impl Total {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, used: Mutex::default() })
    }

    fn reserved(self: &Arc<Self>) -> Arc<Reserved> {
        let (bytes, waits, refusals) = Default::default();
        Arc::new(Reserved { total: self.clone(), bytes, waits, refusals })
    }
}

impl Reserved {
    fn take(&self, bytes: usize) -> bool {
        let mut used = self.total.used.lock().unwrap();
        let there = *used + bytes <= self.total.most;
        if there {
            *used += bytes;
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        there
    }
}

impl ContentMemory for Reserved {
    fn reserve(&self, bytes: usize) -> bool {
        let there = self.take(bytes);
        self.waits.fetch_add(usize::from(!there), Ordering::Relaxed);
        there
    }

    fn grow(&self, bytes: usize) -> bool {
        let there = self.take(bytes);
        self.refusals.fetch_add(usize::from(!there), Ordering::Relaxed);
        there
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        *self.total.used.lock().unwrap() -= self.bytes.load(Ordering::Relaxed);
    }
}

/// Reads a resource. Returns its size in bytes.
async fn read(bench: &Bench, uri: &str, reserved: &Arc<Reserved>) -> Result<usize> {
    let context = Context::default().with_memory(reserved.clone());
    let contents = bench.commands.read(&Uri::parse(uri).unwrap(), &context).await?;
    Ok(contents.parts[0].body.len())
}

fn runs(bench: &Bench) -> usize {
    std::fs::read_to_string(bench.dir.path().join("runs")).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn large_outputs_of_many_readers_stay_within_the_memory_that_there_is() {
    let bench = Bench::with(CONFIG, &[("print", PRINT)]);
    let total = Total::new(8 << 20);
    let reads = (0..50).map(async |name| {
        loop {
            let reserved = total.reserved();
            match read(&bench, &format!("print://2000000/{name}"), &reserved).await {
                Ok(size) => {
                    let bytes = reserved.bytes.load(Ordering::Relaxed);
                    assert!(size == 2_000_000 && bytes >= size, "{size} bytes in {bytes}");
                    break;
                }
                Err(error) => assert!(error.to_string().contains("no memory left"), "{error}"),
            }
            tokio::task::yield_now().await;
        }
    });
    join_all(reads).await;
    assert_eq!(*total.used.lock().unwrap(), 0);
}

#[tokio::test]
async fn no_program_starts_without_memory_nor_runs_twice_for_it() {
    let bench = Bench::with(CONFIG, &[("print", PRINT)]);
    let none = Total::new(0).reserved();
    assert!(read(&bench, "print://10/a", &none).await.is_err());
    assert_eq!((none.waits.load(Ordering::Relaxed), runs(&bench)), (1, 0));

    let little = Total::new(1 << 20).reserved();
    let error = read(&bench, "print://3000000/a", &little).await.unwrap_err();
    let no_memory = "the server has no memory left for large contents; try again later";
    assert_eq!(error.to_string(), no_memory);
    let counts = (little.waits.load(Ordering::Relaxed), little.refusals.load(Ordering::Relaxed));
    assert_eq!((counts, runs(&bench)), ((0, 1), 1));

    // The next read reserves the memory that the failed one needed before it starts the program.
    let little = Total::new(1 << 20).reserved();
    assert_eq!(read(&bench, "print://3000000/a", &little).await.unwrap_err().to_string(), no_memory);
    assert_eq!((little.waits.load(Ordering::Relaxed), runs(&bench)), (1, 1));

    let enough = Total::new(8 << 20).reserved();
    assert_eq!(read(&bench, "print://3000000/a", &enough).await.unwrap(), 3_000_000);
    assert_eq!(runs(&bench), 2);
}

#[tokio::test]
async fn a_large_output_is_soon_forgotten() {
    let bench = Bench::with(CONFIG, &[("print", PRINT)]);
    let reserved = async |uri: &str| {
        let reserved = Total::new(64 << 20).reserved();
        read(&bench, uri, &reserved).await.unwrap();
        reserved.bytes.load(Ordering::Relaxed)
    };
    let large = reserved("print://8000000/a").await;
    assert!(large >= 8_000_000, "{large}");
    let mut before = reserved("print://10/a").await;
    assert_eq!(before, large, "the next output may be as large");
    for run in 0..60 {
        let now = reserved("print://10/a").await;
        assert!(now < before || now == 256 << 10, "run {run}: {now} bytes, {before} before");
        before = now;
    }
    assert_eq!(before, 256 << 10);
}
