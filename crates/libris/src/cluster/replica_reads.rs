//! Reads through the cache that replicas share: single-flight across replicas.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use libris_core::{CacheScope, Content, ContentBody, Contents, Error, Freshness, Meta, Result, Uri};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::{CacheAnswer, CacheWindow, ChangeRelay, ReplicaCache};

/// The version of the encoding of contents: replicas share only entries that they can decode.
const ENCODING: u32 = 1;

/// The largest contents that replicas share, in bytes. Redis executes one operation at a time, so larger contents would
/// delay the changes of all replicas.
const MAX_SHARED_BYTES: usize = 1 << 20;

/// How long a replica waits for contents that another one reads, before it reads them itself.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The first and the longest pause between two lookups while another replica reads the contents.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(160);

/// How often a replica renews its lead.
const RENEWAL: Duration = Duration::from_secs(1);

/// The key of the entry that these parts identify. Replicas of different versions do not share entries, because the
/// same configuration may mean different contents to them.
pub(super) fn entry_key(parts: &[&str]) -> Arc<str> {
    // With the lengths, so that different parts never make the same key.
    let parts = parts.iter().map(|part| format!("{} {part}\n", part.len()));
    format!("{} {ENCODING}\n{}", env!("CARGO_PKG_VERSION"), parts.collect::<String>()).into()
}

/// A read whose contents the replicas share.
#[derive(Clone)]
pub(crate) struct ReplicaRead {
    pub(super) relay: Arc<ChangeRelay>,
    /// What the contents depend on, and the rights class of the caller.
    pub(super) key: Arc<str>,
    /// The narrowest scope of contents that are shared.
    pub(super) scope: CacheScope,
    pub(super) subject: Uri,
}

impl ReplicaRead {
    /// Whether other callers may get the contents.
    pub(crate) fn allows(&self, contents: &Contents) -> bool {
        contents.freshness.scope <= self.scope
    }

    /// Whether callers share all contents, whatever the input of the caller who reads them.
    pub(crate) fn allows_all(&self) -> bool {
        self.scope == CacheScope::Private
    }

    /// The time for which replicas may share the contents that a read returned; `None` if they may not. Contents that
    /// may not be shared are recorded, so that the next reads do not use the shared cache.
    fn shared_for(&self, load: &Result<Contents>) -> Option<Duration> {
        let shared_for = match load {
            Ok(contents) => {
                let ttl = contents.freshness.clone().at(Instant::now()).ttl;
                let bytes: usize = contents.parts.iter().map(|part| part.body.len()).sum();
                let is_shared = !ttl.is_zero() && self.allows(contents) && bytes <= MAX_SHARED_BYTES;
                is_shared.then_some(ttl)
            }
            Err(Error::InputRequired(_)) => None,
            // The next read may succeed, so nothing is recorded.
            Err(_) => return None,
        };
        if shared_for.is_none() {
            self.relay.unshared().record(&self.key);
        }
        shared_for
    }

    /// The contents, from the shared cache if it has them. Otherwise one replica calls `load` and stores the contents,
    /// and the others wait for them. If the cache cannot be used, calls `load` at once.
    pub(crate) async fn run(&self, load: impl Future<Output = Result<Contents>>) -> Result<Contents> {
        let (Some(cache), Some(window)) = (self.relay.cache(), self.relay.cache_window(&self.subject)) else {
            return self.load_unshared(load).await;
        };
        let (began, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            match cache.find(&self.key, &window).await {
                CacheAnswer::Found { data, ttl } => {
                    match decode(&data, ttl).filter(|found| self.allows(found)) {
                        Some(contents) => return Ok(contents),
                        // The entry is replaced.
                        None => return self.lead(cache, window, load).await,
                    }
                }
                CacheAnswer::Lead => return self.lead(cache, window, load).await,
                CacheAnswer::Wait if began.elapsed() < MAX_WAIT => {
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                CacheAnswer::Wait | CacheAnswer::Unshared => return self.load_unshared(load).await,
            }
        }
    }

    async fn load_unshared(&self, load: impl Future<Output = Result<Contents>>) -> Result<Contents> {
        let load = load.await;
        self.shared_for(&load);
        load
    }

    /// Loads the contents for all replicas.
    async fn lead(
        &self,
        cache: &dyn ReplicaCache,
        window: CacheWindow,
        load: impl Future<Output = Result<Contents>>,
    ) -> Result<Contents> {
        let mut lead = Lead { read: self, window: Some(window.clone()) };
        let renewals = async {
            loop {
                sleep(RENEWAL).await;
                cache.renew(&self.key, &window).await;
            }
        };
        let load = tokio::select! {
            load = load => load,
            () = renewals => unreachable!("the renewals do not end"),
        };
        let shared_for = self.shared_for(&load);
        let contents = load?;
        if let Some((ttl, data)) = shared_for.zip(encode(&contents)) {
            lead.window = None;
            let Self { relay, key, .. } = self.clone();
            // The caller does not wait for the cache.
            tokio::spawn(async move {
                if let Some(cache) = relay.cache() {
                    cache.store(&key, &window, data, ttl).await;
                }
            });
        }
        Ok(contents)
    }
}

/// A drop guard of the lead of this replica: abandons the lead if it has not ended with an entry, for example because
/// the read failed or was cancelled.
struct Lead<'a> {
    read: &'a ReplicaRead,
    /// `None` if the lead has ended with an entry.
    window: Option<CacheWindow>,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if let Some(window) = self.window.take() {
            let ReplicaRead { relay, key, .. } = self.read.clone();
            tokio::spawn(async move {
                if let Some(cache) = relay.cache() {
                    cache.abandon(&key, &window).await;
                }
            });
        }
    }
}

/// The head of encoded contents. The bodies of the parts follow it.
#[derive(Serialize, Deserialize)]
struct ContentsHead {
    scope: CacheScope,
    parts: Vec<PartHead>,
}

#[derive(Serialize, Deserialize)]
struct PartHead {
    uri: String,
    mime: Option<String>,
    meta: Option<Meta>,
    is_text: bool,
    bytes: usize,
}

/// Encodes contents: the length of the head in 4 bytes, the head as JSON, and the bodies. `None` if they are too large.
fn encode(contents: &Contents) -> Option<Bytes> {
    let parts = contents.parts.iter().map(|part| PartHead {
        uri: part.uri.as_str().to_owned(),
        mime: part.mime.clone(),
        meta: part.meta.clone(),
        is_text: matches!(part.body, ContentBody::Text(_)),
        bytes: part.body.len(),
    });
    let head = ContentsHead { scope: contents.freshness.scope, parts: parts.collect() };
    let head = serde_json::to_vec(&head).ok()?;
    let bytes = 4 + head.len() + contents.parts.iter().map(|part| part.body.len()).sum::<usize>();
    if bytes > MAX_SHARED_BYTES {
        return None;
    }
    let mut data = BytesMut::with_capacity(bytes);
    data.put_u32(head.len() as u32);
    data.put_slice(&head);
    for part in &contents.parts {
        match &part.body {
            ContentBody::Text(text) => data.put_slice(text.as_bytes()),
            ContentBody::Bytes(bytes) => data.put_slice(bytes),
        }
    }
    Some(data.freeze())
}

/// Decodes contents that expire after `ttl`; `None` if they are malformed.
fn decode(data: &Bytes, ttl: Duration) -> Option<Contents> {
    let (length, rest) = data.split_first_chunk::<4>()?;
    let (head, _) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let mut at = 4 + head.len();
    let head: ContentsHead = serde_json::from_slice(head).ok()?;
    let mut part = |head: PartHead| {
        let end = at.checked_add(head.bytes).filter(|end| *end <= data.len())?;
        let body = data.slice(at..end);
        at = end;
        let body = match head.is_text {
            true => ContentBody::Text(String::from_utf8(body.to_vec()).ok()?),
            false => ContentBody::Bytes(body),
        };
        Some(Content { uri: Uri::parse(&head.uri).ok()?, mime: head.mime, body, meta: head.meta })
    };
    let parts = head.parts.into_iter().map(&mut part).collect::<Option<Vec<_>>>()?;
    let freshness = Freshness::unproven().with_ttl(ttl).with_scope(head.scope);
    (at == data.len()).then_some(Contents { parts, freshness })
}

#[cfg(test)]
mod tests {
    use super::{MAX_SHARED_BYTES, decode, encode};
    use bytes::Bytes;
    use libris_core::{CacheScope, Content, Contents, Freshness, Uri};
    use std::time::Duration;

    fn contents(text: &str) -> Contents {
        let uri = Uri::parse("a://1").unwrap();
        let meta = serde_json::from_str(r#"{"next": "a://2"}"#).unwrap();
        let text = Content { meta: Some(meta), ..Content::text(uri.clone(), "text/plain", text) };
        let bytes = Content { mime: None, ..Content::bytes(uri, "", vec![0, 255]) };
        let freshness = Freshness::unproven().with_ttl(Duration::from_secs(9)).with_scope(CacheScope::Public);
        Contents { parts: vec![text, bytes], freshness }
    }

    #[test]
    fn contents_survive_encoding() {
        for text in ["", "é\n\0"] {
            let contents = contents(text);
            assert_eq!(decode(&encode(&contents).unwrap(), Duration::from_secs(9)), Some(contents));
        }
        assert_eq!(encode(&contents(&"x".repeat(MAX_SHARED_BYTES))), None);
    }

    #[test]
    fn malformed_data_is_refused() {
        let data = encode(&contents("text")).unwrap();
        for length in 0..data.len() {
            assert_eq!(decode(&data.slice(..length), Duration::ZERO), None, "{length}");
        }
        let longer = Bytes::from([&data[..], b"x"].concat());
        assert_eq!(decode(&longer, Duration::ZERO), None);
        assert_eq!(decode(&Bytes::from_static(&[255; 8]), Duration::ZERO), None);
    }
}
