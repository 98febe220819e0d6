//! Verifies that the database accepts the configured queries, without computing their results.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use libris_core::{Context, Error, Result};

use super::contents::ContentsSink;
use super::driver::{self, DatabaseError, DriverError, QueryLimits, Statement};
use super::{SqlInner, query};

impl SqlInner {
    /// Sends every configured query and its completion queries to the database, with a limit of no rows. Returns one
    /// error for each wrong query, about its first wrong statement.
    pub(super) async fn verify(&self) -> Result<Vec<Error>> {
        self.verified.store(true, Ordering::Relaxed);
        let mut wrong = Vec::new();
        for query in &self.queries {
            match self.verify_query(query).await {
                Ok(()) => {}
                Err(error @ Error::Invalid(_)) => wrong.push(error),
                // The other queries would fail too: the database is unavailable.
                Err(error) => return Err(error),
            }
        }
        Ok(wrong)
    }

    async fn verify_query(&self, query: &query::CheckedQuery) -> Result<()> {
        for (what, statement) in self.statements(query)? {
            if let Err(problem) = driver::collect(&*self.driver, &statement).await {
                return Err(self.wrong_query(&what, problem));
            }
        }
        self.verify_columns(query).await
    }

    /// Checks that the result of a query with `contents` has the configured columns.
    async fn verify_columns(&self, query: &query::CheckedQuery) -> Result<()> {
        let Some(columns) = query.contents.clone() else { return Ok(()) };
        let limits = QueryLimits { rows: 0, bytes: self.config.max_bytes, ordered: false };
        let statement = query.statement(self.driver.dialect(), &Default::default(), limits)?;
        let sink = ContentsSink::new(columns, &Context::default());
        let what = format!("the query `{}`", query.uri());
        let sink = driver::run(&*self.driver, &statement, sink).await;
        match sink.map_err(|problem| self.wrong_query(&what, problem))?.missing {
            Some(column) => Err(Error::invalid(format!(
                "{what} is wrong: its result has no column `{column}`; hint: correct `contents` or `mime_column`"
            ))),
            None => Ok(()),
        }
    }

    /// Verifies the queries in the background, once, and logs each one that is wrong. Called when the database has
    /// responded.
    pub(super) fn verify_once(self: &Arc<Self>) {
        if self.queries.is_empty() || self.verified.swap(true, Ordering::Relaxed) {
            return;
        }
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            for error in inner.verify().await.unwrap_or_else(|error| vec![error]) {
                tracing::warn!(database = inner.name, %error, "a configured query does not work; hint: correct its `sql`, and run `libris check`");
            }
        });
    }

    /// The statements of a query with nulls as values and a limit of no rows. The database parses them and
    /// resolves all names, but computes nothing.
    fn statements(&self, query: &query::CheckedQuery) -> Result<Vec<(String, Statement)>> {
        let limits = QueryLimits { rows: 0, bytes: self.config.max_bytes, ordered: false };
        let dialect = self.driver.dialect();
        let uri = query.uri();
        let mut all =
            vec![(format!("the query `{uri}`"), query.statement(dialect, &Default::default(), limits)?)];
        for variable in query.completed() {
            let statement = query.completion(dialect, variable, "", &Default::default(), limits);
            if let Some(statement) = statement {
                all.push((format!("the query `{uri}` to complete `{variable}`"), statement?));
            }
        }
        Ok(all)
    }

    /// The error of a wrong query, for the operator: it contains the message of the database.
    fn wrong_query(&self, what: &str, problem: DriverError) -> Error {
        match problem {
            DriverError::Missing(cause) | DriverError::Failed(cause) | DriverError::Denied(cause) => {
                Error::invalid(format!("{what} is wrong: {}; hint: correct its `sql`", message(&cause)))
            }
            DriverError::WrongType => Error::invalid(format!(
                "{what} is wrong: the database rejects the type of a value in it; hint: cast it in its `sql`"
            )),
            other => self.error(other),
        }
    }
}

/// The message of the database alone, without the classification of the library.
fn message(cause: &DatabaseError) -> String {
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    if let Some(error) = cause.downcast_ref::<sqlx::Error>().and_then(sqlx::Error::as_database_error) {
        return error.message().to_owned();
    }
    #[cfg(feature = "sqlite")]
    if let Some(rusqlite::Error::SqlInputError { msg, .. } | rusqlite::Error::SqliteFailure(_, Some(msg))) =
        cause.downcast_ref::<rusqlite::Error>()
    {
        return msg.clone();
    }
    cause.to_string()
}
