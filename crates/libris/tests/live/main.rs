//! Notifications of listeners, under tokio's paused clock.

mod notifications;
mod rights;
mod script;
mod subscriptions;
mod watching;
