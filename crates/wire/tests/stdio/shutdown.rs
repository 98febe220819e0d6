//! Shutdown does not wait for a client that neither sends nor reads.

use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Read as _, Write as _};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use libris_wire::{Limits, stdio};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::support::{Toy, modern, request};

/// Distinguishes a slow shutdown on a loaded machine from one that is blocked.
const SOON: Duration = Duration::from_secs(20);

/// How a server ends before its client leaves.
#[derive(Clone, Copy, Debug)]
enum End {
    Aborted,
    Stopped,
}

/// The client's state at shutdown.
#[derive(Clone, Copy, Debug)]
enum Peer {
    Idle,
    Listens,
    DoesNotRead,
}

/// The client's ends of the pipes to a server.
struct Pipes {
    input: PipeWriter,
    output: BufReader<PipeReader>,
}

impl Peer {
    /// Returns once the client has sent all its requests and the server works on them.
    fn begin(self, pipes: &mut Pipes) {
        let mut line = String::new();
        match self {
            Self::Idle => {
                writeln!(pipes.input, "{}", request(1, "ping", json!({}))).unwrap();
                pipes.output.read_line(&mut line).unwrap();
            }
            Self::Listens => {
                let listen = json!({ "notifications": { "resourcesListChanged": true } });
                writeln!(pipes.input, "{}", modern(1, "subscriptions/listen", listen)).unwrap();
                pipes.output.read_line(&mut line).unwrap();
            }
            Self::DoesNotRead => {
                for id in 0..40 {
                    let read = modern(id, "resources/read", json!({ "uri": "toy:size/1000000" }));
                    writeln!(pipes.input, "{read}").unwrap();
                }
                // The first response is being written and exceeds the pipe's capacity.
                assert!(!pipes.output.fill_buf().unwrap().is_empty());
            }
        }
    }
}

fn runtimes() -> [Runtime; 2] {
    [Builder::new_multi_thread().worker_threads(2), &mut Builder::new_current_thread()]
        .map(|builder| builder.enable_all().build().unwrap())
}

/// Serves a client on a runtime until its requests have started, then shuts down.
fn serve_and_end(runtime: &Runtime, peer: Peer, end: End) -> Pipes {
    let (server_input, input) = std::io::pipe().unwrap();
    let (output, server_output) = std::io::pipe().unwrap();
    let mut pipes = Pipes { input, output: BufReader::new(output) };
    let stop = CancellationToken::new();
    let limits = Limits { in_flight: 4, ..Limits::default() };
    let served = stdio::serve(Toy::new(), limits, server_input, server_output, stop.clone());
    runtime.block_on(async move {
        let server = tokio::spawn(served);
        let pipes = tokio::task::spawn_blocking(move || {
            peer.begin(&mut pipes);
            pipes
        });
        let pipes = pipes.await.unwrap();
        match end {
            End::Aborted => server.abort(),
            End::Stopped => stop.cancel(),
        }
        // A `JoinError` if the task was aborted.
        let _ = server.await;
        pipes
    })
}

#[test]
fn a_runtime_shuts_down_without_its_client() {
    for (peer, end) in [
        (Peer::Idle, End::Aborted),
        (Peer::Idle, End::Stopped),
        (Peer::Listens, End::Aborted),
        (Peer::Listens, End::Stopped),
        (Peer::DoesNotRead, End::Aborted),
    ] {
        for (number, runtime) in runtimes().into_iter().enumerate() {
            let (done, ended) = mpsc::channel();
            std::thread::spawn(move || {
                let pipes = serve_and_end(&runtime, peer, end);
                drop(runtime);
                // The client outlives the server.
                done.send(pipes).unwrap();
            });
            let pipes = ended.recv_timeout(SOON);
            assert!(pipes.is_ok(), "{peer:?}, {end:?}: runtime {number} did not shut down");
        }
    }
}

#[test]
fn a_client_of_a_dropped_server_sees_the_end_when_it_sends_or_reads() {
    for peer in [Peer::Idle, Peer::Listens, Peer::DoesNotRead] {
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let [runtime, _] = runtimes();
            let Pipes { mut input, mut output } = serve_and_end(&runtime, peer, End::Aborted);
            // The process may have ended already.
            let late = modern(99, "resources/read", json!({ "uri": "toy:kept/late" }));
            let _ = writeln!(input, "{late}");
            let mut rest = String::new();
            output.read_to_string(&mut rest).unwrap();
            done.send((rest, Arc::new(runtime))).unwrap();
        });
        let (rest, _runtime) = ended.recv_timeout(SOON).unwrap_or_else(|_| panic!("{peer:?}: no end"));
        assert!(!rest.contains("\"id\":99"), "{peer:?}: answered after the server was dropped");
    }
}
