//! Resources that functions make: what stands behind `#[resources]`, and the builder that does without.

mod answer;
mod library;
mod notifier;
mod request;
mod routes;

pub use answer::{Instance, IntoCompletion, IntoContents, IntoInstances, Json};
pub use library::{Handle, Handler, Libris};
pub use notifier::Notifier;
pub use request::{Request, Variable};
pub use routes::{Described, Routes};
