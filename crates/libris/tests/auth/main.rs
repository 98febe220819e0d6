//! Who calls: access tokens of a real issuer, API keys, client certificates and TLS, over every path of HTTP.

mod certificates;
mod issuer;
mod keys;
mod rotation;
mod rules;
mod served;
mod tokens;
