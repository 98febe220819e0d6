//! Model-based test of cached responses: a reader that reads after every write sees it, in a catalog of a folder,
//! databases and a repository.
//!
//! `LIBRIS_MODEL_OPERATIONS=10000 cargo test --test live read_after_write` runs more operations on each source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use crate::client::{Client, DEADLINE, Era, Program};
use crate::server;

/// The number of operations on each source.
fn operations() -> usize {
    let given = std::env::var("LIBRIS_MODEL_OPERATIONS").ok();
    given.map_or(40, |number| number.parse().expect("a number of operations"))
}

/// There is one pause in this many operations, and at least one.
const PAUSE_INTERVAL: usize = 200;

/// The time without a change after which a stamp is trusted: then SQLite is checked by `stat` only, and files and refs
/// by their stamps. Without pauses, the test would hardly ever take these paths.
const SETTLE: Duration = Duration::from_millis(2200);

/// Whether there is a pause before this one of `total` operations.
fn is_pause(number: usize, total: usize) -> bool {
    number % PAUSE_INTERVAL == total / 2 % PAUSE_INTERVAL
}

const TABLES: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
const KEYS: usize = 5;
const FILES: [&str; 4] = ["one.txt", "two.txt", "deep/three.txt", "deep/four.txt"];
const BRANCHES: [&str; 4] = ["main", "feature/one", "two", "v3"];

/// Rows by table and key.
type Tables = BTreeMap<&'static str, BTreeMap<usize, String>>;

/// Contents by path.
type Files = BTreeMap<&'static str, String>;

/// A number below `most`, the same for the same seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % most
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.below(from.len())]
    }
}

/// A client that reads everything twice, so that the second response comes from the cache if it can.
struct Reader(Client);

impl Reader {
    async fn text(&self, uri: &str) -> Option<String> {
        let (first, second) = (self.0.read(uri).await, self.0.read(uri).await);
        assert_eq!(first, second, "{uri}");
        let text = |contents: Value| contents[0]["text"].as_str().expect("a text").to_owned();
        first.map(text)
    }

    async fn listed(&self, prefix: &str) -> BTreeSet<String> {
        let (first, second) = (self.0.list().await, self.0.list().await);
        assert_eq!(first, second);
        first.into_keys().filter(|uri| uri.starts_with(prefix)).collect()
    }

    async fn completed(&self, template: &str, variable: &str) -> BTreeSet<String> {
        let params = json!({
            "ref": { "type": "ref/resource", "uri": template },
            "argument": { "name": variable, "value": "" },
        });
        let first = self.0.ask("completion/complete", params.clone()).await;
        let second = self.0.ask("completion/complete", params).await;
        assert_eq!(first, second, "{template}");
        let values = first["result"]["completion"]["values"].as_array().unwrap_or_else(|| panic!("{first}"));
        values.iter().map(|value| value.as_str().unwrap().to_owned()).collect()
    }
}

/// A database whose expected rows are known.
struct Shop<C> {
    connection: C,
    tables: Tables,
    /// The URI of the database.
    root: &'static str,
}

impl<C> Shop<C>
where
    for<'c> &'c mut C: sqlx::Executor<'c>,
{
    async fn execute(&mut self, sql: &str) {
        let executed = (&mut self.connection).execute(sql).await;
        executed.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Makes a random change. Returns the table and the key of a row that it may have changed.
    async fn change(&mut self, number: usize, random: &mut Random) -> (&'static str, usize) {
        let table = random.pick(&TABLES);
        if !self.tables.contains_key(table) {
            let (key, text) = (random.below(KEYS), format!("value {number}"));
            self.tables.insert(table, BTreeMap::from([(key, text.clone())]));
            self.execute(&format!(
                "CREATE TABLE {table} (id integer PRIMARY KEY, v text); INSERT INTO {table} VALUES ({key}, '{text}')"
            ))
            .await;
            return (table, key);
        }
        if random.below(8) == 0 {
            self.tables.remove(table);
            self.execute(&format!("DROP TABLE {table}")).await;
            return (table, random.below(KEYS));
        }
        (table, self.change_row(table, number, random).await)
    }

    /// Makes a random change of a row. Returns its key.
    async fn change_row(&mut self, table: &'static str, number: usize, random: &mut Random) -> usize {
        let (key, text) = (random.below(KEYS), format!("value {number}"));
        let rows = self.tables.get_mut(table).expect("a table");
        match random.below(7) {
            0 | 1 => {
                rows.remove(&key);
                self.execute(&format!("DELETE FROM {table} WHERE id = {key}")).await;
            }
            2 => {
                // Several statements, of which only the last ones are visible.
                let key = *rows.keys().next().unwrap_or(&key);
                rows.insert(key, text.clone());
                self.execute(&format!(
                    "BEGIN; DELETE FROM {table} WHERE id = {key}; INSERT INTO {table} VALUES ({key}, 'draft');
                     UPDATE {table} SET v = '{text}' WHERE id = {key}; COMMIT"
                ))
                .await;
                return key;
            }
            3 => self.execute(&format!("BEGIN; DELETE FROM {table}; ROLLBACK")).await,
            _ => {
                rows.insert(key, text.clone());
                self.execute(&format!(
                    "INSERT INTO {table} VALUES ({key}, '{text}') ON CONFLICT (id) DO UPDATE SET v = '{text}'"
                ))
                .await;
            }
        }
        key
    }

    /// The expected row, and the expected rows of its table; `None` if there is none.
    fn expected(&self, table: &str, key: usize) -> (Option<Value>, Option<Value>) {
        let rows = self.tables.get(table);
        let row = |(key, text): (&usize, &String)| json!({ "id": key, "v": text });
        let one = rows.and_then(|rows| rows.get_key_value(&key)).map(row);
        (one, rows.map(|rows| rows.iter().map(row).collect()))
    }

    async fn check_all(&self, reader: &Reader, number: usize) {
        for table in TABLES {
            for key in 0..KEYS {
                self.check(reader, (table, key), number).await;
            }
        }
    }

    async fn check(&self, reader: &Reader, (table, key): (&'static str, usize), number: usize) {
        let root = self.root;
        let (expected, expected_rows) = self.expected(table, key);
        let row = reader.text(&format!("{root}{table}/rows/{key}")).await;
        let row = row.map(|row| serde_json::from_str::<Value>(&row).unwrap());
        assert_eq!(row, expected, "operation {number}: row {key} of {table}");
        let page = reader.text(&format!("{root}{table}/rows")).await;
        let page = page.map(|page| serde_json::from_str::<Value>(&page).unwrap()["rows"].clone());
        assert_eq!(page, expected_rows, "operation {number}: rows of {table}");
        let schema = reader.text(&format!("{root}{table}/schema?format=json")).await;
        assert_eq!(
            schema.is_some(),
            self.tables.contains_key(table),
            "operation {number}: schema of {table}"
        );
        let tables: BTreeSet<_> = self.tables.keys().map(|table| format!("{root}{table}/schema")).collect();
        let listed: BTreeSet<_> =
            reader.listed(root).await.into_iter().filter(|uri| uri.ends_with("/schema")).collect();
        let whole = BTreeSet::from([format!("{root}schema")]);
        assert_eq!(listed, &tables | &whole, "operation {number}: the list of tables");
        let names = self.tables.keys().map(|table| (*table).to_owned()).collect();
        let completed = reader.completed(&format!("{root}{{table}}/schema{{?format}}"), "table").await;
        assert_eq!(completed, names, "operation {number}: the completion of tables");
    }
}

/// A repository whose expected files are known.
struct Repository<'a> {
    path: &'a Path,
    branches: BTreeMap<&'static str, Files>,
    head: &'static str,
}

impl<'a> Repository<'a> {
    fn new(path: &'a Path) -> Self {
        std::fs::create_dir(path).unwrap();
        let repository = Self { path, branches: BTreeMap::from([("main", Files::new())]), head: "main" };
        repository.git(&["init", "-q", "-b", "main"]);
        repository.git(&["commit", "-q", "--allow-empty", "-m", "first"]);
        repository
    }

    fn git(&self, arguments: &[&str]) {
        let identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com", "-c", "gc.auto=0"];
        let output =
            Command::new("git").current_dir(self.path).args(identity).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Makes a random change. Returns the path of a file that it may have changed.
    fn change(&mut self, number: usize, random: &mut Random) -> &'static str {
        let path = random.pick(&FILES);
        let branch = random.pick(&BRANCHES);
        let is_branch = self.branches.contains_key(branch);
        let files = self.branches.get_mut(self.head).unwrap();
        match random.below(8) {
            0 if is_branch => {
                self.git(&["switch", "-q", branch]);
                self.head = branch;
            }
            0 | 1 if !is_branch => {
                let files = files.clone();
                self.branches.insert(branch, files);
                self.git(&["branch", branch]);
            }
            1 if branch != self.head => {
                self.branches.remove(branch);
                self.git(&["branch", "-q", "-D", branch]);
            }
            2 if files.remove(path).is_some() => {
                self.git(&["rm", "-q", path]);
                self.git(&["commit", "-q", "-m", "remove"]);
            }
            3 => self.git(&["pack-refs", "--all"]),
            _ => {
                let text = format!("text {number}");
                files.insert(path, text.clone());
                let file = self.path.join(path);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, text).unwrap();
                self.git(&["add", path]);
                self.git(&["commit", "-q", "-m", "write"]);
            }
        }
        path
    }

    async fn check_all(&self, reader: &Reader, number: usize) {
        for path in FILES {
            self.check(reader, path, number).await;
        }
    }

    async fn check(&self, reader: &Reader, path: &str, number: usize) {
        let root = "git://repository/";
        let files = &self.branches[self.head];
        let read = reader.text(&format!("{root}tree/HEAD/{path}")).await;
        assert_eq!(read.as_ref(), files.get(path), "operation {number}: {path} at HEAD");
        for branch in BRANCHES {
            let escaped = branch.replace('/', "%2F");
            let read = reader.text(&format!("{root}tree/{escaped}/{path}")).await;
            let expected = self.branches.get(branch).and_then(|files| files.get(path));
            assert_eq!(read.as_ref(), expected, "operation {number}: {path} at {branch}");
        }
        let expected: BTreeSet<_> = files.keys().map(|path| format!("{root}tree/HEAD/{path}")).collect();
        let listed = reader.listed(&format!("{root}tree/HEAD/")).await;
        let listed: BTreeSet<_> = listed.into_iter().filter(|uri| !uri.ends_with('/')).collect();
        assert_eq!(listed, expected, "operation {number}: the list of files at HEAD");
        let completed = reader.completed(&format!("{root}log/{{ref}}{{?path,limit,format}}"), "ref").await;
        let completed: BTreeSet<_> =
            completed.into_iter().filter(|name| BRANCHES.contains(&&**name)).collect();
        let branches = self.branches.keys().map(|name| (*name).to_owned()).collect();
        assert_eq!(completed, branches, "operation {number}: the completion of branches");
    }
}

/// A folder whose expected files are known.
struct Folder<'a> {
    path: &'a Path,
    files: Files,
}

impl Folder<'_> {
    fn change(&mut self, number: usize, random: &mut Random) -> &'static str {
        let path = random.pick(&FILES);
        let file = self.path.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        if random.below(3) == 0 {
            self.files.remove(path);
            let _ = std::fs::remove_file(file);
        } else {
            let text = format!("text {number}");
            std::fs::write(file, &text).unwrap();
            self.files.insert(path, text);
        }
        path
    }

    async fn check_all(&self, reader: &Reader, number: usize) {
        for path in FILES {
            self.check(reader, path, number).await;
        }
    }

    async fn check(&self, reader: &Reader, path: &str, number: usize) {
        let root = "file:///folder/";
        let read = reader.text(&format!("{root}{path}")).await;
        assert_eq!(read.as_ref(), self.files.get(path), "operation {number}: {path}");
        let expected: BTreeSet<_> = self.files.keys().map(|path| format!("{root}{path}")).collect();
        let listed = reader.listed(root).await;
        let listed: BTreeSet<_> = listed.into_iter().filter(|uri| !uri.ends_with('/')).collect();
        assert_eq!(listed, expected, "operation {number}: the list of files");
        let completed = reader.completed(&format!("{root}{{+path}}{{?lines,bytes}}"), "path").await;
        let expected: BTreeSet<_> = self.files.keys().filter(|path| !path.contains('/')).copied().collect();
        let completed: BTreeSet<_> =
            completed.iter().map(|path| &**path).filter(|path| !path.ends_with('/')).collect();
        assert_eq!(completed, expected, "operation {number}: the completion of paths");
    }
}

async fn sqlite_shop(path: &Path, journal: &str, root: &'static str) -> Shop<sqlx::SqliteConnection> {
    std::fs::write(path, "").unwrap();
    let mut connection =
        sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    connection.execute(&*format!("PRAGMA journal_mode = {journal}")).await.unwrap();
    Shop { connection, tables: Tables::new(), root }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_sees_every_write_to_a_mixed_catalog() {
    let root = tempfile::tempdir().unwrap();
    let mut shop = sqlite_shop(&root.path().join("shop.db"), "delete", "sqlite://shop/").await;
    let mut wal = sqlite_shop(&root.path().join("wal.db"), "wal", "sqlite://wal/").await;
    let repository_path = root.path().join("repository");
    let mut repository = Repository::new(&repository_path);
    let path = root.path().join("folder");
    std::fs::create_dir(&path).unwrap();
    let mut folder = Folder { path: &path, files: Files::new() };
    let config = root.path().join("libris.toml");
    let sources = "[[files]]\npath = \"folder\"\n[[git]]\npath = \"repository\"\n\
                   [[sql]]\nurl = \"sqlite:shop.db\"\n[[sql]]\nurl = \"sqlite:wal.db\"\n";
    std::fs::write(&config, sources).unwrap();
    let program = Program::serve(&["--config", config.to_str().unwrap()]);
    let reader = Reader(Client::connect(&program, Era::Modern, &[]).await);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    // How many operations are left of each source.
    let mut left = [operations(); 4];
    let total = left.iter().sum();
    for number in 0..total {
        if is_pause(number, total) {
            tokio::time::sleep(SETTLE).await;
            // Now the responses are cached with evidence that is settled.
            folder.check_all(&reader, number).await;
            repository.check_all(&reader, number).await;
            shop.check_all(&reader, number).await;
            wal.check_all(&reader, number).await;
        }
        let open: Vec<_> = (0..left.len()).filter(|at| left[*at] > 0).collect();
        let at = open[random.below(open.len())];
        left[at] -= 1;
        match at {
            0 => {
                let row = shop.change(number, &mut random).await;
                shop.check(&reader, row, number).await;
            }
            1 => {
                let row = wal.change(number, &mut random).await;
                wal.check(&reader, row, number).await;
            }
            2 => {
                let path = repository.change(number, &mut random);
                repository.check(&reader, path, number).await;
            }
            _ => {
                let path = folder.change(number, &mut random);
                folder.check(&reader, path, number).await;
            }
        }
    }
}

/// A PostgreSQL server, and connections to a new database `shop` on it.
async fn postgres_shop() -> (server::Server, String, sqlx::PgConnection) {
    let postgres = tokio::task::spawn_blocking(server::Server::postgres).await.unwrap();
    let mut system = sqlx::PgConnection::connect(&postgres.url("postgres")).await.unwrap();
    system.execute("CREATE DATABASE shop").await.unwrap();
    let url = postgres.url("shop");
    let connection = sqlx::PgConnection::connect(&url).await.unwrap();
    (postgres, url, connection)
}

/// Without `cache`, nothing of PostgreSQL is cached except in the driver: what it knows of tables, and its prepared
/// statements.
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_reader_sees_every_write() {
    let (_postgres, url, connection) = postgres_shop().await;
    let mut shop = Shop { connection, tables: Tables::new(), root: "postgres://shop/" };
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join("libris.toml");
    std::fs::write(&config, format!("[[sql]]\nurl = \"{url}\"\nname = \"shop\"\n")).unwrap();
    let program = Program::serve(&["--config", config.to_str().unwrap()]);
    let reader = Reader(Client::connect(&program, Era::Modern, &[]).await);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for number in 0..operations() {
        let row = shop.change(number, &mut random).await;
        shop.check(&reader, row, number).await;
    }
}

/// With `cache`, a response may be older than a write until the notification of that write arrives, but not longer,
/// although other clients read and cache the same resources at the moment of the write.
#[tokio::test(flavor = "multi_thread")]
async fn needs_postgres_a_reader_sees_every_write_that_is_notified() {
    const CACHED: [&str; 2] = ["alpha", "beta"];
    let (_postgres, url, connection) = postgres_shop().await;
    let mut shop = Shop { connection, tables: Tables::new(), root: "postgres://shop/" };
    for table in CACHED {
        shop.execute(&format!("CREATE TABLE {table} (id integer PRIMARY KEY, v text)")).await;
        shop.tables.insert(table, BTreeMap::new());
    }
    let triggers = Command::new(env!("CARGO_BIN_EXE_libris")).args(["triggers", &url]).output().unwrap();
    assert!(triggers.status.success(), "{}", String::from_utf8_lossy(&triggers.stderr));
    shop.execute(str::from_utf8(&triggers.stdout).unwrap()).await;
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join("libris.toml");
    let source = format!("[[sql]]\nurl = \"{url}\"\nname = \"shop\"\ncache = \"1day\"\n");
    std::fs::write(&config, source).unwrap();
    let program = Program::serve(&["--config", config.to_str().unwrap()]);
    let reader = Client::connect(&program, Era::Modern, &[]).await;
    let other = Client::connect(&program, Era::Modern, &[]).await;
    let others = tokio::spawn(async move {
        loop {
            for table in CACHED {
                other.read(&format!("postgres://shop/{table}/rows")).await;
            }
        }
    });
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for number in 0..operations() {
        let table = random.pick(&CACHED);
        let key = shop.change_row(table, number, &mut random).await;
        let (row, rows) = shop.expected(table, key);
        for (path, member, expected) in [(format!("rows/{key}"), "", row), ("rows".to_owned(), "/rows", rows)]
        {
            let begun = Instant::now();
            loop {
                let read = reader.read(&format!("{}{table}/{path}", shop.root)).await;
                let read = read.map(|read| serde_json::from_str(read[0]["text"].as_str().unwrap()).unwrap());
                let read = read.map(|read: Value| read.pointer(member).unwrap().clone());
                if read == expected {
                    break;
                }
                let late = begun.elapsed() > DEADLINE;
                assert!(!late, "operation {number}: {path} of {table}: {read:?}, not {expected:?}");
                tokio::task::yield_now().await;
            }
        }
    }
    others.abort();
}
