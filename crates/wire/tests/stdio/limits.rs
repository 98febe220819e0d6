//! Limits on unread responses and queued requests.

use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libris_wire::Limits;
use serde_json::json;

use crate::support::modern;
use crate::{Client, drive};

/// For how long a count must be stable to count as final.
const REST: Duration = Duration::from_millis(400);

/// The value of a count once it is stable; immediately if it exceeds `most`.
fn rested(count: &AtomicUsize, most: usize) -> usize {
    let (mut seen, mut since) = (count.load(Ordering::SeqCst), Instant::now());
    while since.elapsed() < REST && seen <= most {
        std::thread::sleep(Duration::from_millis(5));
        let now = count.load(Ordering::SeqCst);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
    seen
}

/// Sends pieces from another thread. Returns the number of pieces that the server has read so far.
fn send_all(client: &Client, pieces: Vec<String>) -> Arc<AtomicUsize> {
    let mut input = client.input.try_clone().unwrap();
    let count = Arc::<AtomicUsize>::default();
    let sent = count.clone();
    std::thread::spawn(move || {
        for piece in pieces {
            input.write_all(piece.as_bytes()).unwrap();
            sent.fetch_add(1, Ordering::SeqCst);
        }
    });
    count
}

/// Responses limited by the memory budget, and responses limited by the queue length only.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_not_read_from() {
    for size in [1_048_576, 60_000] {
        let limits = Limits { in_flight: 8, ..Limits::default() };
        drive(limits, move |client, toy| {
            let read = |id| modern(id, "resources/read", json!({ "uri": format!("toy:size/{size}") }));
            // All at once, or the reader would wait with those that did not arrive together.
            send_all(client, vec![(0..60).map(|id| format!("{}\n", read(id))).collect()]);
            // The first response is being written; the number of started reads is still bounded.
            assert!(!client.output.fill_buf().unwrap().is_empty());
            let begun = rested(&toy.begun, 20);
            assert!(begun <= 20, "{begun} reads of {size} bytes have begun though nobody reads the answers");
            let mut seen: Vec<u32> = (0..60).map(|_| client.receive_id()).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..60).collect::<Vec<_>>());
        })
        .await;
    }
}

/// Small requests are bounded by their number, and large ones by their size.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_for_their_turn_are_bounded() {
    for (size, count, most) in [(20_000, 100, 20), (1_000_000, 12, 4)] {
        let limits = Limits { in_flight: 1, ..Limits::default() };
        drive(limits, move |client, toy| {
            let read = |id| {
                let message = modern(id, "resources/read", json!({ "uri": "toy:wait" })).to_string();
                format!("{message}{}\n", " ".repeat(size - message.len()))
            };
            let sent = send_all(client, (0..count).map(read).collect());
            let taken = rested(&sent, most);
            assert!(taken <= most, "{taken} requests of {size} bytes were taken while one is answered");
            assert_eq!(toy.begun.load(Ordering::SeqCst), 1);
            let answered = (0..count).map(|_| {
                toy.go.notify_one();
                client.receive_id()
            });
            assert_eq!(answered.collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
        })
        .await;
    }
}
