//! An issuer of access tokens on this machine.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
    RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The audience of the tokens that the server accepts.
pub(crate) const RESOURCE: &str = "http://127.0.0.1:4747/mcp";

/// A key that signs tokens.
pub(crate) enum SigningKey {
    Ecdsa { id: String, pair: EcdsaKeyPair },
    Rsa { id: String, pair: RsaKeyPair },
}

impl SigningKey {
    pub(crate) fn ecdsa(id: &str) -> Arc<Self> {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        Arc::new(Self::Ecdsa { id: id.to_owned(), pair })
    }

    /// Always the same key, because it takes long to find one.
    pub(crate) fn rsa(id: &str) -> Arc<Self> {
        let pair = RsaKeyPair::from_pkcs8(include_bytes!("rsa.pk8")).unwrap();
        Arc::new(Self::Rsa { id: id.to_owned(), pair })
    }

    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Ecdsa { id, .. } | Self::Rsa { id, .. } => id,
        }
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Self::Ecdsa { .. } => "ES256",
            Self::Rsa { .. } => "RS256",
        }
    }

    /// The public key as a member of a key set.
    pub(crate) fn jwk(&self) -> Value {
        match self {
            Self::Ecdsa { id, pair } => {
                let point = pair.public_key().as_ref();
                let (x, y) = (BASE64.encode(&point[1..33]), BASE64.encode(&point[33..65]));
                json!({ "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": id, "x": x, "y": y })
            }
            Self::Rsa { id, pair } => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                let (n, e) = (BASE64.encode(public.n), BASE64.encode(public.e));
                json!({ "kty": "RSA", "use": "sig", "kid": id, "n": n, "e": e })
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Ecdsa { pair, .. } => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Rsa { pair, .. } => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }

    /// A token with this header and these claims.
    pub(crate) fn token(&self, header: &Value, claims: &Value) -> String {
        let message = unsigned(header, claims);
        let signature = BASE64.encode(self.sign(message.as_bytes()));
        format!("{message}.{signature}")
    }
}

/// The header and the claims of a token, encoded.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()))
}

/// An HMAC signature, as of a token with a shared secret.
pub(crate) fn hmac(secret: &[u8], message: &str) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
    BASE64.encode(ring::hmac::sign(&key, message.as_bytes()))
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// An authorization server with its metadata and its key set.
pub(crate) struct TestIssuer {
    pub(crate) url: String,
    pub(crate) keys: Arc<Mutex<Vec<Arc<SigningKey>>>>,
    /// How often the key set was fetched.
    pub(crate) fetches: Arc<AtomicUsize>,
}

impl TestIssuer {
    pub(crate) async fn start(keys: Vec<Arc<SigningKey>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let url = format!("http://{address}");
        let (keys, fetches) = (Arc::new(Mutex::new(keys)), Arc::new(AtomicUsize::new(0)));
        let metadata = json!({ "issuer": url, "jwks_uri": format!("{url}/jwks") }).to_string();
        let (served, counted) = (keys.clone(), fetches.clone());
        let jwks = move || async move {
            counted.fetch_add(1, Ordering::SeqCst);
            let keys: Vec<_> = served.lock().unwrap().iter().map(|key| key.jwk()).collect();
            json!({ "keys": keys }).to_string()
        };
        let app = Router::new()
            .route("/.well-known/oauth-authorization-server", get(move || async move { metadata }))
            .route("/jwks", get(jwks));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, keys, fetches }
    }

    /// The claims of a valid token for `ada`.
    pub(crate) fn claims(&self) -> Value {
        json!({
            "iss": self.url,
            "sub": "ada",
            "aud": RESOURCE,
            "iat": now(),
            "exp": now() + 600,
            "scope": "docs:read docs:list",
            "groups": ["staff"],
            "email": "ada@docs.example",
        })
    }

    /// A token with changed claims, signed with the first key.
    pub(crate) fn token(&self, change: impl FnOnce(&mut Value)) -> String {
        let mut claims = self.claims();
        change(&mut claims);
        let key = self.keys.lock().unwrap()[0].clone();
        key.token(&json!({ "typ": "at+jwt", "alg": key.algorithm(), "kid": key.id() }), &claims)
    }

    pub(crate) fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}
