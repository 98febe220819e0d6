//! API keys. `libris key` writes their hashes to a file, and a running server reloads the file when it changes.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use jiff::Timestamp;
use libris_core::{Authentication, FileVersion, FileVersionStamp, Identity, regular_file};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use crate::{AuthConfig, Secret};

/// The prefix of every API key. Secret scanners recognise API keys by it.
pub(crate) const PREFIX: &str = "libris_";

/// The largest file of API keys, in bytes.
const MAX_FILE: u64 = 4 << 20;

/// The number of random bytes in an id.
const ID_BYTES: usize = 4;

/// The number of random bytes in a secret.
const SECRET_BYTES: usize = 32;

/// An entry of the file: an API key without its secret.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKey {
    /// The id, which is part of the key and not secret.
    pub id: Arc<str>,
    /// The name of the caller that uses the key.
    pub name: Arc<str>,
    /// The SHA-256 hash of the secret. A fast hash is safe here: the secret has 256 random bits and cannot be guessed.
    sha256: String,
    /// The groups of the caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Box<str>>,
    /// The scopes that are granted to the caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<Box<str>>,
    /// When the key was created.
    pub created: Timestamp,
    /// When the key expires; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

/// The parameters of a new API key.
#[derive(Clone, Debug, Default)]
pub struct NewKey {
    /// The name of the caller.
    pub name: String,
    /// The groups of the caller.
    pub groups: Vec<Box<str>>,
    /// The scopes that are granted to the caller.
    pub scopes: Vec<Box<str>>,
    /// When the key expires; `None`: never.
    pub expires: Option<Timestamp>,
}

/// Why a file of API keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file could not be read.
    #[error("could not read the API keys in `{}`; hint: name the file that `libris key add` wrote, and let this user read it", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// The file could not be written.
    #[error("could not write the API keys to `{}`; hint: name a file that this user may write", .0.display())]
    Write(PathBuf, #[source] io::Error),
    /// The content of the file is not what `libris key` writes.
    #[error("`{}` is not a file of API keys; hint: name the file that `libris key add` wrote", .0.display())]
    Invalid(PathBuf, #[source] Box<toml::de::Error>),
    /// Another key has this name.
    #[error("there is an API key `{0}` already; hint: choose another name, or revoke that key first")]
    Exists(String),
    /// No key has this name or id.
    #[error("there is no API key `{0}`; hint: `libris key list` shows the keys")]
    Unknown(String),
    /// The random number generator of the operating system failed.
    #[error("could not create a random secret")]
    Random,
}

/// A file of API keys.
#[derive(Clone, Debug)]
pub struct KeyFile(PathBuf);

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct KeyTable {
    #[serde(default, rename = "key")]
    keys: Vec<ApiKey>,
}

impl KeyFile {
    /// The file at this path, which need not exist.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The keys in the file; none if the file does not exist.
    pub fn keys(&self) -> Result<Vec<ApiKey>, KeyFileError> {
        let text =
            |data| String::from_utf8(data).map_err(|cause| io::Error::new(io::ErrorKind::InvalidData, cause));
        match regular_file::read(&self.0, MAX_FILE).and_then(text) {
            Ok(text) => {
                let table: KeyTable = toml::from_str(&text)
                    .map_err(|cause| KeyFileError::Invalid(self.0.clone(), Box::new(cause)))?;
                Ok(table.keys)
            }
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(cause) => Err(KeyFileError::Read(self.0.clone(), cause)),
        }
    }

    /// Adds a key. Returns its entry and the key itself. The file stores only a hash of the secret, so the key cannot
    /// be shown again.
    pub fn add(&self, new: NewKey) -> Result<(ApiKey, Secret), KeyFileError> {
        let (id, secret) = (random::<ID_BYTES>()?, random::<SECRET_BYTES>()?);
        let text = Secret::new(format!("{PREFIX}{id}_{secret}"));
        let NewKey { name, groups, scopes, expires } = new;
        let key = ApiKey {
            id: id.into(),
            name: name.as_str().into(),
            sha256: hex(digest(&SHA256, secret.as_bytes()).as_ref()),
            groups,
            scopes,
            created: Timestamp::from_second(Timestamp::now().as_second())
                .unwrap_or_else(|_| Timestamp::now()),
            expires,
        };
        let added = key.clone();
        self.change(move |keys| {
            if keys.iter().any(|other| other.name == key.name || other.id == key.id) {
                return Err(KeyFileError::Exists(name));
            }
            keys.push(key);
            Ok(())
        })?;
        Ok((added, text))
    }

    /// Removes the key with this name or id. Running servers refuse the key within a second.
    pub fn revoke(&self, name_or_id: &str) -> Result<ApiKey, KeyFileError> {
        self.change(|keys| {
            let found = keys.iter().position(|key| *key.name == *name_or_id || *key.id == *name_or_id);
            let at = found.ok_or_else(|| KeyFileError::Unknown(name_or_id.to_owned()))?;
            Ok(keys.remove(at))
        })
    }

    /// Changes the keys. A lock file serialises concurrent changes, and readers see either the old or the new file.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Vec<ApiKey>) -> Result<T, KeyFileError>,
    ) -> Result<T, KeyFileError> {
        let failed = |cause| KeyFileError::Write(self.0.clone(), cause);
        let beside = |suffix: &str| {
            let mut name = self.0.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        let lock = open_private(&beside(".lock"), fs::OpenOptions::new().create(true).truncate(false))
            .map_err(failed)?;
        lock.lock().map_err(failed)?;
        let mut keys = self.keys()?;
        let changed = change(&mut keys)?;
        let header = "# API keys of Libris, written by `libris key`: hashes, not the keys themselves.\n\n";
        let table = toml::to_string(&KeyTable { keys }).map_err(|cause| failed(io::Error::other(cause)))?;
        let new = beside(".new");
        let mut file =
            open_private(&new, fs::OpenOptions::new().create(true).truncate(true)).map_err(failed)?;
        file.write_all(format!("{header}{table}").as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        fs::rename(&new, &self.0).map_err(failed)?;
        Ok(changed)
    }
}

/// Opens a file for writing. On Unix, a file that this call creates is readable only by its owner (mode 0600).
fn open_private(path: &Path, options: &mut fs::OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.write(true).open(path)
}

/// The keys of a running server.
pub(crate) struct KeyStore {
    file: KeyFile,
    keys: RwLock<Arc<KnownKeys>>,
    /// The version of the file that is in effect, or that is invalid; its stamp is `None` if the file does not exist.
    version: Mutex<FileVersion<Option<FileVersionStamp>>>,
}

/// Keys by their ids, each with the identity of its caller.
type KnownKeys = HashMap<Arc<str>, (ApiKey, Identity)>;

impl KeyStore {
    /// Reads the keys. A file that does not exist has none. The configuration has the scopes that the scopes of keys
    /// imply.
    pub(crate) fn open(file: KeyFile, config: &AuthConfig) -> Result<Self, KeyFileError> {
        let version = Mutex::new(FileVersion::new(FileVersionStamp::of(&file.0)));
        let keys = by_id(file.keys()?, config);
        Ok(Self { file, keys: RwLock::new(Arc::new(keys)), version })
    }

    fn keys(&self) -> Arc<KnownKeys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The identity of the caller that sends this key; `None` if the key is unknown or expired, or its secret is wrong.
    pub(crate) fn identify(&self, key: &str) -> Option<Identity> {
        let (id, secret) = key.strip_prefix(PREFIX)?.split_once('_')?;
        let hash = hex(digest(&SHA256, secret.as_bytes()).as_ref());
        let keys = self.keys();
        let (known, identity) = keys.get(id)?;
        let same: bool = known.sha256.as_bytes().ct_eq(hash.as_bytes()).into();
        let valid = same && !identity.has_expired(SystemTime::now());
        valid.then(|| identity.clone())
    }

    /// Whether the key with this id exists and still gives its caller this identity: the same name, groups, scopes and
    /// expiry.
    pub(crate) fn is_valid(&self, id: &str, identity: &Identity) -> bool {
        self.keys().get(id).is_some_and(|(_, current)| current == identity)
    }

    /// Reads the file again if it has changed. Returns whether the keys were replaced. If the file is invalid or cannot
    /// be read, the error is logged once and the previous keys stay in effect; if the file is missing, there are no keys.
    /// A file that cannot be read is tried again at the next call, because it may revoke a key.
    pub(crate) fn reload(&self, config: &AuthConfig) -> bool {
        let mut version = self.version.lock().unwrap_or_else(PoisonError::into_inner);
        let now = FileVersionStamp::of(&self.file.0);
        if !version.is_due(&now) {
            return false;
        }
        let error = match self.file.keys() {
            Ok(keys) => {
                version.set_read(now);
                tracing::info!(keys = keys.len(), "reloaded the API keys");
                *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(by_id(keys, config));
                return true;
            }
            Err(error) => error,
        };
        let is_new = match &error {
            KeyFileError::Read(..) => version.set_unreadable(now),
            _ => {
                version.set_read(now);
                true
            }
        };
        if is_new {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(%error, cause, "the previous API keys stay in effect; hint: correct the file of API keys");
        }
        false
    }
}

impl ApiKey {
    fn identity(&self) -> Identity {
        Identity::new(self.name.clone())
            .with_authentication(Authentication::ApiKey { id: self.id.clone() })
            .with_groups(self.groups.iter().cloned())
            .with_scopes(self.scopes.iter().cloned())
            .with_expiry(self.expires.map(SystemTime::from))
    }
}

fn by_id(keys: Vec<ApiKey>, config: &AuthConfig) -> KnownKeys {
    let known = |key: ApiKey| {
        let identity = config.with_implied_scopes(key.identity());
        (key.id.clone(), (key, identity))
    };
    keys.into_iter().map(known).collect()
}

fn random<const N: usize>() -> Result<String, KeyFileError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| KeyFileError::Random)?;
    Ok(hex(&bytes))
}

/// The bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
