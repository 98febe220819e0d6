//! Resources that functions make: what stands behind `#[resources]`, and the builder that does without.

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
