//! HTTP Basic authentication for routes whose clients support nothing else. The password is an API key or an access token.

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};

use super::Body;

/// The longest credentials that are decoded, in bytes: the limit of a request head.
const MAX_CREDENTIALS: usize = 16 << 10;

/// The `Authorization` headers of a request, in which the password of Basic credentials becomes a bearer token. Basic
/// credentials with an empty password are left out. Credentials that cannot be decoded stay unchanged, so that they are
/// refused like other invalid credentials.
pub(super) fn as_bearer(headers: &HeaderMap) -> HeaderMap {
    let mut credentials = HeaderMap::new();
    for value in headers.get_all(AUTHORIZATION) {
        match password(value.as_bytes()) {
            // Clients send an empty password before the user has entered one.
            Some(password) if password.is_empty() => {}
            Some(password) => {
                let bearer = HeaderValue::from_bytes(&[&b"Bearer "[..], &password].concat());
                credentials.append(AUTHORIZATION, bearer.unwrap_or_else(|_| value.clone()));
            }
            None => {
                credentials.append(AUTHORIZATION, value.clone());
            }
        }
    }
    credentials
}

/// The password in the value of an `Authorization` header of the scheme `Basic`; `None` for other values.
fn password(authorization: &[u8]) -> Option<Vec<u8>> {
    const SCHEME: &[u8] = b"basic ";
    let (scheme, encoded) = authorization.split_at_checked(SCHEME.len())?;
    if !scheme.eq_ignore_ascii_case(SCHEME) || encoded.len() > MAX_CREDENTIALS {
        return None;
    }
    let decoded = base64_turbo::STANDARD.decode(encoded.trim_ascii()).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

/// Replaces the challenge of a 401 response by a Basic challenge, which makes clients ask for a password.
pub(super) fn challenging(mut refusal: Response<Body>) -> Response<Body> {
    if refusal.status() == StatusCode::UNAUTHORIZED {
        // Replaced, not added to the bearer challenge: some clients read only the first challenge.
        let challenge = HeaderValue::from_static("Basic realm=\"libris\", charset=\"UTF-8\"");
        refusal.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    refusal
}

#[cfg(test)]
mod tests {
    use super::{as_bearer, password};
    use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};

    fn credentials(value: &str) -> Vec<String> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        let credentials = as_bearer(&headers);
        credentials.get_all(AUTHORIZATION).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_password_is_the_token() {
        // `reader:a:b`: the user name has no colon, the password may have one.
        assert_eq!(password(b"Basic cmVhZGVyOmE6Yg=="), Some(b"a:b".to_vec()));
        assert_eq!(credentials("bAsIc cmVhZGVyOmE6Yg=="), ["Bearer a:b"]);
        assert_eq!(credentials("Bearer token"), ["Bearer token"]);
    }

    #[test]
    fn invalid_credentials_stay_invalid() {
        assert_eq!(credentials("Basic !!!"), ["Basic !!!"]);
        // Without a colon there is no password.
        assert_eq!(credentials("Basic cmVhZGVy"), ["Basic cmVhZGVy"]);
        assert_eq!(credentials("Basic"), ["Basic"]);
        // `reader:` is what a client sends that has not asked for a password.
        assert_eq!(credentials("Basic cmVhZGVyOg=="), Vec::<String>::new());
        // A line break in the password cannot become a header.
        assert_eq!(credentials("Basic YTpiCg=="), ["Basic YTpiCg=="]);
    }
}
