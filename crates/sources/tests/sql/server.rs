//! PostgreSQL and MariaDB servers on free ports and in temporary folders, for tests and benchmarks.
//!
//! A shell supervises each server. It waits for the end of its standard input, which the kernel closes when the test
//! process ends or crashes; then it stops the server and removes the folder.

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

/// The supervisor: `$1` is the signal that stops the server, `$2` the folder to remove, the rest the server's command.
const SUPERVISE: &str = r#"
signal=$1; folder=$2; shift 2
"$@" </dev/null >"$folder/log" 2>&1 &
server=$!
cat >/dev/null
kill -s "$signal" "$server"
wait "$server"
[ -e "$folder/keep" ] || rm -rf "$folder"
"#;

/// The PostgreSQL server that most tests share.
pub(crate) fn postgres() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::postgres)
}

/// The MariaDB server that most tests share.
pub(crate) fn mysql() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::mysql)
}

impl Server {
    /// Starts a PostgreSQL server with an empty cluster.
    pub(crate) fn postgres() -> Self {
        Self::postgres_in(folder(), "trust", &[])
    }

    /// Starts a PostgreSQL server that requires passwords. Its user has none, so every password is wrong.
    pub(crate) fn postgres_with_passwords() -> Self {
        Self::postgres_in(folder(), "scram-sha-256", &[])
    }

    /// Starts a PostgreSQL server that uses this certificate.
    pub(crate) fn postgres_with_tls(certificate: &Certificate) -> Self {
        let folder = folder();
        certificate.copy_to(&folder);
        let path = |name: &str| folder.join(name).display().to_string();
        let arguments = [
            "-c".to_owned(),
            "ssl=on".to_owned(),
            "-c".to_owned(),
            format!("ssl_cert_file={}", path("server.crt")),
            "-c".to_owned(),
            format!("ssl_key_file={}", path("server.key")),
        ];
        Self::postgres_in(folder, "trust", &arguments)
    }

    fn postgres_in(folder: PathBuf, authentication: &str, arguments: &[String]) -> Self {
        let initdb = postgres_program("initdb");
        let data = folder.join("data");
        let mut command = as_other(&initdb, &folder);
        command.args(["--username=ada", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]);
        finished(command.arg("-D").arg(&data));
        std::fs::write(data.join("pg_hba.conf"), format!("host all all all {authentication}\n")).unwrap();
        Self::start(Kind::Postgres, folder, free_port(), arguments)
    }

    /// Starts a MariaDB server with an empty data directory.
    pub(crate) fn mysql() -> Self {
        Self::mysql_in(folder(), &[])
    }

    /// Starts a MariaDB server that uses this certificate.
    pub(crate) fn mysql_with_tls(certificate: &Certificate) -> Self {
        let folder = folder();
        certificate.copy_to(&folder);
        let path = |name: &str| folder.join(name).display().to_string();
        let arguments =
            [format!("--ssl-cert={}", path("server.crt")), format!("--ssl-key={}", path("server.key"))];
        Self::mysql_in(folder, &arguments)
    }

    fn mysql_in(folder: PathBuf, arguments: &[String]) -> Self {
        let mut command = Command::new(mariadb_program("mariadb-install-db"));
        command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        command.arg(format!("--user={}", me())).arg(format!("--datadir={}", folder.join("data").display()));
        finished(&mut command);
        Self::start(Kind::Mysql, folder, free_port(), arguments)
    }

    fn start(kind: Kind, folder: PathBuf, port: u16, arguments: &[String]) -> Self {
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
                let mut server = Command::new(mariadb_program("mariadbd"));
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
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a shell starts");
        let server = Self { child, folder, port, kind };
        server.wait();
        server
    }

    /// Waits until the server accepts connections.
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

    /// The URL of a database on the server.
    pub(crate) fn url(&self, database: &str) -> String {
        match self.kind {
            Kind::Postgres => format!("postgres://ada@127.0.0.1:{}/{database}", self.port),
            Kind::Mysql => format!("mysql://root@127.0.0.1:{}/{database}", self.port),
        }
    }

    /// The server's log.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.join("log")).unwrap()).into_owned()
    }

    /// Stops the server without a clean shutdown, and keeps its data.
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

/// A certificate for 127.0.0.1 and the authority that signed it, both made for the test.
pub(crate) struct Certificate {
    folder: tempfile::TempDir,
}

impl Certificate {
    /// Makes an authority, and a certificate for 127.0.0.1 that it signs.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let openssl = |arguments: &str| {
            let mut command = Command::new("openssl");
            let output = command.args(arguments.split(' ')).current_dir(folder.path()).output();
            let output = output.expect("`openssl` runs");
            assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        };
        std::fs::write(folder.path().join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(&format!("req -x509 {key} -keyout ca.key -out ca.crt -days 2 -subj /CN=Authority"));
        openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN=Server"));
        openssl(
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile names",
        );
        Self { folder }
    }

    /// The path of the certificate of the authority.
    pub(crate) fn authority(&self) -> String {
        self.folder.path().join("ca.crt").display().to_string()
    }

    /// Copies the certificate and its key; PostgreSQL requires that only its user may read the key.
    fn copy_to(&self, folder: &Path) {
        use std::os::unix::fs::PermissionsExt as _;
        for name in ["server.crt", "server.key"] {
            let copy = folder.join(name);
            std::fs::copy(self.folder.path().join(name), &copy).unwrap();
            std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

/// A stopped server, whose data and port are kept.
pub(crate) struct Stopped {
    folder: PathBuf,
    port: u16,
    kind: Kind,
}

impl Stopped {
    /// Restarts the server on the same port.
    pub(crate) fn start(self) -> Server {
        Server::start(self.kind, self.folder, self.port, &[])
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

/// The path of a program of MariaDB. `PATH` of unprivileged users often lacks `/usr/sbin`.
fn mariadb_program(name: &str) -> PathBuf {
    let folders = ["/usr/bin", "/usr/sbin", "/usr/libexec"].map(PathBuf::from);
    program(name, folders.into_iter().chain(search_path()), "mariadb-server")
}

/// The path of a program of PostgreSQL. Debian installs each version into a folder outside `PATH`.
fn postgres_program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok().into_iter().flatten().flatten();
    let mut folders: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    program(name, folders.into_iter().rev().chain(search_path()), "postgresql")
}

fn search_path() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

fn program(name: &str, folders: impl Iterator<Item = PathBuf>, package: &str) -> PathBuf {
    let found = folders.map(|folder| folder.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| {
        panic!("`{name}` was not found; hint: install the package `{package}`, or run ./test, which does")
    })
}

/// Runs a program of PostgreSQL as the user `postgres` if this is root, because it refuses to run as root. Changes
/// the owner of the folder accordingly.
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
