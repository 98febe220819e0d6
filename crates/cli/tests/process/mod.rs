//! The built binary as a process that ends with the test.

use std::ffi::OsStr;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// `libris serve` with `what` to serve.
pub(crate) fn serve(what: &[&OsStr]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_libris"));
    command.arg("serve").args(what).kill_on_drop(true);
    command
}

/// A server on a free port.
pub(crate) struct HttpServer {
    pub(crate) url: String,
    #[allow(dead_code, reason = "not every test asks for its number")]
    pub(crate) process: Child,
    /// The lines that it has written to standard error since it listens.
    said: UnboundedReceiver<String>,
}

impl HttpServer {
    pub(crate) async fn start(what: &[&OsStr]) -> Self {
        Self::start_on("127.0.0.1:0", what).await
    }

    /// A server on this address.
    #[allow(dead_code, reason = "most tests serve on loopback")]
    pub(crate) async fn start_on(address: &str, what: &[&OsStr]) -> Self {
        let mut process = serve(what)
            .args(["--http", address])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("libris starts");
        let mut said = BufReader::new(process.stderr.take().expect("stderr")).lines();
        let url = loop {
            let line = said.next_line().await.expect("text").expect("libris says where it listens");
            if let Some((_, url)) = line.split_once("listening on ") {
                break url.to_owned();
            }
        };
        // The server would block on a full pipe.
        let (lines, received) = unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = said.next_line().await {
                let _ = lines.send(line);
            }
        });
        Self { url, process, said: received }
    }

    /// Waits until it writes a line with this text.
    #[allow(dead_code, reason = "not every test listens")]
    pub(crate) async fn says(&mut self, text: &str) {
        while !self.said.recv().await.expect("libris goes on").contains(text) {}
    }
}
