//! The headers that confine the page: what it may load, and who may embed it.

use http::header::{
    CONTENT_SECURITY_POLICY, HeaderMap, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};

/// Scripts, styles and connections only of this origin, no inline scripts or styles, and HTML only where the page's own
/// policy creates it. Previews inherit this, and their frame forbids scripts.
const PAGE: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                    img-src 'self' blob: data:; media-src blob:; frame-src 'self'; base-uri 'none'; \
                    form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                    trusted-types libris-preview";

/// Adds the headers to a response.
pub(crate) fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, PAGE),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert(
        "permissions-policy",
        HeaderValue::from_static("camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
    );
}
