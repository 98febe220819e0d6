//! Verifies an access token: signature, issuer, audience and time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, Header, Validation, dangerous, decode, decode_header};
use libris_core::{Authentication, Identity, Meta};
use serde::Deserialize;
use serde_json::Value;

use crate::bearer::InvalidToken;
use crate::issuer::Issuer;
use crate::key_set::KeySet;

/// The tolerated difference between the clocks of the issuer and of this machine.
const LEEWAY: Duration = Duration::from_secs(30);

/// The registered claims, and the claims with scopes. They are left out of the claims of the identity, which has
/// separate fields for the subject, the scopes and the expiry.
const TOKEN_CLAIMS: [&str; 9] = ["iss", "sub", "aud", "exp", "nbf", "iat", "jti", "scope", "scp"];

/// A token whose signature is not verified yet.
pub(crate) struct UnverifiedToken<'t> {
    text: &'t str,
    header: Header,
    issuer: String,
}

#[derive(Deserialize)]
struct IssuerClaim {
    iss: String,
}

impl<'t> UnverifiedToken<'t> {
    /// Parses the header of a token and the name of its issuer.
    pub(crate) fn parse(text: &'t str) -> Result<Self, InvalidToken> {
        let header = decode_header(text).map_err(|error| match InvalidToken::from(error) {
            // The parser does not know names such as `none`, and reports them as malformed.
            InvalidToken::Malformed if names_algorithm(text) => InvalidToken::Algorithm,
            error => error,
        })?;
        // A critical extension must be understood, and this code understands none.
        if header.crit.is_some() {
            return Err(InvalidToken::Malformed);
        }
        // This unverified claim only selects the issuer whose keys verify the token.
        let claims = dangerous::insecure_decode_claims::<IssuerClaim>(text);
        let issuer = claims.map_err(|_| InvalidToken::Issuer)?.iss;
        Ok(Self { text, header, issuer })
    }

    /// The issuer that the token names.
    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// Whether the set lacks the key that the token names. For a token that names no key: whether the set is empty.
    pub(crate) fn has_unknown_key(&self, keys: &KeySet) -> bool {
        !keys.contains(self.header.kid.as_deref())
    }

    /// Fails unless the configuration accepts the algorithm of the token for this issuer.
    pub(crate) fn check_algorithm(&self, issuer: &Issuer) -> Result<(), InvalidToken> {
        let accepted =
            issuer.config.algorithms.iter().any(|accepted| Algorithm::from(*accepted) == self.header.alg);
        accepted.then_some(()).ok_or(InvalidToken::Algorithm)
    }

    /// Verifies the token: its signature with the keys of its issuer, its times, and that it was issued for `resource`.
    pub(crate) fn verify(
        &self,
        issuer: &Issuer,
        keys: &KeySet,
        resource: &str,
    ) -> Result<Identity, InvalidToken> {
        self.check_algorithm(issuer)?;
        let key = keys.find(self.header.kid.as_deref(), self.header.alg)?;
        let mut validation = Validation::new(self.header.alg);
        validation.leeway = LEEWAY.as_secs();
        validation.validate_nbf = true;
        validation.set_issuer(&[&*issuer.name]);
        validation.set_audience(&[resource]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let mut claims: Meta = decode(self.text, &key.key, &validation)?.claims;
        let subject = match claim(&claims, &issuer.config.subject_claim) {
            Some(Value::String(subject)) if !subject.is_empty() => subject.clone(),
            _ => return Err(InvalidToken::MissingClaim),
        };
        let expires = claims.get("exp").and_then(Value::as_f64).ok_or(InvalidToken::MissingClaim)?;
        let groups = texts(claim(&claims, &issuer.config.groups_claim));
        let scopes: Vec<_> = [claims.get("scope"), claims.get("scp")]
            .into_iter()
            .flat_map(texts)
            .flat_map(|text| text.split_ascii_whitespace().map(Box::<str>::from).collect::<Vec<_>>())
            .collect();
        TOKEN_CLAIMS.iter().for_each(|name| drop(claims.remove(*name)));
        let identity = Identity::new(subject)
            .with_authentication(Authentication::Token { issuer: issuer.name.clone() })
            .with_signing_key(key.fingerprint.clone())
            .with_groups(groups)
            .with_scopes(scopes)
            .with_claims(claims)
            .with_expiry(Some(expiry(expires)));
        // The library compares whole seconds. This check is exact, like the check that ends a stream when its caller's
        // token expires.
        match identity.has_expired(SystemTime::now()) {
            true => Err(InvalidToken::Expired),
            false => Ok(identity),
        }
    }
}

/// The time from which a token with this `exp` claim is no longer accepted: the claim and [`LEEWAY`].
fn expiry(seconds: f64) -> SystemTime {
    let since = Duration::try_from_secs_f64(seconds).ok().and_then(|since| since.checked_add(LEEWAY));
    // A time that cannot be represented becomes the year 2106.
    let latest = || UNIX_EPOCH + Duration::from_secs(u32::MAX.into());
    since.and_then(|since| UNIX_EPOCH.checked_add(since)).unwrap_or_else(latest)
}

/// The value of a claim, by its name or by a path such as `realm_access.roles`.
fn claim<'c>(claims: &'c Meta, path: &str) -> Option<&'c Value> {
    claims.get(path).or_else(|| {
        let (first, rest) = path.split_once('.')?;
        rest.split('.').try_fold(claims.get(first)?, |value, name| value.get(name))
    })
}

/// The strings of a claim that is a string or an array; empty for other claims.
fn texts(value: Option<&Value>) -> Vec<Box<str>> {
    match value {
        Some(Value::String(text)) => vec![text.as_str().into()],
        Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).map(Into::into).collect(),
        _ => Vec::new(),
    }
}

/// Whether the header of a token names an algorithm, even one that does not exist.
fn names_algorithm(token: &str) -> bool {
    #[derive(Deserialize)]
    struct AlgorithmName {
        #[serde(rename = "alg")]
        _name: String,
    }
    let mut parts = token.split('.');
    let header = parts.next().unwrap_or_default();
    // The library refuses a header with an unknown algorithm. So the header is decoded as the payload of a made-up token
    // whose own header names RS256.
    parts.count() == 2
        && dangerous::insecure_decode_claims::<AlgorithmName>(format!("eyJhbGciOiJSUzI1NiJ9.{header}."))
            .is_ok()
}
