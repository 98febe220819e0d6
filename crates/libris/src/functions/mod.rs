//! Resources from functions: the runtime of `#[resources]`, and `FunctionSource` for closures.

mod notifier;
mod request;
mod return_types;
mod routes;
mod source;

pub use notifier::Notifier;
pub use request::{FromVariable, Request};
pub use return_types::{Instance, IntoCompletion, IntoContents, IntoInstances, Json};
pub use routes::{Described, Routes};
pub use source::{FunctionSource, Handle, Handler};
