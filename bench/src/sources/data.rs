//! The folders, the repository and the database that are served.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rusqlite::Connection;

use crate::database_server::Server;

/// The number of files in the large folder, which a quick run does not create.
const MANY_NAMES: usize = 1_000_000;

/// The number of files in the small folder and in the repository, and of rows in the database.
const FEW: usize = 1_000;

/// The number of files in each of the small sources.
const SMALL: usize = 20;

/// The number of lines of 64 bytes in the large file.
const LINES: usize = 32 << 10;

/// Turns the response cache off.
const UNCACHED: &str = "[server]\ncache_bytes = 0\n";

/// The name of the PostgreSQL database; `initdb` creates it.
const POSTGRES: &str = "postgres";

/// What is served, and the configuration files that serve it.
pub(super) struct Data {
    pub(super) alone: PathBuf,
    pub(super) mixed: PathBuf,
    /// Three small sources, of which each has resources on the first page of the list.
    pub(super) small: PathBuf,
    /// Like `small`, without the response cache.
    pub(super) small_uncached: PathBuf,
    /// Like `mixed`, without the response cache.
    pub(super) uncached: PathBuf,
    /// The large folder, with and without the response cache.
    pub(super) many: Option<[PathBuf; 2]>,
    pub(super) database: PathBuf,
    pub(super) repository: PathBuf,
    /// `None` if PostgreSQL is not installed.
    pub(super) postgres: Option<Postgres>,
}

/// A running PostgreSQL server.
pub(super) struct Postgres {
    server: Server,
    pub(super) config: PathBuf,
}

impl Postgres {
    /// Starts a server with the rows of the other databases.
    fn start(folder: &Path) -> Result<Option<Self>> {
        if !Path::new("/usr/lib/postgresql").is_dir() {
            eprintln!("PostgreSQL is left out: it is not installed");
            return Ok(None);
        }
        let started = Self { server: Server::postgres(), config: folder.join("postgres.toml") };
        let sql = format!(
            "CREATE TABLE items (id bigint PRIMARY KEY, name text NOT NULL);
             INSERT INTO items SELECT n, 'item ' || n FROM generate_series(0, {FEW} - 1) AS n; ANALYZE items"
        );
        let made = Command::new("psql").args(["-q", "-c", &sql, &started.url()]).status();
        ensure!(made.context("could not run `psql`")?.success(), "the table could not be created");
        std::fs::write(&started.config, format!("[[sql]]\nurl = \"{}\"\nname = \"shop\"\n", started.url()))?;
        Ok(Some(started))
    }

    pub(super) fn url(&self) -> String {
        self.server.url(POSTGRES)
    }
}

impl Data {
    pub(super) fn make(folder: &Path, quick: bool) -> Result<Self> {
        eprintln!("making what is served …");
        let (few, repository) = (folder.join("few"), folder.join("repository"));
        let database = folder.join("shop.db");
        let (few_small, repository_small) = (folder.join("few-small"), folder.join("repository-small"));
        for (path, count) in
            [(&few, FEW), (&repository, FEW), (&few_small, SMALL), (&repository_small, SMALL)]
        {
            std::fs::create_dir(path)?;
            for number in 0..count {
                std::fs::write(path.join(format!("{number:04}.txt")), "x".repeat(8 << 10))?;
            }
        }
        let lines = (0..LINES).map(|number| format!("{number:063}\n")).collect::<String>();
        std::fs::write(few.join("large.txt"), lines)?;
        commit(&repository)?;
        git(&repository, &["branch", "feature"])?;
        commit(&repository_small)?;
        let wal = folder.join("wal.db");
        make_database(&database, "delete")?;
        make_database(&wal, "wal")?;
        let files = |path: &Path| format!("[[files]]\npath = {path:?}\n");
        let git = |path: &Path| format!("[[git]]\npath = {path:?}\n");
        let sql = |path: &Path| format!("[[sql]]\nurl = \"sqlite:{}\"\n", path.display());
        let mixed = [files(&few), git(&repository), sql(&database), sql(&wal)].concat();
        let small = [files(&few_small), git(&repository_small), sql(&database)].concat();
        let config = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text)?;
            anyhow::Ok(path)
        };
        Ok(Self {
            alone: config("alone.toml", &files(&few))?,
            mixed: config("mixed.toml", &mixed)?,
            small: config("small.toml", &small)?,
            small_uncached: config("small-uncached.toml", &format!("{UNCACHED}{small}"))?,
            uncached: config("uncached.toml", &format!("{UNCACHED}{mixed}"))?,
            many: match quick {
                true => None,
                false => {
                    let many = many(folder)?;
                    let uncached = format!("{UNCACHED}{many}");
                    Some([config("many.toml", &many)?, config("many-uncached.toml", &uncached)?])
                }
            },
            database,
            repository,
            postgres: Postgres::start(folder)?,
        })
    }
}

/// Writes the configuration of an HTTP source for this API.
pub(super) fn http_source(folder: &Path, api: SocketAddr) -> Result<PathBuf> {
    let path = folder.join("http.toml");
    let text = format!(
        "[[http]]\nname = \"api\"\nbase = \"http://{api}\"\n\n[http.limits]\nallow_private = true\n\n\
         [[http.template]]\nuri = \"api://items/{{id}}\"\nurl = \"items/{{id}}\"\n"
    );
    std::fs::write(&path, text)?;
    Ok(path)
}

/// Creates a folder of empty files. Returns the configuration that serves it.
fn many(folder: &Path) -> Result<String> {
    let path = folder.join("many");
    std::fs::create_dir(&path)?;
    for number in 0..MANY_NAMES {
        std::fs::File::create(path.join(format!("{number:07}.txt")))?;
    }
    Ok(format!("[[files]]\npath = {path:?}\n"))
}

/// Makes a database of [`FEW`] rows.
pub(crate) fn make_database(path: &Path, journal_mode: &str) -> Result<()> {
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", journal_mode)?;
    connection.execute_batch("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")?;
    let transaction = connection.transaction()?;
    for number in 0..FEW {
        transaction
            .execute("INSERT INTO items VALUES (?1, ?2)", (number as i64, format!("item {number}")))?;
    }
    transaction.commit()?;
    Ok(())
}

/// Makes a folder a repository with one commit of its files.
pub(crate) fn commit(folder: &Path) -> Result<()> {
    for arguments in [&["init", "-q", "-b", "main"][..], &["add", "."], &["commit", "-q", "-m", "first"]] {
        git(folder, arguments)?;
    }
    Ok(())
}

fn git(repository: &Path, arguments: &[&str]) -> Result<()> {
    let identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"];
    let mut command = Command::new("git");
    let status = command.current_dir(repository).args(identity).args(arguments).status();
    ensure!(status.context("could not run `git`")?.success(), "`git {}` failed", arguments.join(" "));
    Ok(())
}
