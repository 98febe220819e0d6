//! OpenAPI.
/// x
pub struct OpenApi;
