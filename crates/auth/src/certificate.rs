//! Derives the identity of a caller from a TLS client certificate, which the TLS server has already verified.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libris_core::{Authentication, Identity};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::bearer::InvalidToken;

/// The identity of the certificate's subject: the first e-mail address, URI or DNS name among its alternative names,
/// otherwise its common name. The groups of the identity are the subject's organizational units.
pub(crate) fn identity(der: &[u8]) -> Result<Identity, InvalidToken> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| InvalidToken::Certificate)?;
    let names = certificate.subject_alternative_name().ok().flatten().map(|names| &names.value.general_names);
    let alternative = names.into_iter().flatten().find_map(|name| match name {
        GeneralName::RFC822Name(name) | GeneralName::URI(name) | GeneralName::DNSName(name) => Some(*name),
        _ => None,
    });
    let common = || certificate.subject().iter_common_name().find_map(|name| name.as_str().ok());
    let name =
        alternative.or_else(common).filter(|name| !name.is_empty()).ok_or(InvalidToken::Certificate)?;
    let units = certificate.subject().iter_organizational_unit().filter_map(|unit| unit.as_str().ok());
    Ok(Identity::new(name)
        .with_authentication(Authentication::Certificate)
        .with_groups(units)
        .with_expiry(expiry(certificate.validity().not_after.timestamp())))
}

/// Converts the end of a certificate's validity from Unix seconds; `None` if `SystemTime` cannot represent it.
fn expiry(seconds: i64) -> Option<SystemTime> {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    UNIX_EPOCH.checked_add(since)
}

#[cfg(test)]
mod tests {
    use super::identity;
    use crate::bearer::InvalidToken;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name.remove(DnType::CommonName);
        change(&mut params);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_name_is_an_alternative_name_or_the_common_name() {
        let ada = certificate(|params| {
            params.distinguished_name.push(DnType::CommonName, "Ada");
            params.distinguished_name.push(DnType::OrganizationalUnitName, "staff");
            params.subject_alt_names = vec![SanType::Rfc822Name("ada@docs.example".try_into().unwrap())];
        });
        let ada = identity(&ada).unwrap();
        assert_eq!(
            (ada.name(), ada.groups().iter().next().map(|group| &**group)),
            ("ada@docs.example", Some("staff"))
        );
        assert!(ada.expires().is_some());
        let plain = certificate(|params| params.distinguished_name.push(DnType::CommonName, "builder"));
        assert_eq!(identity(&plain).unwrap().name(), "builder");
        assert_eq!(identity(&certificate(|_| {})), Err(InvalidToken::Certificate));
        assert_eq!(identity(b"no certificate"), Err(InvalidToken::Certificate));
    }
}
