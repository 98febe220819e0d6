//! Resources from functions: the runtime of `#[resources]`, and `FunctionSource` for closures.

/// Defines builder methods that set an optional string field.
macro_rules! text_setters {
    ($($(#[$doc:meta])* $field:ident)*) => { $(
        $(#[$doc])*
        pub fn $field(self, $field: impl Into<String>) -> Self {
            Self { $field: Some($field.into()), ..self }
        }
    )* };
}

use std::time::Duration;

/// How long the result of a `#[list]` function is cached, so that the following pages do not call the function again.
pub const LIST_TTL: Duration = Duration::from_secs(30);

mod notifier;
mod prompt_types;
mod request;
mod return_types;
mod routes;
mod source;

pub use notifier::Notifier;
pub use prompt_types::IntoPromptMessages;
pub use request::{FromVariable, Request};
pub use return_types::{Instance, IntoCompletion, IntoContents, IntoInstances, Json};
pub use routes::{ResourceSpec, Routes};
pub use source::{FunctionSource, FunctionSourceHandle, Handler};
