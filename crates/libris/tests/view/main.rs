//! What a view hides does not exist: whatever a caller asks, the responses and notifications are those of a server that
//! does not have what is hidden from the caller.

mod hints;
mod joined;
mod law;
mod matrix;
mod notifications;
mod people;
mod prompts;
mod random;
mod revocation;
mod rules;
mod shelf;
mod streams;
mod worlds;
