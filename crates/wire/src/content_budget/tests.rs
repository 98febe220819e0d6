//! Tests of the memory budget for contents, with a simulated clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep, sleep_until};

use super::{ContentBudget, ContentLease, ENCODED_AHEAD, Recipient, RequestReservation, Share};
use crate::envelope::Framed;
use libris_core::Client;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A budget of 1 MiB for small responses, 2 MiB for medium and 9 MiB for large ones.
fn memory(share: Share) -> Arc<ContentBudget> {
    ContentBudget::new(12 * MIB, share, Duration::from_secs(60))
}

fn client(last: u8) -> Client {
    Client::at([127, 0, 0, last].into())
}

/// How many responses of this size a client can reserve memory for.
fn count(content_budget: &Arc<ContentBudget>, last: u8, bytes: usize) -> usize {
    let taken: Vec<_> = std::iter::from_fn(|| content_budget.try_take(client(last), bytes)).collect();
    taken.len()
}

fn framed(bytes: usize) -> Framed {
    Framed::whole(vec![b'x'; bytes])
}

/// A connection whose client reads a given number of bytes per second, for a given time.
#[derive(Default)]
struct TestRecipient {
    /// For an HTTP/2 stream: how many streams share the connection.
    sharers: AtomicU64,
    /// The number of bytes that the client has read.
    bytes_read: AtomicU64,
    closed: AtomicBool,
}

impl TestRecipient {
    fn reading(per_second: u64, until: Duration) -> Arc<Self> {
        let connection = Arc::<Self>::default();
        let (reader, end) = (connection.clone(), Instant::now() + until);
        tokio::spawn(async move {
            while Instant::now() < end {
                sleep(Duration::from_millis(100)).await;
                reader.bytes_read.fetch_add(per_second / 10, Ordering::SeqCst);
            }
        });
        connection
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }
}

impl Recipient for TestRecipient {
    fn bytes_sent(&self) -> u64 {
        self.bytes_read.load(Ordering::SeqCst)
    }

    fn sharers(&self) -> u64 {
        self.sharers.load(Ordering::SeqCst)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}

/// A response of `bytes` that is being sent.
fn sending(
    content_budget: &Arc<ContentBudget>,
    last: u8,
    bytes: usize,
    connection: &Arc<TestRecipient>,
) -> ContentLease {
    let lease = content_budget.try_take(client(last), bytes).unwrap();
    lease.sending_to(connection);
    lease
}

#[test]
fn small_medium_and_large_responses_have_separate_budgets() {
    let content_budget = memory(Share::ThreeQuarters);
    for (bytes, most) in [(64 * KIB, 12), (64 * KIB + 1, 23), (MIB, 1), (MIB + 1, 6)] {
        assert_eq!(count(&content_budget, 1, bytes), most, "{bytes}");
    }
    let sizes = [64 * KIB, MIB, MIB + 1];
    for full in sizes {
        let all =
            |last| std::iter::from_fn(|| content_budget.try_take(client(last), full)).collect::<Vec<_>>();
        let _held = [all(1), all(2)];
        for bytes in sizes {
            assert_eq!(
                count(&content_budget, 3, bytes) == 0,
                bytes == full,
                "{bytes} bytes while the budget for {full} bytes is used up"
            );
        }
    }
    assert_eq!(content_budget.used(), 0);
}

#[test]
fn one_client_has_three_quarters_unless_it_is_the_only_one() {
    let content_budget = memory(Share::ThreeQuarters);
    let _most = content_budget.try_take(client(1), 27 * MIB / 4).unwrap();
    assert_eq!((count(&content_budget, 1, MIB + 1), count(&content_budget, 2, MIB + 1)), (0, 2));
    assert_eq!(count(&memory(Share::All), 1, 9 * MIB / 8), 8);
}

#[test]
fn contents_are_counted_with_the_buffers_that_they_are_encoded_in() {
    let content_budget = memory(Share::ThreeQuarters);
    let reserved = RequestReservation::new(&content_budget, client(1));
    assert!(reserved.reserve(3 * MIB) && reserved.reserve(MIB));
    assert_eq!(content_budget.used(), 4 * MIB + ENCODED_AHEAD);
    drop(reserved);
    let reserved = RequestReservation::new(&content_budget, client(1));
    assert!(reserved.reserve(200 * KIB));
    assert_eq!(content_budget.used(), 400 * KIB);
}

#[test]
fn the_reservation_is_resized_to_the_response() {
    for bytes in [100_000, 300_000, 700_000] {
        let content_budget = memory(Share::ThreeQuarters);
        let reserved = RequestReservation::new(&content_budget, client(1));
        assert!(reserved.reserve(150_000));
        let lease = reserved.lease_for(&framed(bytes)).now_or_never().flatten();
        assert_eq!(content_budget.used(), bytes);
        drop(lease);
        assert_eq!(content_budget.used(), 0);
    }
}

#[test]
fn the_response_of_a_route_keeps_what_the_route_reserved() {
    for (bytes, used) in [(0, 0), (100_000, 100_000), (500_000, 500_000)] {
        let content_budget = memory(Share::ThreeQuarters);
        let reserved = RequestReservation::new(&content_budget, client(1));
        assert!(reserved.reserve(150_000));
        let lease = reserved.lease_for_bytes(bytes).now_or_never().flatten();
        assert_eq!((lease.is_some(), content_budget.used()), (true, used));
        drop(lease);
        assert_eq!(content_budget.used(), 0);
    }
}

#[tokio::test]
async fn a_request_waits_for_the_memory_of_loaded_contents() {
    let content_budget = memory(Share::ThreeQuarters);
    let reserved = RequestReservation::new(&content_budget, client(1));
    let others = content_budget.try_take(client(2), 6 * MIB).unwrap();
    assert!(reserved.reserve(MIB) && !reserved.reserve_total(5 * MIB));
    let mut waiting = Box::pin(reserved.wait());
    assert!((&mut waiting).now_or_never().is_none());
    // What the request held is released meanwhile.
    assert_eq!(content_budget.used(), 6 * MIB);
    drop(others);
    assert!(waiting.await && reserved.reserve(MIB) && reserved.reserve_total(5 * MIB));
    // Unlike this one, `reserve_loaded` does not wait.
    let held = content_budget.try_take(client(2), 3 * MIB).unwrap();
    assert!(!reserved.reserve_loaded(6 * MIB) && !reserved.wait().await);
    drop(held);
}

#[tokio::test]
async fn a_tiny_response_does_not_wait() {
    let content_budget = memory(Share::ThreeQuarters);
    let lease = || {
        RequestReservation::new(&content_budget, client(3))
            .lease_for(&framed(4 * KIB))
            .now_or_never()
            .flatten()
    };
    let counted = lease().unwrap();
    assert_eq!(content_budget.used(), 4 * KIB);
    let full: Vec<_> = [1, 2, 3]
        .iter()
        .flat_map(|last| std::iter::from_fn(|| content_budget.try_take(client(*last), KIB)))
        .collect();
    let used = content_budget.used();
    assert!(full.len() > 900 && lease().is_some());
    assert_eq!(content_budget.used(), used);
    drop((counted, full));
    assert_eq!(content_budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn slow_clients_are_closed_while_others_wait() {
    let content_budget = memory(Share::ThreeQuarters);
    let hour = Duration::from_secs(3600);
    let (slow, fast) = (TestRecipient::reading(64 << 10, hour), TestRecipient::reading(1 << 20, hour));
    let idle = Arc::<TestRecipient>::default();
    let leases = [sending(&content_budget, 1, 4 * MIB, &slow), sending(&content_budget, 2, 4 * MIB, &fast)];
    drop(sending(&content_budget, 3, MIB / 2, &idle));
    sleep(Duration::from_secs(60)).await;
    assert!(!slow.is_closed(), "nobody needs its memory");
    let began = Instant::now();
    let waiting = tokio::spawn({
        let content_budget = content_budget.clone();
        async move { content_budget.take(client(3), 4 * MIB).await.is_some() }
    });
    sleep_until(began + Duration::from_secs(11)).await;
    assert!(!slow.is_closed(), "it was not measured for long enough");
    sleep_until(began + Duration::from_secs(14)).await;
    assert!(slow.is_closed());
    let [lease, _held] = leases;
    drop(lease);
    assert!(waiting.await.unwrap());
    assert!(!fast.is_closed() && !idle.is_closed(), "one is fast, the other holds no memory");
}

#[tokio::test(start_paused = true)]
async fn streams_of_one_connection_share_its_minimum_rate() {
    let content_budget = memory(Share::ThreeQuarters);
    let hour = Duration::from_secs(3600);
    let [part, less, nothing] = [40 << 10, 20 << 10, 0].map(|speed| TestRecipient::reading(speed, hour));
    let all = [&part, &less, &nothing];
    all.iter().for_each(|stream| stream.sharers.store(4, Ordering::SeqCst));
    let _leases = all.map(|stream| sending(&content_budget, 1, 2 * MIB, stream));
    let _waiting = tokio::spawn({
        let content_budget = content_budget.clone();
        async move { content_budget.take(client(2), 6 * MIB).await.is_some() }
    });
    sleep(Duration::from_secs(20)).await;
    assert_eq!(all.map(|stream| stream.is_closed()), [false, true, true]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_holds_memory_does_not_wait_for_more() {
    let content_budget = memory(Share::ThreeQuarters);
    let _other = content_budget.try_take(client(1), 5 * MIB).unwrap();
    let reserved = RequestReservation::new(&content_budget, client(2));
    assert!(reserved.reserve(2 * MIB) && reserved.hold(2 * MIB));
    assert!(!reserved.reserve(2 * MIB));
    let used = content_budget.used();
    assert_eq!(reserved.wait().now_or_never(), Some(false));
    assert_eq!(content_budget.used(), used, "it released memory that it uses");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_becomes_slow_is_closed() {
    let content_budget = memory(Share::ThreeQuarters);
    let connection = TestRecipient::reading(8 << 20, Duration::from_secs(12));
    let _lease = sending(&content_budget, 1, 6 * MIB, &connection);
    let began = Instant::now();
    let _waiting = tokio::spawn({
        let content_budget = content_budget.clone();
        async move { content_budget.take(client(2), 6 * MIB).await.is_some() }
    });
    sleep_until(began + Duration::from_secs(20)).await;
    assert!(!connection.is_closed());
    sleep_until(began + Duration::from_secs(40)).await;
    assert!(connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_request_releases_its_memory_before_it_waits_for_more() {
    let content_budget = memory(Share::ThreeQuarters);
    let both = [1, 2].map(|last| RequestReservation::new(&content_budget, client(last)));
    assert!(both.iter().all(|reserved| reserved.reserve(3 * MIB)));
    assert!(!both.iter().any(|reserved| reserved.reserve(2 * MIB)));
    let started_over = both.map(|reserved| async move { reserved.wait().await && reserved.reserve(5 * MIB) });
    assert_eq!(futures_util::future::join_all(started_over).await, [true, true]);
    assert_eq!(content_budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_does_not_count_while_a_request_waits_for_memory() {
    let content_budget = memory(Share::ThreeQuarters);
    let held = content_budget.try_take(client(1), 6 * MIB).unwrap();
    let reserved = RequestReservation::new(&content_budget, client(2));
    assert!(!reserved.reserve(4 * MIB) && reserved.resumed().is_none());
    let before = std::time::Instant::now();
    let mut waiting = Box::pin(reserved.wait());
    assert!((&mut waiting).now_or_never().is_none());
    assert!(reserved.resumed().is_some_and(|since| since >= before));
    drop(held);
    assert!(waiting.await);
    let granted = reserved.resumed();
    assert!(granted.is_some() && granted == reserved.resumed());
}
