//! Parses the `Authorization` header, and lists the reasons for which credentials are refused.

use jsonwebtoken::errors::ErrorKind;

/// The longest accepted token, in bytes.
pub(crate) const MAX_TOKEN: usize = 8 << 10;

/// Why credentials are refused. The message becomes the `error_description` of the challenge, so it must not contain
/// quotation marks or backslashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidToken {
    #[error("the Authorization header must have the form: Bearer TOKEN")]
    Scheme,
    #[error("the token is too long")]
    TooLong,
    #[error("the token is malformed")]
    Malformed,
    #[error("the signature algorithm of the token is not accepted")]
    Algorithm,
    #[error("the token was issued by an unknown issuer")]
    Issuer,
    #[error("the token was signed with an unknown key")]
    UnknownKey,
    #[error("the signature of the token is invalid")]
    Signature,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYetValid,
    #[error("the token was issued for another resource")]
    Audience,
    #[error("a required claim of the token is missing or malformed")]
    MissingClaim,
    #[error("the API key is unknown, revoked or expired")]
    ApiKey,
    #[error("the client certificate names no subject")]
    Certificate,
}

impl From<jsonwebtoken::errors::Error> for InvalidToken {
    fn from(error: jsonwebtoken::errors::Error) -> Self {
        match error.kind() {
            ErrorKind::ExpiredSignature => Self::Expired,
            ErrorKind::ImmatureSignature => Self::NotYetValid,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::MissingRequiredClaim(_) | ErrorKind::InvalidClaimFormat(_) => Self::MissingClaim,
            ErrorKind::InvalidAlgorithm
            | ErrorKind::InvalidAlgorithmName
            | ErrorKind::InvalidKeyFormat
            | ErrorKind::UnsupportedAlgorithm => Self::Algorithm,
            ErrorKind::InvalidSignature | ErrorKind::Provider(_) => Self::Signature,
            _ => Self::Malformed,
        }
    }
}

/// The credentials in an `Authorization` header with the scheme `Bearer`. Their characters are not checked yet.
pub(crate) fn credentials(authorization: &[u8]) -> Result<&[u8], InvalidToken> {
    const SCHEME: &[u8] = b"bearer ";
    let scheme = authorization.get(..SCHEME.len()).ok_or(InvalidToken::Scheme)?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return Err(InvalidToken::Scheme);
    }
    let token = authorization[SCHEME.len()..].trim_ascii();
    if token.len() > MAX_TOKEN {
        return Err(InvalidToken::TooLong);
    }
    Ok(token)
}

/// Checks the characters of credentials, and returns them as text.
pub(crate) fn token(token: &[u8]) -> Result<&str, InvalidToken> {
    // The characters of `b64token` in RFC 6750.
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    if token.is_empty() || !token.iter().all(is_token) {
        return Err(InvalidToken::Malformed);
    }
    str::from_utf8(token).map_err(|_| InvalidToken::Malformed)
}

#[cfg(test)]
mod tests {
    use super::{InvalidToken, MAX_TOKEN};

    fn token(authorization: &[u8]) -> Result<&str, InvalidToken> {
        super::token(super::credentials(authorization)?)
    }

    #[test]
    fn a_bearer_token_is_found_whatever_the_case_of_the_scheme() {
        for text in ["Bearer a.b-c_d~e+f/g=", "bearer a.b-c_d~e+f/g=", "BEARER  a.b-c_d~e+f/g= "] {
            assert_eq!(token(text.as_bytes()), Ok("a.b-c_d~e+f/g="));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "Bearer", "Basic abc", "Bearerabc", "abc"] {
            assert_eq!(token(text.as_bytes()), Err(InvalidToken::Scheme), "{text:?}");
        }
        for text in ["Bearer ", "Bearer a b", "Bearer a\"b", "Bearer ü"] {
            assert_eq!(token(text.as_bytes()), Err(InvalidToken::Malformed), "{text:?}");
        }
        let long = |size| format!("Bearer {}", "a".repeat(size));
        assert!(token(long(MAX_TOKEN).as_bytes()).is_ok());
        assert_eq!(token(long(MAX_TOKEN + 1).as_bytes()), Err(InvalidToken::TooLong));
    }
}
