//! The folders, the repository and the database that are served.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rusqlite::Connection;

/// The number of files in the large folder, which a quick run does not create.
const MANY_NAMES: usize = 1_000_000;

/// The number of files in the small folder and in the repository, and of rows in the database.
const FEW: usize = 1_000;

/// What is served, and the configuration files that serve it.
pub(super) struct Data {
    pub(super) alone: PathBuf,
    pub(super) mixed: PathBuf,
    pub(super) many: Option<PathBuf>,
    pub(super) database: PathBuf,
    pub(super) repository: PathBuf,
}

impl Data {
    pub(super) fn make(folder: &Path, quick: bool) -> Result<Self> {
        eprintln!("making what is served …");
        let (few, repository) = (folder.join("few"), folder.join("repository"));
        let database = folder.join("shop.db");
        for path in [&few, &repository] {
            std::fs::create_dir(path)?;
            for number in 0..FEW {
                std::fs::write(path.join(format!("{number:04}.txt")), "x".repeat(1 << 10))?;
            }
        }
        for arguments in [&["init", "-q", "-b", "main"][..], &["add", "."], &["commit", "-q", "-m", "first"]]
        {
            git(&repository, arguments)?;
        }
        make_database(&database)?;
        let files = format!("[[files]]\npath = {few:?}\n");
        let others =
            format!("[[git]]\npath = {repository:?}\n[[sql]]\nurl = \"sqlite:{}\"\n", database.display());
        let config = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text)?;
            anyhow::Ok(path)
        };
        Ok(Self {
            alone: config("alone.toml", &files)?,
            mixed: config("mixed.toml", &format!("{files}{others}"))?,
            many: if quick { None } else { Some(config("many.toml", &many(folder)?)?) },
            database,
            repository,
        })
    }
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

fn make_database(path: &Path) -> Result<()> {
    let mut connection = Connection::open(path)?;
    connection.execute_batch("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT NOT NULL)")?;
    let transaction = connection.transaction()?;
    for number in 0..FEW {
        transaction
            .execute("INSERT INTO items VALUES (?1, ?2)", (number as i64, format!("item {number}")))?;
    }
    transaction.commit()?;
    Ok(())
}

fn git(repository: &Path, arguments: &[&str]) -> Result<()> {
    let identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"];
    let mut command = Command::new("git");
    let status = command.current_dir(repository).args(identity).args(arguments).status();
    ensure!(status.context("could not run `git`")?.success(), "`git {}` failed", arguments.join(" "));
    Ok(())
}
