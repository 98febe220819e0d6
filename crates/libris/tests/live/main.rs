//! What listeners are told, in a time that the tests move themselves.

mod notifications;
mod script;
mod subscriptions;
mod watching;
