use std::time::Duration;

use jiff::Timestamp;
use libris_core::Authentication;

use super::{KeyFile, KeyFileError, KeyStore, NewKey};
use crate::AuthConfig;

fn file() -> (tempfile::TempDir, KeyFile) {
    let folder = tempfile::tempdir().unwrap();
    let file = KeyFile::at(folder.path().join("keys.toml"));
    (folder, file)
}

fn open(file: &KeyFile) -> KeyStore {
    KeyStore::open(file.clone(), &AuthConfig::default()).unwrap()
}

fn named(name: &str) -> NewKey {
    NewKey {
        name: name.to_owned(),
        groups: vec!["staff".into()],
        scopes: vec!["docs:read".into()],
        expires: None,
    }
}

#[test]
fn a_key_identifies_its_caller_until_it_is_revoked() {
    let (folder, file) = file();
    let (ci, secret) = file.add(named("ci")).unwrap();
    let (other, other_secret) = file.add(named("other")).unwrap();
    let text = std::fs::read_to_string(folder.path().join("keys.toml")).unwrap();
    assert!(!text.contains(secret.expose().rsplit('_').next().unwrap()), "the secret is not in the file");
    let store = open(&file);
    let identity = store.identify(secret.expose()).unwrap();
    assert_eq!(identity.name(), "ci");
    assert_eq!(*identity.authentication(), Authentication::ApiKey { id: ci.id.clone() });
    assert!(identity.groups().contains("staff") && identity.scopes().contains("docs:read"));
    // The secret of one key with the id of another.
    let mixed = secret.expose().replace(&*ci.id, &other.id);
    assert!(store.identify(&mixed).is_none());
    for wrong in ["", "libris_", "libris__", &secret.expose()[..20], &format!("{}0", secret.expose())] {
        assert!(store.identify(wrong).is_none(), "{wrong:?}");
    }
    assert!(store.is_valid(&ci.id, &identity) && !store.is_valid("none", &identity));
    assert!(!store.reload(&AuthConfig::default()), "nothing has changed");
    assert_eq!(file.revoke("ci").unwrap(), ci);
    assert!(store.reload(&AuthConfig::default()));
    assert!(store.identify(secret.expose()).is_none() && !store.is_valid(&ci.id, &identity));
    assert!(store.identify(other_secret.expose()).is_some());
    assert_eq!(file.revoke(&other.id).unwrap().name, other.name);
    assert!(matches!(file.revoke("ci"), Err(KeyFileError::Unknown(_))));
}

#[test]
fn an_identity_is_valid_while_its_key_gives_the_same_rights() {
    let (folder, file) = file();
    let (ci, secret) = file.add(named("ci")).unwrap();
    let implied = |scope: &str| AuthConfig {
        implied_scopes: [("docs:read".into(), vec![scope.into()])].into_iter().collect(),
        ..AuthConfig::default()
    };
    let store = KeyStore::open(file.clone(), &implied("docs:list")).unwrap();
    let identity = store.identify(secret.expose()).unwrap();
    assert!(identity.scopes().contains("docs:list"));
    let path = folder.path().join("keys.toml");
    let original = std::fs::read_to_string(&path).unwrap();
    let expires = "created = ";
    for (old, new) in [
        ("\"staff\"", "\"guests\""),
        ("\"docs:read\"", "\"docs:draft\""),
        ("\"ci\"", "\"build\""),
        (expires, "expires = \"2999-01-01T00:00:00Z\"\ncreated = "),
    ] {
        let changed = original.replacen(old, new, 1);
        assert_ne!(changed, original);
        std::fs::write(&path, changed).unwrap();
        assert!(store.reload(&implied("docs:list")));
        assert!(!store.is_valid(&ci.id, &identity), "{new}");
        std::fs::write(&path, &original).unwrap();
        assert!(store.reload(&implied("docs:list")));
        assert!(store.is_valid(&ci.id, &identity), "an equal key");
    }
    let reconfigured = KeyStore::open(file, &implied("docs:draft")).unwrap();
    assert!(!reconfigured.is_valid(&ci.id, &identity));
}

#[test]
fn names_are_unique() {
    let (_folder, file) = file();
    file.add(named("ci")).unwrap();
    assert!(matches!(file.add(named("ci")), Err(KeyFileError::Exists(_))));
    assert_eq!(file.keys().unwrap().len(), 1);
}

#[test]
fn an_expired_key_is_refused() {
    let (_folder, file) = file();
    let expires = Some(Timestamp::now() - Duration::from_secs(1));
    let (_, secret) = file.add(NewKey { expires, ..named("old") }).unwrap();
    let expires = Some(Timestamp::now() + Duration::from_secs(600));
    let (_, current) = file.add(NewKey { expires, ..named("new") }).unwrap();
    let store = open(&file);
    assert!(store.identify(secret.expose()).is_none());
    assert!(store.identify(current.expose()).unwrap().expires().is_some());
}

#[test]
fn an_invalid_file_keeps_the_keys_and_a_missing_one_has_none() {
    let (folder, file) = file();
    let (_, secret) = file.add(named("ci")).unwrap();
    let store = open(&file);
    let path = folder.path().join("keys.toml");
    std::fs::write(&path, "[[key]]\nid = 1").unwrap();
    assert!(!store.reload(&AuthConfig::default()) && store.identify(secret.expose()).is_some());
    assert!(matches!(file.keys(), Err(KeyFileError::Invalid(..))));
    std::fs::remove_file(&path).unwrap();
    assert!(store.reload(&AuthConfig::default()) && store.identify(secret.expose()).is_none());
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(file.keys(), Err(KeyFileError::Read(..))));
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, file) = file();
    file.add(named("ci")).unwrap();
    let mode = std::fs::metadata(folder.path().join("keys.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// A key is revoked while the process has no free file descriptors: the file is read once it has some.
#[cfg(target_os = "linux")]
#[test]
fn a_revocation_is_not_lost_if_the_file_cannot_be_read_for_a_while() {
    use crate::without_descriptors::{NoDescriptors, is_child};

    if !is_child("api_keys::tests::a_revocation_is_not_lost_if_the_file_cannot_be_read_for_a_while") {
        return;
    }
    let (_folder, file) = file();
    let (_, secret) = file.add(named("ci")).unwrap();
    let store = open(&file);
    file.revoke("ci").unwrap();
    let exhausted = NoDescriptors::begin();
    for _ in 0..2 {
        assert!(!store.reload(&AuthConfig::default()));
        assert!(store.identify(secret.expose()).is_some());
    }
    drop(exhausted);
    // The file has not changed since.
    assert!(store.reload(&AuthConfig::default()));
    assert!(store.identify(secret.expose()).is_none());
    assert!(!store.reload(&AuthConfig::default()), "it is read once");
}

/// The first keys of a file that is too large must not be taken for all of them, above all when a key is added.
#[test]
fn a_file_that_is_too_large_is_an_error() {
    let (folder, file) = file();
    file.add(named("ci")).unwrap();
    let path = folder.path().join("keys.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let large =
        format!("{text}{}", "# A comment of 32 bytes.........\n".repeat(super::MAX_FILE as usize / 32));
    std::fs::write(&path, &large).unwrap();
    assert!(matches!(file.keys(), Err(KeyFileError::Read(..))));
    assert!(matches!(file.add(named("other")), Err(KeyFileError::Read(..))));
    assert_eq!(std::fs::read_to_string(&path).unwrap().len(), large.len());
}

/// Opening a named pipe would block until something writes to it.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_is_an_error_and_does_not_block() {
    let (folder, file) = file();
    let path = folder.path().join("keys.toml");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let (sender, read) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(file.keys().map(drop)));
    let read = read.recv_timeout(Duration::from_secs(30)).expect("it does not block");
    assert!(matches!(read, Err(KeyFileError::Read(..))));
}
