//! A separate database for each test.

use std::sync::atomic::{AtomicUsize, Ordering};

use libris_core::{Context, Error, Result, Source as _, Uri};
use libris_sources::{Sql, sql};
use sqlx::{Connection as _, Executor as _};
use tempfile::TempDir;

use crate::server::{self, Server};

/// The database engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
    Mysql,
}

/// Defines a test for each of the given databases. It calls an `async fn(Engine)` with the name of the module.
///
/// A test whose name contains `needs_postgres` or `needs_mariadb` needs that server. `./test quick` skips these by
/// name where the server is not installed.
macro_rules! test_on {
    (multi_thread $test:ident, $($name:ident),+) => {
        mod $test {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$test(crate::database::test_on!(@engine $name)).await;
                }
            )+
        }
    };
    (@engine sqlite) => { crate::database::Engine::Sqlite };
    (@engine needs_postgres) => { crate::database::Engine::Postgres };
    (@engine needs_mariadb) => { crate::database::Engine::Mysql };
    ($test:ident, $($name:ident),+) => {
        mod $test {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$test(crate::database::test_on!(@engine $name)).await;
                }
            )+
        }
    };
}

pub(crate) use test_on;

/// A database that no other test uses.
pub(crate) struct Database {
    pub(crate) engine: Engine,
    pub(crate) url: String,
    pub(crate) folder: TempDir,
}

impl Database {
    /// Creates an empty database.
    pub(crate) async fn new(engine: Engine) -> Self {
        match engine {
            Engine::Sqlite => {
                let folder = TempDir::new().unwrap();
                let path = folder.path().join("shop.db");
                std::fs::write(&path, "").unwrap();
                Self { engine, url: format!("sqlite:{}", path.display()), folder }
            }
            Engine::Postgres => Self::on(engine, start(server::postgres).await).await,
            Engine::Mysql => Self::on(engine, start(server::mysql).await).await,
        }
    }

    /// Creates an empty database on this server.
    pub(crate) async fn on(engine: Engine, server: &Server) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("shop{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let system = if engine == Engine::Postgres { "postgres" } else { "mysql" };
        let folder = TempDir::new().unwrap();
        let system = Self { engine, url: server.url(system), folder };
        system.execute(&format!("CREATE DATABASE {name}")).await;
        Self { url: server.url(&name), ..system }
    }

    /// Executes statements and panics if they fail.
    pub(crate) async fn execute(&self, sql: &str) {
        self.try_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    pub(crate) async fn try_execute(&self, sql: &str) -> sqlx::Result<()> {
        match self.engine {
            Engine::Sqlite => {
                let mut connection = sqlx::SqliteConnection::connect(&self.url).await?;
                connection.execute(sql).await?;
                connection.close().await
            }
            Engine::Postgres => {
                let mut connection = sqlx::PgConnection::connect(&self.url).await?;
                connection.execute(sql).await?;
                connection.close().await
            }
            Engine::Mysql => {
                let mut connection = sqlx::MySqlConnection::connect(&self.url).await?;
                connection.execute(sql).await?;
                connection.close().await
            }
        }
    }

    /// Opens the database as a source called `shop`, with additional lines of configuration.
    pub(crate) fn source(&self, more: &str) -> Shop {
        let sql = self.try_source(more).unwrap();
        Shop { sql, engine: self.engine }
    }

    pub(crate) fn try_source(&self, more: &str) -> Result<Sql> {
        let text = format!("url = {:?}\nname = \"shop\"\n{more}", self.url);
        let config: sql::Config = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
        Sql::open(config, self.folder.path())
    }
}

/// Starts a server on a blocking thread: it takes seconds, and the runtime must not block meanwhile.
async fn start(server: fn() -> &'static Server) -> &'static Server {
    tokio::task::spawn_blocking(server).await.unwrap()
}

/// A database as a source.
pub(crate) struct Shop {
    pub(crate) sql: Sql,
    engine: Engine,
}

impl Shop {
    /// The URI of this path in the source.
    pub(crate) fn uri(&self, path: &str) -> Uri {
        let scheme = match self.engine {
            Engine::Sqlite => "sqlite",
            Engine::Postgres => "postgres",
            Engine::Mysql => "mysql",
        };
        Uri::parse(&format!("{scheme}://shop/{path}")).unwrap()
    }

    /// Reads a URI and joins the text of its parts.
    pub(crate) async fn text(&self, uri: &Uri) -> Result<String> {
        let contents = self.sql.read(uri, &Context::default()).await?;
        let texts = contents.parts.into_iter().map(|part| match part.body {
            libris_core::ContentBody::Text(text) => text,
            libris_core::ContentBody::Bytes(_) => panic!("`{uri}` is not text"),
        });
        Ok(texts.collect::<Vec<_>>().join("\n"))
    }

    /// Reads a path of the source and panics if that fails.
    pub(crate) async fn read(&self, path: &str) -> String {
        let uri = self.uri(path);
        self.text(&uri).await.unwrap_or_else(|error| panic!("{uri}: {error} ({error:?})"))
    }

    /// The error of reading a path of the source.
    pub(crate) async fn error(&self, path: &str) -> Error {
        let uri = self.uri(path);
        match self.text(&uri).await {
            Ok(text) => panic!("{uri} gave {text}"),
            Err(error) => error,
        }
    }
}
