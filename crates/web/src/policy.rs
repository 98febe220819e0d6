//! The headers that confine the page: what it may load, and who may embed it.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use sha2::{Digest as _, Sha256};

/// Scripts, styles and connections only of this origin, and HTML only where the page's own policy creates it. Previews
/// inherit this, and their frame forbids scripts. The frame has no origin and can load nothing from here, so the style of
/// previews is in their documents; its digest allows it and no other.
static PAGE: LazyLock<HeaderValue> = LazyLock::new(|| {
    let digest = STANDARD.encode(Sha256::digest(include_str!("../page/preview.css")));
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'sha256-{digest}'; connect-src 'self'; \
         img-src 'self' blob: data:; media-src blob:; frame-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types libris-preview"
    );
    // Without a policy, nothing is allowed.
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// Adds the headers to a response.
pub(crate) fn protect(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, PAGE.clone());
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.insert(
        "permissions-policy",
        HeaderValue::from_static("camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    );
}
