//! PostgreSQL and MariaDB servers of our own, on free ports and in folders that go away with the tests.
//!
//! Each is started by a small shell that waits for the end of its standard input, which comes when the
//! tests end, however they end. Then it stops the server and removes the folder.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A server that runs until this is dropped or the tests end.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    port: u16,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Postgres,
    Mysql,
}

/// How long a server may take to start.
const PATIENCE: Duration = Duration::from_secs(90);

/// The shell: `$1` is the signal that stops the server, `$2` a folder to remove, the rest the server.
const SUPERVISE: &str = r#"
signal=$1; folder=$2; shift 2
"$@" </dev/null >"$folder/log" 2>&1 &
server=$!
cat >/dev/null
kill -s "$signal" "$server"
wait "$server"
[ -e "$folder/keep" ] || rm -rf "$folder"
"#;

/// The one PostgreSQL that most tests share.
pub(crate) fn postgres() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::postgres)
}

/// The one MariaDB that most tests share.
pub(crate) fn mysql() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::mysql)
}

impl Server {
    /// A new PostgreSQL.
    pub(crate) fn postgres() -> Self {
        let folder = folder();
        let initdb = postgres_program("initdb");
        let data = folder.join("data");
        let mut command = as_other(&initdb, &folder);
        command.args(["--username=ada", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]);
        finished(command.arg("-D").arg(data));
        Self::start(Kind::Postgres, folder, free_port())
    }

    /// A new MariaDB.
    pub(crate) fn mysql() -> Self {
        let folder = folder();
        let install = program("mariadb-install-db", &["/usr/bin/mariadb-install-db"], "mariadb-server");
        let mut command = Command::new(install);
        command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        command.arg(format!("--user={}", me())).arg(format!("--datadir={}", folder.join("data").display()));
        finished(&mut command);
        Self::start(Kind::Mysql, folder, free_port())
    }

    fn start(kind: Kind, folder: PathBuf, port: u16) -> Self {
        let data = folder.join("data");
        let (signal, server) = match kind {
            Kind::Postgres => {
                let mut server = as_other(&postgres_program("postgres"), &folder);
                server.arg("-D").arg(&data).args([
                    "-F",
                    "-p",
                    &port.to_string(),
                    "-c",
                    "listen_addresses=127.0.0.1",
                ]);
                server.args(["-c", "max_connections=200"]).arg("-k").arg(&folder);
                ("QUIT", server)
            }
            Kind::Mysql => {
                let places = ["/usr/sbin/mariadbd", "/usr/libexec/mariadbd"];
                let mut server = Command::new(program("mariadbd", &places, "mariadb-server"));
                server.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-log-bin"]);
                server.args(["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M"]);
                server.arg(format!("--user={}", me())).arg(format!("--port={port}"));
                server.arg(format!("--datadir={}", data.display()));
                server.arg(format!("--socket={}", folder.join("socket").display()));
                ("KILL", server)
            }
        };
        let child = Command::new("sh")
            .args(["-c", SUPERVISE, "supervise", signal])
            .arg(&folder)
            .arg(server.get_program())
            .args(server.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        let server = Self { child, folder, port, kind };
        server.wait();
        server
    }

    /// Waits until the server answers.
    fn wait(&self) {
        let begun = Instant::now();
        let answers = || match self.kind {
            Kind::Postgres => {
                let mut ready = Command::new(postgres_program("pg_isready"));
                let ready = ready.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
                ready.status().is_ok_and(|status| status.success())
            }
            Kind::Mysql => std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok(),
        };
        while !answers() {
            if begun.elapsed() > PATIENCE {
                panic!("the server did not start within {PATIENCE:?}:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The URL of a database on it.
    pub(crate) fn url(&self, database: &str) -> String {
        match self.kind {
            Kind::Postgres => format!("postgres://ada@127.0.0.1:{}/{database}", self.port),
            Kind::Mysql => format!("mysql://root@127.0.0.1:{}/{database}", self.port),
        }
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.join("log")).unwrap()).into_owned()
    }

    /// Stops it as a crash would, and leaves its data.
    pub(crate) fn stop(mut self) -> Stopped {
        std::fs::write(self.folder.join("keep"), "").unwrap();
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
        std::fs::remove_file(self.folder.join("keep")).unwrap();
        Stopped { folder: self.folder.clone(), port: self.port, kind: self.kind }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A server that was stopped.
pub(crate) struct Stopped {
    folder: PathBuf,
    port: u16,
    kind: Kind,
}

impl Stopped {
    /// Starts it again, on the same port.
    pub(crate) fn start(self) -> Server {
        Server::start(self.kind, self.folder, self.port)
    }
}

fn folder() -> PathBuf {
    tempfile::Builder::new().prefix("libris-sql-").tempdir().unwrap().keep()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn is_root() -> bool {
    me() == "root"
}

fn me() -> String {
    let output = Command::new("id").arg("-un").output().expect("`id` runs");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn program(name: &str, places: &[&str], package: &str) -> PathBuf {
    let found = places.iter().map(PathBuf::from).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("`{name}` is missing: install the package `{package}`"))
}

/// A program of PostgreSQL, which Debian keeps where no path leads.
fn postgres_program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok().into_iter().flatten().flatten();
    let mut found: Vec<_> = versions.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().unwrap_or_else(|| panic!("`{name}` is missing: install the package `postgresql`"))
}

/// PostgreSQL refuses to run as root, so another user does, who gets the folder.
fn as_other(program: &Path, folder: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    finished(Command::new("chown").args(["-R", "postgres"]).arg(folder));
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(program);
    command
}

fn finished(command: &mut Command) {
    let output = command.current_dir("/").output().unwrap_or_else(|cause| panic!("{command:?}: {cause}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
