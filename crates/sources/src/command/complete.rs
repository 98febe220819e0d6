//! The values to offer for a variable.

use std::sync::Arc;
use std::time::Duration;

use libris_core::Result;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::entry::{Entry, Line};

/// For how long printed values are offered: about as long as somebody types.
const KEPT: Duration = Duration::from_secs(5);

/// The values to offer for a variable.
pub(super) enum Offer {
    Fixed(Vec<String>),
    Printed {
        line: Line,
        /// What was printed last, and when. Locked while it is being printed, which is once for all who ask.
        last: Mutex<Option<(Instant, Arc<[String]>)>>,
    },
}

impl Offer {
    /// Those that this program prints.
    pub(super) fn printed(line: Line) -> Result<Self, String> {
        if let Some(name) = line.variables().next() {
            return Err(format!("the command that completes cannot use `{{{{{name}}}}}`"));
        }
        Ok(Self::Printed { line, last: Mutex::default() })
    }

    /// The values, those that may not be given left out.
    pub(super) async fn values(&self, entry: &Entry, name: &str) -> Result<Arc<[String]>> {
        let (line, last) = match self {
            Self::Fixed(values) => return Ok(values.as_slice().into()),
            Self::Printed { line, last } => (line, last),
        };
        let mut last = last.lock().await;
        if let Some((when, values)) = &*last
            && when.elapsed() < KEPT
        {
            return Ok(values.clone());
        }
        let printed = entry.print(line).await?;
        let printed = String::from_utf8_lossy(&printed);
        let values = printed.lines().filter(|value| entry.allows(name, value)).map(str::to_owned).collect();
        *last = Some((Instant::now(), Arc::clone(&values)));
        Ok(values)
    }
}
