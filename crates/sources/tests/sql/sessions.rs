//! PostgreSQL sessions: tables are read with one round trip where a connection has a session of its own, and in
//! read-only transactions behind connection poolers.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libris_core::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::database::{Database, Engine, Shop, test_on};

/// What a proxy does with the startup parameter `options`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proxy {
    /// Passes it on.
    Transparent,
    /// Refuses the connection, as PgBouncer does.
    Refusing,
    /// Removes it, as PgBouncer does with `ignore_startup_parameters`.
    Ignoring,
}

/// What clients sent through a proxy.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<u8>>>);

impl Sent {
    /// How often the clients sent this text since the last call.
    fn take(&self, text: &str) -> usize {
        let sent = std::mem::take(&mut *self.0.lock().unwrap());
        sent.windows(text.len()).filter(|window| *window == text.as_bytes()).count()
    }
}

impl Proxy {
    /// Starts a proxy in front of the database, and changes its URL.
    async fn before(self, database: &mut Database) -> Sent {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, path) = database.url.split_once('@').unwrap().1.split_once('/').unwrap();
        let server = address.to_owned();
        let address = listener.local_addr().unwrap();
        database.url = format!("postgres://ada@{address}/{path}");
        let sent = Sent::default();
        let recorded = sent.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(self.serve(client, server.clone(), recorded.clone()));
            }
        });
        sent
    }

    async fn serve(self, mut client: TcpStream, server: String, sent: Sent) -> std::io::Result<()> {
        const SSL_REQUEST: [u8; 4] = 80_877_103_u32.to_be_bytes();
        let startup = loop {
            let mut message = vec![0; client.read_u32().await? as usize - 4];
            client.read_exact(&mut message).await?;
            match message[..] == SSL_REQUEST {
                true => client.write_all(b"N").await?,
                false => break message,
            }
        };
        let (version, rest) = startup.split_at(4);
        let mut texts: Vec<_> = rest.split(|byte| *byte == 0).collect();
        if let Some(at) = texts.iter().position(|text| *text == b"options") {
            match self {
                Self::Transparent => {}
                Self::Refusing => {
                    let fields = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0";
                    client.write_all(b"E").await?;
                    client.write_u32(fields.len() as u32 + 4).await?;
                    return client.write_all(fields).await;
                }
                Self::Ignoring => drop(texts.drain(at..at + 2)),
            }
        }
        let startup = [version, &texts.join(&0)].concat();
        let mut server = TcpStream::connect(server).await?;
        server.write_u32(startup.len() as u32 + 4).await?;
        server.write_all(&startup).await?;
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (client.split(), server.split());
        let requests = async {
            let mut chunk = [0; 4096];
            loop {
                let count = from_client.read(&mut chunk).await?;
                if count == 0 {
                    return to_server.shutdown().await;
                }
                sent.0.lock().unwrap().extend_from_slice(&chunk[..count]);
                to_server.write_all(&chunk[..count]).await?;
            }
        };
        tokio::try_join!(requests, tokio::io::copy(&mut from_server, &mut to_client)).map(drop)
    }
}

test_on!(a_table_is_read_without_a_transaction_in_a_session_of_its_own, needs_postgres);

async fn a_table_is_read_without_a_transaction_in_a_session_of_its_own(engine: Engine) {
    for proxy in [Proxy::Transparent, Proxy::Refusing, Proxy::Ignoring] {
        let mut database = Database::new(engine).await;
        database
            .execute(
                "CREATE TABLE t (id integer PRIMARY KEY, at timestamptz, data bytea, span interval);
                 INSERT INTO t VALUES (1, '2026-01-02 03:04:05+06', '\\x00ff', '1 day 2 hours');
                 CREATE VIEW v AS SELECT id FROM t",
            )
            .await;
        let sent = proxy.before(&mut database).await;
        let query = "[[query]]\nuri = \"db://t\"\nsql = \"SELECT id FROM t\"";
        let shop = database.source(&format!("connections = 1\n{query}"));
        let row = shop.read("t/rows/1").await;
        assert_eq!(row, r#"{"id":1,"at":"2026-01-01T21:04:05Z","data":"AP8=","span":"P1DT2H"}"#, "{proxy:?}");
        sent.take("BEGIN");
        let begun = |statements: usize| if proxy == Proxy::Transparent { 0 } else { statements };
        for path in ["t/rows/1", "t/rows"] {
            shop.read(path).await;
            assert_eq!(sent.take("BEGIN READ ONLY"), begun(1), "{proxy:?}: {path}");
        }
        assert!(shop.error("t/rows/x").await.to_string().contains("`key`"), "{proxy:?}");
        // After an error, the connection is reused.
        sent.take("BEGIN");
        assert_eq!(shop.read("t/rows/1").await, row, "{proxy:?}");
        assert_eq!(sent.take("BEGIN READ ONLY"), begun(1), "{proxy:?}");
        // The first read also reads the definition of the view.
        shop.read("v/rows").await;
        sent.take("BEGIN");
        shop.read("v/rows").await;
        assert_eq!(sent.take("BEGIN READ ONLY"), 1, "{proxy:?}: a view");
        shop.text(&libris_core::Uri::parse("db://t").unwrap()).await.unwrap();
        assert_eq!(sent.take("BEGIN READ ONLY"), 1, "{proxy:?}: a configured query");
    }
}

/// A table that only a user without privileges reads, with a policy that runs this for each row.
async fn with_policy(engine: Engine, policy: &str, settings: &str) -> (Database, Shop) {
    let database = Database::new(engine).await;
    let name = database.url.rsplit('/').next().unwrap().to_owned();
    database
        .execute(&format!(
            "CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1); CREATE TABLE log (id integer);
             CREATE FUNCTION run() RETURNS boolean LANGUAGE plpgsql AS 'BEGIN {policy}; RETURN true; END';
             ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (run());
             CREATE ROLE {name}_reader LOGIN; GRANT SELECT ON t TO {name}_reader; GRANT ALL ON log TO {name}_reader"
        ))
        .await;
    let url = database.url.replace("ada@", &format!("{name}_reader@"));
    let reader = Database { engine, url, folder: tempfile::TempDir::new().unwrap() };
    let shop = reader.source(settings);
    (database, shop)
}

test_on!(what_a_table_runs_cannot_write, needs_postgres);

/// A policy of a table can run any function, in the only statement that has no transaction block.
async fn what_a_table_runs_cannot_write(engine: Engine) {
    let (database, shop) = with_policy(engine, "INSERT INTO log VALUES (1)", "").await;
    for path in ["t/rows/1", "t/rows"] {
        shop.error(path).await;
    }
    database.execute("ALTER TABLE log ADD CHECK (id <> 1)").await;
    database.execute("DO 'BEGIN ASSERT NOT EXISTS (SELECT FROM log); END'").await;
}

test_on!(what_a_table_runs_ends, needs_postgres);

async fn what_a_table_runs_ends(engine: Engine) {
    let (_database, shop) = with_policy(engine, "PERFORM pg_sleep(20)", "timeout = \"1s\"").await;
    shop.read("schema").await;
    let begun = Instant::now();
    let error = shop.error("t/rows/1").await;
    let is_late = matches!(&error, Error::Unavailable(why) if why.contains("did not answer within 1s"));
    assert!(is_late, "{error:?}");
    // Libris would cancel it one second later.
    assert!(begun.elapsed() < Duration::from_millis(1900), "{:?}", begun.elapsed());
    // A caller that is gone frees the connection before the statement would have ended.
    let (_database, shop) = with_policy(engine, "PERFORM pg_sleep(20)", "connections = 1").await;
    for _ in 0..3 {
        let left = tokio::time::timeout(Duration::from_millis(100), shop.text(&shop.uri("t/rows/1"))).await;
        assert!(left.is_err());
    }
    let begun = Instant::now();
    shop.read("schema").await;
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}
