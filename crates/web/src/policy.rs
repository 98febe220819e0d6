//! The headers that confine the page: what it may load, and who may embed it.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use sha2::{Digest as _, Sha256};

/// The Content Security Policy. Scripts, styles and connections are allowed only from this origin, and only the Trusted
/// Types policy `libris-preview` may turn strings into HTML. Previews inherit the Content Security Policy, and their
/// sandboxed frame also forbids scripts. The frame has an opaque origin and can load nothing from this one, so each
/// preview document contains its style sheet, which the digest allows.
static PAGE: LazyLock<HeaderValue> = LazyLock::new(|| {
    let digest = STANDARD.encode(Sha256::digest(include_str!("../page/preview.css")));
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'sha256-{digest}'; connect-src 'self'; \
         img-src 'self' blob: data:; media-src blob:; frame-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types libris-preview"
    );
    // If the header were invalid, a policy that allows nothing would apply.
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// Adds the security headers to a response.
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
