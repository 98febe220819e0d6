//! Token files: one per server, readable only by the user.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use libris_core::{Error, Result, Uri};
use rmcp::transport::auth::{AuthError, CredentialRefreshGuard, CredentialStore, StoredCredentials};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use url::Url;

use crate::config::check_credentials;

/// The largest file that is read.
const MAX_FILE: u64 = 1 << 20;

/// A folder with the access tokens for servers. A token is only ever sent to the URL that it was obtained for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenStore {
    folder: PathBuf,
}

/// The contents of a file.
#[derive(Serialize, Deserialize)]
struct TokenEntry {
    url: String,
    credentials: StoredCredentials,
}

impl TokenStore {
    /// A store in this folder, which is created when the first token is stored.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The store of the user who runs this process: `libris/tokens` in `$XDG_DATA_HOME`, or without this variable in
    /// `~/.local/share` (on Windows in `%LOCALAPPDATA%`). `None` if none of the variables is an absolute path.
    pub fn of_user() -> Option<Self> {
        let variable =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let system = || match cfg!(windows) {
            true => variable("LOCALAPPDATA"),
            false => Some(variable("HOME")?.join(".local/share")),
        };
        let data = variable("XDG_DATA_HOME").or_else(system)?;
        Some(Self::new(data.join("libris/tokens")))
    }

    /// The URLs of the servers with a stored token, sorted.
    pub fn servers(&self) -> Result<Vec<String>> {
        let failed = |cause: io::Error| Error::failed("list the stored access tokens", cause);
        let entries = match std::fs::read_dir(&self.folder) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut urls = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                // `None` if another process has removed the file.
                urls.extend(read(&path).map_err(failed)?.map(|entry| entry.url));
            }
        }
        urls.sort();
        Ok(urls)
    }

    /// Removes the token for a server. Returns whether there was one. Waits while another process refreshes the token,
    /// which would otherwise store it again.
    pub fn remove(&self, url: &str) -> Result<bool> {
        let failed = |cause: io::Error| Error::failed("remove the stored access token", cause);
        let file = self.file(url)?;
        let _lock = match file.lock() {
            // There is no folder, and so no token.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(false),
            lock => lock.map_err(failed)?,
        };
        let was_stored = match std::fs::remove_file(&file.path) {
            Ok(()) => true,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => false,
            Err(cause) => return Err(failed(cause)),
        };
        // The lock file may be removed while it is locked: `lock` notices that, except on Windows, where the file stays.
        #[cfg(unix)]
        let _ = std::fs::remove_file(file.lock_path());
        Ok(was_stored)
    }

    /// Whether there is a token for a server.
    pub(crate) fn has_token(&self, url: &str) -> bool {
        self.file(url).is_ok_and(|file| file.path.exists())
    }

    /// The token file for a server. The file name is a hash of its URL.
    pub(super) fn file(&self, url: &str) -> Result<TokenFile> {
        let url = canonical(url)?;
        let digest = Sha256::digest(url.as_str());
        let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Ok(TokenFile { path: self.folder.join(format!("{name}.json")), url: url.into() })
    }
}

/// Normalises the URL of a server, so that all spellings share one token. Fails unless it is `https`, or `http` on this
/// machine.
pub(super) fn canonical(url: &str) -> Result<Url> {
    let wrong = || Error::invalid("the URL of the server must begin with `https://` or `http://`");
    let mut url = Url::parse(url).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(wrong());
    }
    url.set_fragment(None);
    check_credentials(&Uri::parse(url.as_str())?)?;
    Ok(url)
}

/// The file with the token for a server.
pub(super) struct TokenFile {
    path: PathBuf,
    url: String,
}

impl TokenFile {
    fn write(&self, credentials: StoredCredentials) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        private_folder().create(folder)?;
        // On Unix, a temporary file has mode 0600 when it is created. It replaces the old token file atomically.
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        let entry = TokenEntry { url: self.url.clone(), credentials };
        file.write_all(&serde_json::to_vec(&entry)?)?;
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        Ok(())
    }

    fn lock_path(&self) -> PathBuf {
        self.path.with_extension("lock")
    }

    /// Takes a file lock; waits while another process refreshes or removes the token.
    fn lock(&self) -> io::Result<File> {
        let path = self.lock_path();
        loop {
            let mut options = OpenOptions::new();
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let file = options.write(true).create(true).truncate(false).open(&path)?;
            file.lock()?;
            // The process that held the lock may have removed the file. Then the lock is worthless, because other
            // processes create and lock a new file, so the loop opens and locks that file.
            match std::fs::metadata(&path) {
                Ok(current) if is_same_file(&current, &file.metadata()?) => return Ok(file),
                Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
                _ => {}
            }
        }
    }
}

/// A builder for folders that only the user can open. On Windows, they inherit the permissions of the user's profile.
fn private_folder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

#[cfg(unix)]
fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Always true, because no lock file is removed.
#[cfg(not(unix))]
fn is_same_file(_: &Metadata, _: &Metadata) -> bool {
    true
}

/// Reads a token file; `None` if it does not exist.
fn read(path: &Path) -> io::Result<Option<TokenEntry>> {
    let file = match File::open(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    Ok(Some(serde_json::from_reader(io::BufReader::new(io::Read::take(file, MAX_FILE)))?))
}

fn failed(cause: impl std::fmt::Display) -> AuthError {
    AuthError::CredentialStoreError(cause.to_string())
}

/// `load`, `save` and `clear` block: accessing one small file takes less time than passing the work to another thread.
#[async_trait]
impl CredentialStore for TokenFile {
    async fn load(&self) -> std::result::Result<Option<StoredCredentials>, AuthError> {
        let entry = read(&self.path).map_err(failed)?;
        Ok(entry.filter(|entry| entry.url == self.url).map(|entry| entry.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> std::result::Result<(), AuthError> {
        self.write(credentials).map_err(failed)
    }

    async fn clear(&self) -> std::result::Result<(), AuthError> {
        match std::fs::remove_file(&self.path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(failed(cause)),
            _ => Ok(()),
        }
    }

    async fn acquire_refresh_guard(&self) -> std::result::Result<Option<CredentialRefreshGuard>, AuthError> {
        let this = Self { path: self.path.clone(), url: self.url.clone() };
        let locked = tokio::task::spawn_blocking(move || this.lock()).await.map_err(failed)?;
        Ok(Some(CredentialRefreshGuard::new(locked.map_err(failed)?)))
    }
}

#[cfg(test)]
mod tests {
    use rmcp::transport::auth::{CredentialStore as _, StoredCredentials};

    use super::TokenStore;

    fn credentials(client: &str) -> StoredCredentials {
        StoredCredentials::new(client.to_owned(), None, Vec::new(), Some(1))
    }

    #[tokio::test]
    async fn a_token_belongs_to_one_url_and_to_one_user() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::new(folder.path().join("a/tokens"));
        assert_eq!(store.servers().unwrap(), Vec::<String>::new());
        let file = store.file("https://One.example/mcp#here").unwrap();
        assert!(file.load().await.unwrap().is_none());
        file.save(credentials("first")).await.unwrap();
        file.save(credentials("second")).await.unwrap();
        let same = store.file("https://one.example:443/mcp").unwrap();
        assert_eq!(same.load().await.unwrap().unwrap().client_id, "second");
        for other in ["https://one.example/other", "http://localhost/mcp", "https://two.example/mcp"] {
            assert!(store.file(other).unwrap().load().await.unwrap().is_none(), "{other}");
            assert!(!store.has_token(other), "{other}");
        }
        assert!(store.has_token("https://one.example/mcp"));
        assert_eq!(store.servers().unwrap(), ["https://one.example/mcp"]);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&file.path), mode(file.path.parent().unwrap())), (0o600, 0o700));
        }
        drop(file.acquire_refresh_guard().await.unwrap());
        assert!(store.remove("https://one.example/mcp").unwrap());
        assert!(!store.remove("https://one.example/mcp").unwrap());
        let left = std::fs::read_dir(&store.folder).unwrap().count();
        assert_eq!(left, usize::from(cfg!(windows)), "on Windows, the lock file remains");
        for wrong in ["ftp://one.example/", "http://one.example/mcp", "one.example"] {
            assert!(store.file(wrong).is_err(), "{wrong}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_lock_is_that_of_the_current_file_although_it_was_removed_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::new(folder.path());
        let url = "https://one.example/mcp";
        let held = store.file(url).unwrap().lock().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| store.file(url).unwrap().lock().unwrap());
            // As `remove` does while it holds the lock, whether the other thread has opened the file before or not.
            std::fs::remove_file(store.file(url).unwrap().lock_path()).unwrap();
            drop(held);
            let taken = waiting.join().unwrap().metadata().unwrap();
            let current = std::fs::metadata(store.file(url).unwrap().lock_path()).unwrap();
            assert!(super::is_same_file(&taken, &current));
        });
    }

    #[tokio::test]
    async fn a_damaged_file_is_an_error_and_not_a_missing_token() {
        let folder = tempfile::tempdir().unwrap();
        let store = TokenStore::new(folder.path());
        let file = store.file("https://one.example/mcp").unwrap();
        std::fs::write(&file.path, "{").unwrap();
        assert!(file.load().await.is_err());
        assert!(store.servers().is_err());
    }
}
