//! Other MCP servers as sources, as targets of the client commands, and behind a gateway. The other servers are this
//! binary, over both transports and in both eras, and small servers that record what they are asked for.
#![cfg(unix)]

mod client_commands;
mod contract;
mod gateway;
mod hanging;
mod library;
mod outage;
mod patience;
mod private;
#[path = "../process/mod.rs"]
mod process;
mod recorder;
mod skills_and_prompts;
mod toolbox;
mod tools;
mod transcript;
mod upstream;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libris_remote::{
    ChildEnvironment, ProtocolChoice, Remote, RemoteConfig, RemoteLimits, RemoteTarget, UriMount,
};

/// The program under test.
const LIBRIS: &str = env!("CARGO_BIN_EXE_libris");

/// Long enough for a busy machine: a test that works does not wait for it.
const LONG: Duration = Duration::from_secs(60);

/// A folder with these files.
fn folder(name: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(name).join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

/// This binary, serving a folder over stdio.
fn over_stdio(folder: &Path) -> RemoteTarget {
    RemoteTarget::Stdio {
        program: LIBRIS.into(),
        arguments: ["serve".into(), folder.into(), "--stdio".into()].into(),
        folder: PathBuf::new(),
        environment: ChildEnvironment::Inherited,
    }
}

fn over_http(url: &str) -> RemoteTarget {
    RemoteTarget::Http { url: url.to_owned(), token: None, headers: BTreeMap::new(), stored: None }
}

fn remote(name: &str, target: RemoteTarget, protocol: ProtocolChoice, mount: UriMount) -> Remote {
    let limits = RemoteLimits { retry: Duration::from_millis(50), ..RemoteLimits::default() };
    Remote::new(RemoteConfig { protocol, mount, limits, ..RemoteConfig::new(name, target) }).unwrap()
}
