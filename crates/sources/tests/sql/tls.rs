//! TLS to database servers, with certificates made by the test.

use crate::database::{Database, Engine, test_on};
use crate::server::{Certificate, Server};

/// A database and the queries that tell whether its connections use TLS.
async fn database(engine: Engine, server: &Server) -> Database {
    let database = Database::on(engine, server).await;
    database.execute("CREATE TABLE t (id integer PRIMARY KEY); INSERT INTO t VALUES (1)").await;
    database
}

/// The rows of a query that tells how the connection is encrypted.
async fn encryption(database: &Database) -> String {
    let sql = match database.engine {
        Engine::Postgres => "SELECT ssl AS v FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
        _ => {
            "SELECT VARIABLE_VALUE <> '' AS v FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = 'Ssl_cipher'"
        }
    };
    let shop = database.source(&format!("[[query]]\nuri = \"db://tls\"\nsql = \"{sql}\"\none = true"));
    shop.text(&libris_core::Uri::parse("db://tls").unwrap()).await.unwrap()
}

test_on!(certificates_are_verified, needs_postgres, needs_mariadb);

async fn certificates_are_verified(engine: Engine) {
    let (ours, other) = (Certificate::new(), Certificate::new());
    let (server, ours) = tokio::task::spawn_blocking(move || {
        let server = match engine {
            Engine::Postgres => Server::postgres_with_tls(&ours),
            _ => Server::mysql_with_tls(&ours),
        };
        (server, ours)
    })
    .await
    .unwrap();
    let database = database(engine, &server).await;
    let plain = database.url.clone();
    let with = |host: &str, certificate: &Certificate| {
        let options = match engine {
            Engine::Postgres => format!("sslmode=verify-full&sslrootcert={}", certificate.authority()),
            _ => format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={}", certificate.authority()),
        };
        plain.replace("127.0.0.1", host) + "?" + &options
    };
    let database = Database { url: with("127.0.0.1", &ours), ..database };
    assert_eq!(database.source("").read("t/rows/1").await, r#"{"id":1}"#);
    assert!(["{\"v\":true}", "{\"v\":1}"].contains(&&*encryption(&database).await));

    // An authority that did not sign it, and a host that it is not for.
    for url in [with("127.0.0.1", &other), with("localhost", &ours)] {
        let wrong = Database { url, engine, folder: tempfile::tempdir().unwrap() };
        let error = wrong.source("").error("t/rows/1").await.to_string();
        let expected = "the database `shop` cannot be used: a secure connection fails: ";
        assert!(error.starts_with(expected) && error.contains("hint: name the certificate"), "{error}");
    }
    // Without an option, the connection is encrypted but the certificate not verified.
    let database = Database { url: plain, ..database };
    assert!(["{\"v\":true}", "{\"v\":1}"].contains(&&*encryption(&database).await));
    drop(server);
}

test_on!(required_tls_is_not_given_up, needs_postgres, needs_mariadb);

/// A server without TLS is an error if the URL requires it.
async fn required_tls_is_not_given_up(engine: Engine) {
    let database = Database::new(engine).await;
    database.execute("CREATE TABLE t (id integer PRIMARY KEY)").await;
    let option = if engine == Engine::Postgres { "sslmode=require" } else { "ssl-mode=VERIFY_CA" };
    let database = Database { url: format!("{}?{option}", database.url), ..database };
    let error = database.source("").error("t/schema").await.to_string();
    assert!(error.starts_with("the database `shop` cannot be used: a secure connection fails: "), "{error}");
}
