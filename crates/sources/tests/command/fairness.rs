//! The queue of a command is fair among clients, and waiting in it does not count against `timeout`.

use super::Bench;
use super::limits::until;
use futures_util::future::join_all;
use libris_core::{Client, Context, Source as _, Uri};
use std::time::Duration;

/// Runs until the file `free` is there, unless it is told to be quick.
const HOLD: &str = "#!/bin/sh
echo $1 >> started
[ $1 = quick ] || until [ -e free ]; do sleep 0.05; done
echo done
";

fn context(last: u8) -> Context {
    Context::default().with_client(Client::at([127, 0, 0, last].into()))
}

#[tokio::test]
async fn slow_reads_of_one_client_do_not_hold_up_another() {
    let config = "[[command]]\nuri = \"hold://{name}\"\nrun = [\"./hold\", \"{{name}}\"]\ntimeout = \"1h\"";
    let bench = Bench::with(config, &[("hold", HOLD)]);
    let read = async |name: &str, last| {
        let uri = Uri::parse(&format!("hold://{name}")).unwrap();
        bench.commands.read(&uri, &context(last)).await.unwrap()
    };
    let started = || std::fs::read_to_string(bench.dir.path().join("started")).unwrap_or_default();
    let slow = join_all((0..60).map(|_| read("slow", 1)));
    let quick = async {
        until("the start of the slow ones", || started().lines().count() >= 3).await;
        let quick = tokio::time::timeout(Duration::from_secs(20), read("quick", 2)).await;
        assert!(quick.is_ok(), "it waits for the slow ones");
        // One turn is always left for another client.
        assert_eq!(started(), "slow\nslow\nslow\nquick\n");
        std::fs::write(bench.dir.path().join("free"), "").unwrap();
    };
    tokio::join!(slow, quick);
}

#[tokio::test]
async fn the_wait_for_a_turn_is_not_the_time_of_the_program() {
    let bench = Bench::new(
        "[[command]]\nuri = \"nap://{at}\"\nrun = [\"sleep\", \"0.{{at}}\"]\nconcurrent = 1\ntimeout = \"2s\"",
    );
    let reads = join_all((0..7).map(|_| bench.read("nap://5"))).await;
    // The last one waits for three seconds.
    assert!(reads.iter().all(Result::is_ok), "{reads:?}");
}
