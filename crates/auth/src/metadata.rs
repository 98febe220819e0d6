//! The protected-resource metadata (RFC 9728) and the challenges that refer to it.

use serde_json::{Value, json};
use url::Url;

use crate::bearer::InvalidToken;
use crate::config::{AuthConfig, ConfigError};

/// The well-known path of the metadata, to which the path of the resource is appended.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// This server as an OAuth 2.1 protected resource.
#[derive(Clone, Debug)]
pub struct ProtectedResource {
    /// The metadata document.
    document: String,
    /// The URL of the document, for challenges.
    url: String,
    /// The path in `url`.
    path: String,
    /// The scopes that every token needs, separated by spaces.
    scope: String,
}

impl ProtectedResource {
    /// The metadata of a server that accepts access tokens; `None` if the configuration has no issuers.
    pub(crate) fn new(config: &AuthConfig) -> Result<Option<Self>, ConfigError> {
        if config.issuers.is_empty() {
            return Ok(None);
        }
        let resource = config.resource.as_deref().ok_or(ConfigError::ResourceMissing)?;
        let parsed = Url::parse(resource).ok().filter(|url| {
            url.host_str().is_some() && url.fragment().is_none() && matches!(url.scheme(), "http" | "https")
        });
        let parsed = parsed.ok_or_else(|| ConfigError::Resource(resource.to_owned()))?;
        let own_path = parsed.path().trim_end_matches('/');
        let path = format!("{WELL_KNOWN}{own_path}");
        let url = format!("{}{path}", parsed.origin().ascii_serialization());
        let issuers: Vec<_> = config.issuers.iter().map(|issuer| &issuer.issuer).collect();
        let mut document = json!({
            "resource": resource,
            "authorization_servers": issuers,
            "bearer_methods_supported": ["header"],
        });
        if !config.scopes.is_empty() {
            document["scopes_supported"] = json!(config.scopes);
        }
        Ok(Some(Self { document: document.to_string(), url, path, scope: config.scopes.join(" ") }))
    }

    /// The metadata document if `path` is one of its paths: the well-known path with the path of the resource, with
    /// `/mcp`, or with nothing. The last two are for a reverse proxy that rewrites the public path: the path that this
    /// server receives then differs from the path in `resource`.
    pub fn document(&self, path: &str) -> Option<&str> {
        let rest = path.strip_prefix(WELL_KNOWN)?;
        (path == self.path || matches!(rest, "" | "/mcp")).then_some(&*self.document)
    }

    /// The metadata document as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.document).unwrap_or_default()
    }
}

/// The `WWW-Authenticate` header of a 401 response. `error` is `None` if the request had no credentials.
pub(crate) fn unauthenticated(resource: Option<&ProtectedResource>, error: Option<InvalidToken>) -> String {
    let mut parameters = Vec::new();
    if let Some(error) = error {
        parameters.push("error=\"invalid_token\"".to_owned());
        parameters.push(format!("error_description=\"{error}\""));
    }
    match resource {
        Some(resource) => {
            parameters.push(format!("resource_metadata=\"{}\"", resource.url));
            if !resource.scope.is_empty() {
                parameters.push(format!("scope=\"{}\"", resource.scope));
            }
        }
        None => parameters.push("realm=\"libris\"".to_owned()),
    }
    format!("Bearer {}", parameters.join(", "))
}

/// The `WWW-Authenticate` header of a 403 response that tells the client to request a token with these scopes. Leaves
/// out `offline_access` and malformed scopes. `None` if the server accepts no access tokens.
pub(crate) fn insufficient_scope(
    resource: Option<&ProtectedResource>,
    scopes: &[impl AsRef<str>],
) -> Option<String> {
    let resource = resource?;
    let scopes = scopes.iter().map(AsRef::as_ref).filter(|scope| is_scope(scope));
    // Servers should not request this scope (MCP specification): clients ask the issuer for refresh tokens themselves.
    let scopes: Vec<_> = scopes.filter(|scope| *scope != OFFLINE_ACCESS).collect();
    let (scope, url) = (scopes.join(" "), &resource.url);
    Some(format!(
        "Bearer error=\"insufficient_scope\", scope=\"{scope}\", resource_metadata=\"{url}\", \
         error_description=\"the token lacks a scope that this request requires\""
    ))
}

/// The scope for refresh tokens, which resource servers should not request.
pub(crate) const OFFLINE_ACCESS: &str = "offline_access";

/// Whether this is a `scope-token` of RFC 6749, which needs no escaping in a quoted string.
pub(crate) fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e))
}

#[cfg(test)]
mod tests {
    use super::{ProtectedResource, insufficient_scope, is_scope, unauthenticated};
    use crate::bearer::InvalidToken;
    use crate::config::{AuthConfig, IssuerConfig};
    use serde_json::{Value, json};

    fn resource(resource: &str, scopes: &[&str]) -> ProtectedResource {
        let config = AuthConfig {
            resource: Some(resource.to_owned()),
            issuers: vec![IssuerConfig::new("https://login.example")],
            scopes: scopes.iter().map(|&scope| scope.into()).collect(),
            ..AuthConfig::default()
        };
        ProtectedResource::new(&config).unwrap().unwrap()
    }

    #[test]
    fn the_document_is_where_clients_look_for_it() {
        let one = resource("https://docs.example/mcp", &["docs:read"]);
        for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
            let document: Value = serde_json::from_str(one.document(path).unwrap()).unwrap();
            assert_eq!(
                document,
                json!({
                    "resource": "https://docs.example/mcp",
                    "authorization_servers": ["https://login.example"],
                    "bearer_methods_supported": ["header"],
                    "scopes_supported": ["docs:read"],
                })
            );
        }
        assert_eq!(one.document("/.well-known/oauth-protected-resource/other"), None);
        assert_eq!(one.document("/mcp"), None);
        let prefixed = resource("https://docs.example/team/mcp", &[]);
        assert!(prefixed.document("/.well-known/oauth-protected-resource/team/mcp").is_some());
        assert!(prefixed.json().get("scopes_supported").is_none());
    }

    #[test]
    fn challenges_name_the_metadata_the_scopes_and_the_reason() {
        let it = resource("https://docs.example/mcp", &["docs:read", "docs:list"]);
        let url = "https://docs.example/.well-known/oauth-protected-resource/mcp";
        assert_eq!(
            unauthenticated(Some(&it), None),
            format!("Bearer resource_metadata=\"{url}\", scope=\"docs:read docs:list\"")
        );
        assert_eq!(
            unauthenticated(Some(&it), Some(InvalidToken::Expired)),
            format!(
                "Bearer error=\"invalid_token\", error_description=\"the token has expired\", \
                 resource_metadata=\"{url}\", scope=\"docs:read docs:list\""
            )
        );
        assert_eq!(unauthenticated(None, None), "Bearer realm=\"libris\"");
        let asked = insufficient_scope(Some(&it), &["a", "b", "offline_access", "c\"d"]).unwrap();
        assert_eq!(
            asked,
            format!(
                "Bearer error=\"insufficient_scope\", scope=\"a b\", resource_metadata=\"{url}\", \
                 error_description=\"the token lacks a scope that this request requires\""
            )
        );
        assert_eq!(insufficient_scope(None, &["a"]), None);
    }

    #[test]
    fn scopes_have_no_characters_that_end_a_quoted_string() {
        assert!(is_scope("docs:read") && is_scope("https://x/y.z"));
        assert!(!["", "a b", "a\"", "a\\", "ü", "a\n"].into_iter().any(is_scope));
    }
}
