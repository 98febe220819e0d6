//! What listeners are told, in a time that the tests move themselves.

mod notifications;
mod rights;
mod script;
mod subscriptions;
mod watching;
