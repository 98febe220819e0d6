//! The values to offer for a variable.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libris_core::{Error, Flights, Result};
use tokio::time::Instant;

use super::entry::RunnableCommand;
use super::line::Invocation;

/// For how long printed values are offered: about as long as somebody types.
const KEPT: Duration = Duration::from_secs(5);

/// How many printed values are kept: a text of short lines takes far more memory as values.
const VALUES: usize = 10_000;

/// The values to offer for a variable.
pub(super) enum Offer {
    Fixed(Vec<String>),
    Printed(Arc<Printed>),
}

/// What a program prints, which is run once for all who ask at the same time.
pub(super) struct Printed {
    line: Invocation,
    /// What was printed last, and when.
    last: Mutex<Option<(Instant, Arc<[String]>)>>,
    under_way: Flights<(), Result<Arc<[String]>, Arc<Error>>>,
}

impl Offer {
    /// Those that this program prints.
    pub(super) fn printed(line: Invocation) -> Result<Self, String> {
        if let Some(name) = line.variables().next() {
            return Err(format!("the command that completes cannot use `{{{{{name}}}}}`"));
        }
        let printed = Printed { line, last: Mutex::default(), under_way: Flights::default() };
        Ok(Self::Printed(Arc::new(printed)))
    }

    /// The values, those that may not be given left out.
    pub(super) async fn values(&self, entry: &Arc<RunnableCommand>, name: &str) -> Result<Arc<[String]>> {
        let printed = match self {
            Self::Fixed(values) => return Ok(values.as_slice().into()),
            Self::Printed(printed) => printed,
        };
        let start = || {
            let (printed, entry, name) = (printed.clone(), entry.clone(), name.to_owned());
            async move { printed.print(&entry, &name).await.map_err(Arc::new) }
        };
        let values = printed.under_way.join(&(), || printed.fresh().map(Ok), start).await;
        values.map_err(|error| Error::again(&error))
    }
}

impl Printed {
    fn fresh(&self) -> Option<Arc<[String]>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(when, _)| when.elapsed() < KEPT).map(|(_, values)| values.clone())
    }

    async fn print(&self, entry: &RunnableCommand, name: &str) -> Result<Arc<[String]>> {
        let printed = entry.print(&self.line).await?;
        let printed = String::from_utf8_lossy(&printed);
        let values: Arc<[String]> = printed
            .lines()
            .filter(|value| entry.allows(name, value))
            .take(VALUES)
            .map(str::to_owned)
            .collect();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), values.clone()));
        Ok(values)
    }
}
