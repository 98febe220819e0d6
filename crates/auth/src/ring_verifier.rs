//! Makes `jsonwebtoken` verify signatures with ring, which TLS uses too.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey, VerificationAlgorithm,
};

/// A crypto provider for `jsonwebtoken` that verifies signatures with ring and cannot sign.
static RING: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Installs [`RING`] in `jsonwebtoken`, unless the program has installed another provider.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let _ = RING.install_default();
    });
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    // Prevents algorithm confusion: a public key must never be used as an HMAC secret.
    let is_asymmetric = algorithm.family() != AlgorithmFamily::Hmac;
    if !is_asymmetric || key.family() != algorithm.family() {
        return Err(ErrorKind::InvalidKeyFormat.into());
    }
    Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let rsa = |parameters: &'static RsaParameters| match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            DecodingKeyKind::SecretOrDer(der) => {
                UnparsedPublicKey::new(parameters, der).verify(message, signature)
            }
        };
        let raw = |algorithm: &'static dyn VerificationAlgorithm| {
            let bytes = self.key.try_get_as_bytes().map_err(|_| ring::error::Unspecified)?;
            UnparsedPublicKey::new(algorithm, bytes).verify(message, signature)
        };
        let verified = match self.algorithm {
            Algorithm::RS256 => rsa(&RSA_PKCS1_2048_8192_SHA256),
            Algorithm::RS384 => rsa(&RSA_PKCS1_2048_8192_SHA384),
            Algorithm::RS512 => rsa(&RSA_PKCS1_2048_8192_SHA512),
            Algorithm::PS256 => rsa(&RSA_PSS_2048_8192_SHA256),
            Algorithm::PS384 => rsa(&RSA_PSS_2048_8192_SHA384),
            Algorithm::PS512 => rsa(&RSA_PSS_2048_8192_SHA512),
            Algorithm::ES256 => raw(&ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => raw(&ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDSA => raw(&ED25519),
            _ => Err(ring::error::Unspecified),
        };
        verified.map_err(|_| Error::new())
    }
}
