//! Completions of variables.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libris_core::{Error, Flights, Result};
use tokio::time::Instant;

use super::entry::RunnableCommand;
use super::invocation::Invocation;

/// How long the values that a program printed are cached.
const VALUES_TTL: Duration = Duration::from_secs(5);

/// The maximum number of printed values. Each is a separate string, which needs far more memory than the text of a
/// short line.
const MAX_VALUES: usize = 10_000;

/// The completions of a variable.
pub(super) enum VariableCompletions {
    Fixed(Vec<String>),
    Printed(Arc<PrintedCompletions>),
}

/// The output of a program, which runs once for concurrent callers (single-flight).
pub(super) struct PrintedCompletions {
    invocation: Invocation,
    /// The cached values, with the time at which the program printed them.
    last: Mutex<Option<(Instant, Arc<[String]>)>>,
    in_flight: Flights<(), Result<Arc<[String]>, Arc<Error>>>,
}

impl VariableCompletions {
    /// The values that a program prints.
    pub(super) fn printed(invocation: Invocation) -> Result<Self, String> {
        if let Some(name) = invocation.variables().next() {
            return Err(format!(
                "the command that completes cannot use `{{{{{name}}}}}`; hint: write it without variables"
            ));
        }
        let printed =
            PrintedCompletions { invocation, last: Mutex::default(), in_flight: Flights::default() };
        Ok(Self::Printed(Arc::new(printed)))
    }

    /// The completions of the variable `name`. Runs the program unless its values are cached.
    pub(super) async fn values(&self, entry: &Arc<RunnableCommand>, name: &str) -> Result<Arc<[String]>> {
        let printed = match self {
            Self::Fixed(values) => return Ok(values.as_slice().into()),
            Self::Printed(printed) => printed,
        };
        let start = || {
            let (printed, entry, name) = (printed.clone(), entry.clone(), name.to_owned());
            async move { printed.load(&entry, &name).await.map_err(Arc::new) }
        };
        let values = printed.in_flight.join(&(), || printed.fresh().map(Ok), start).await;
        values.map_err(|error| Error::from_shared(&error))
    }
}

impl PrintedCompletions {
    fn fresh(&self) -> Option<Arc<[String]>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(when, _)| when.elapsed() < VALUES_TTL).map(|(_, values)| values.clone())
    }

    /// Runs the program, and caches the values that the variable accepts.
    async fn load(&self, entry: &RunnableCommand, name: &str) -> Result<Arc<[String]>> {
        let printed = entry.run_completion_program(&self.invocation).await?;
        let printed = String::from_utf8_lossy(&printed);
        let values: Arc<[String]> = printed
            .lines()
            .filter(|value| entry.allows(name, value))
            .take(MAX_VALUES)
            .map(str::to_owned)
            .collect();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), values.clone()));
        Ok(values)
    }
}
