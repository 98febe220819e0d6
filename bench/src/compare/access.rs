//! Access control for the workloads with access tokens: an issuer of tokens, and a configuration with rules.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The number of rules of the configuration.
const RULES: usize = 100;

/// The issuer of the tokens. Nobody connects to it: its keys are in a file.
const ISSUER: &str = "https://login.example.com/";

/// The audience of the tokens.
const RESOURCE: &str = "https://docs.example.com/mcp";

/// The id of the key that signs the tokens.
const KEY_ID: &str = "bench-2026";

/// How long the tokens are valid.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// A key that signs tokens, and the folder of configurations that accept it.
pub(super) struct Access {
    folder: TempDir,
    key: Ed25519KeyPair,
}

impl Access {
    pub(super) fn new() -> Result<Self> {
        let failed = |what: &str| anyhow!("could not {what} a key");
        let document =
            Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| failed("generate"))?;
        let key = Ed25519KeyPair::from_pkcs8(document.as_ref()).map_err(|_| failed("load"))?;
        let folder = tempfile::tempdir()?;
        let public = URL_SAFE_NO_PAD.encode(key.public_key());
        let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": KEY_ID, "x": public });
        std::fs::write(folder.path().join("keys.json"), json!({ "keys": [jwk] }).to_string())?;
        Ok(Self { folder, key })
    }

    /// Writes a configuration that serves a folder under the rules.
    pub(super) fn config(&self, served: &Path) -> Result<PathBuf> {
        let name = served.file_name().and_then(|name| name.to_str()).context("the folder has no name")?;
        let mut text = format!(
            "[auth]\nresource = \"{RESOURCE}\"\n\
             [[auth.issuer]]\nissuer = \"{ISSUER}\"\njwks = \"keys.json\"\nalgorithms = [\"EdDSA\"]\n\
             [[files]]\npath = {}\n",
            Value::from(served.to_str().context("the path is not UTF-8")?)
        );
        for rule in rules(name) {
            writeln!(text, "[[rule]]\n{rule}")?;
        }
        let file = self.folder.path().join(format!("{name}.toml"));
        std::fs::write(&file, text)?;
        Ok(file)
    }

    /// The access token of the caller on this connection.
    pub(super) fn token(&self, connection: usize) -> Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let header = json!({ "alg": "EdDSA", "typ": "at+jwt", "kid": KEY_ID });
        let claims = json!({
            "iss": ISSUER,
            "aud": RESOURCE,
            "sub": format!("client-{connection:04}@example.com"),
            "exp": (now + LIFETIME).as_secs(),
            "nbf": now.as_secs(),
            "iat": now.as_secs(),
            "jti": format!("{connection:032x}"),
            "client_id": "bench",
            "scope": "openid profile docs:read",
            "groups": ["engineering", "handbook-readers", "on-call"],
        });
        let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(message.as_bytes()));
        Ok(format!("{message}.{signature}"))
    }
}

/// Rules of a team for a folder of this name. The last one allows the reads of the benchmark. Of the others, a third applies
/// to other callers, a third hides folders, and a third hides files by their extension in any folder.
fn rules(name: &str) -> Vec<String> {
    let rule = |number: usize| match number % 3 {
        0 => format!(
            "group = \"team-{number:02}\"\nuri = \"file:///{name}/team-{number:02}/**\"\naction = \"allow\""
        ),
        1 => format!("uri = \"file:///{name}/private-{number:02}/**\"\naction = \"deny\""),
        _ => format!("uri = \"file:///{name}/**/*.{number:02}.key\"\naction = \"deny\""),
    };
    let last = format!(
        "group = \"engineering\"\nscope = \"docs:read\"\nuri = \"file:///{name}/**\"\naction = \"allow\""
    );
    (1..RULES).map(rule).chain([last]).collect()
}

#[cfg(test)]
mod tests {
    use super::{Access, RULES, rules};

    #[test]
    fn there_are_as_many_rules_as_promised_and_tokens_differ() {
        assert_eq!(rules("data").len(), RULES);
        let access = Access::new().unwrap();
        let (one, other) = (access.token(1).unwrap(), access.token(2).unwrap());
        assert_ne!(one, other);
        assert_eq!(one.split('.').count(), 3);
        let file = access.config(std::path::Path::new("/tmp/data")).unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap().matches("[[rule]]").count(), RULES);
    }
}
