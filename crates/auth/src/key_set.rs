//! The keys with which an issuer signs its tokens (JWKS, RFC 7517).

use std::sync::Arc;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use ring::digest::{Context, SHA256};
use serde::Deserialize;
use serde_json::Value;

use crate::api_keys::hex;
use crate::bearer::InvalidToken;

/// The largest number of keys to read from a set. Further keys are ignored.
const MAX_KEYS: usize = 100;

/// The public keys of an issuer.
pub(crate) struct KeySet {
    keys: Vec<VerificationKey>,
    /// The JSON from which the keys were parsed, to detect changes.
    text: Vec<u8>,
}

pub(crate) struct VerificationKey {
    id: Option<Box<str>>,
    /// The SHA-256 hash of the key and of the settings under which it verifies tokens.
    pub(crate) fingerprint: Arc<str>,
    /// The only algorithm for which the key may be used; `None` if the set does not restrict it.
    algorithm: Option<KeyAlgorithm>,
    curve: Option<EllipticCurve>,
    pub(crate) key: DecodingKey,
}

#[derive(Deserialize)]
struct KeySetDocument {
    keys: Vec<Value>,
}

impl KeySet {
    /// Parses a key set. Keys that are not for signatures, or of an unknown type, are ignored. `settings` are those under
    /// which the keys verify tokens; they are part of the fingerprints.
    pub(crate) fn parse(text: Vec<u8>, settings: &str) -> Result<Self, serde_json::Error> {
        let document: KeySetDocument = serde_json::from_slice(&text)?;
        let keys = document.keys.into_iter().take(MAX_KEYS);
        Ok(Self { keys: keys.filter_map(|key| VerificationKey::parse(key, settings)).collect(), text })
    }

    /// Whether another set was parsed from the same text.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.text == other.text
    }

    /// The number of usable keys.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the set has a key with this id. For a token without a key id (`None`): whether the set has any key.
    pub(crate) fn contains(&self, id: Option<&str>) -> bool {
        match id {
            Some(id) => self.keys.iter().any(|key| key.id.as_deref() == Some(id)),
            None => !self.keys.is_empty(),
        }
    }

    /// Whether the set has the key with this fingerprint.
    pub(crate) fn has_fingerprint(&self, fingerprint: &str) -> bool {
        self.keys.iter().any(|key| *key.fingerprint == *fingerprint)
    }

    /// The key with this id that can verify signatures of this algorithm. Without an id, exactly one key of the set
    /// must be able to verify them.
    pub(crate) fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<&VerificationKey, InvalidToken> {
        if !self.contains(id) {
            return Err(InvalidToken::UnknownKey);
        }
        let named = self.keys.iter().filter(|key| id.is_none_or(|id| key.id.as_deref() == Some(id)));
        let mut fitting = named.filter(|key| key.fits(algorithm));
        let first = fitting.next().ok_or(InvalidToken::Algorithm)?;
        match id.is_none() && fitting.next().is_some() {
            true => Err(InvalidToken::UnknownKey),
            false => Ok(first),
        }
    }
}

impl VerificationKey {
    fn parse(value: Value, settings: &str) -> Option<Self> {
        let mut hash = Context::new(&SHA256);
        hash.update(value.to_string().as_bytes());
        hash.update(settings.as_bytes());
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        if !matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
            return None;
        }
        let curve = match &jwk.algorithm {
            AlgorithmParameters::EllipticCurve(parameters) => Some(parameters.curve.clone()),
            AlgorithmParameters::OctetKeyPair(parameters) => Some(parameters.curve.clone()),
            AlgorithmParameters::RSA(_) => None,
            // A shared secret must not be in a public key set.
            _ => return None,
        };
        Some(Self {
            id: jwk.common.key_id.as_deref().map(Into::into),
            fingerprint: hex(hash.finish().as_ref()).into(),
            algorithm: jwk.common.key_algorithm,
            curve,
            key: DecodingKey::from_jwk(&jwk).ok()?,
        })
    }

    /// Whether the key can verify signatures of this algorithm.
    fn fits(&self, algorithm: Algorithm) -> bool {
        let curve = match algorithm {
            Algorithm::ES256 => Some(EllipticCurve::P256),
            Algorithm::ES384 => Some(EllipticCurve::P384),
            Algorithm::EdDSA => Some(EllipticCurve::Ed25519),
            _ => None,
        };
        let named = self.algorithm.is_none_or(|only| only == KeyAlgorithm::from(algorithm));
        named
            && algorithm.family() != AlgorithmFamily::Hmac
            && self.key.family() == algorithm.family()
            && self.curve == curve
    }
}
