//! Answers PROPFIND: the properties of a file, or of a folder and what is in it.
//!
//! The response to a large folder is sent while it is listed, one page after the other.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use libris_wire::http::Body;
use libris_wire::{Budget, Call, Failure, PrefixEntry};
use sha2::{Digest as _, Sha256};

use super::content::FileContent;
use super::folder::{ShareEntry, ShareListing};
use super::properties::{EntryProperties, HEAD, INCOMPLETE, TAIL, Wanted};
use super::target::ShareTarget;
use super::{ROOT, message, names, share_path};
use crate::read;

/// How many files of a response are read to determine a size that the list does not have, and for how long.
const MAX_UNKNOWN: usize = 100;
const UNKNOWN_TIME: Duration = Duration::from_secs(2);

/// How many small texts of a response are read to determine their size as UTF-8, and up to which size. The size in the
/// list is that of the stored file, which differs if the file has another encoding or a byte order mark. Texts whose size
/// is [known](KNOWN_SIZES) do not count.
const MAX_TEXTS: usize = 200;
const SMALL_TEXT: u64 = 64 << 10;

/// The maximum number of texts whose size as UTF-8 is kept.
const MAX_KNOWN: usize = 32_768;

/// The sizes of texts as UTF-8, each by a digest of the URI, the media type, the stored size and the time of modification of
/// the file, so that a file that changed is read again.
static KNOWN_SIZES: LazyLock<Mutex<HashMap<[u8; 32], u64>>> = LazyLock::new(Mutex::default);

/// The number of bytes after which a page of a response ends.
const PAGE_BYTES: usize = 256 << 10;

/// How many pages of folders are listed at once; further requests wait. One client may have eight of them.
static LISTINGS: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::with_share(32, 8));

/// The error of a request for a whole tree.
const NO_TREES: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
                        <D:error xmlns:D=\"DAV:\"><D:propfind-finite-depth/></D:error>\n";

pub(super) async fn answer(call: &Call, request: &Request<Bytes>) -> Result<Response<Body>, Failure> {
    let has_entries = match request.headers().get("depth").map(HeaderValue::as_bytes) {
        Some(b"0") => false,
        Some(b"1") => true,
        // The default is `infinity`.
        _ => {
            let mut response = message(StatusCode::FORBIDDEN, NO_TREES);
            response
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8"));
            return Ok(response);
        }
    };
    let wanted = Wanted::parse(request.body()).map_err(Failure::invalid)?;
    let path = share_path(request);
    let mut href = ROOT.to_owned();
    let mut own_name = String::new();
    for name in names::decode_path(path).ok_or_else(|| Failure::not_found(path))? {
        href.push('/');
        names::push_encoded(&mut href, &name);
        own_name = name;
    }
    let mut out = HEAD.to_owned();
    let mut sizes = Sizes::new(&wanted);
    match ShareTarget::resolve(call, path).await? {
        ShareTarget::File { uri, entry } => {
            let entry = match entry {
                Some(entry) => entry,
                None => unlisted(call, uri).await?,
            };
            let entry = sizes.measured(call, entry).await;
            write(&mut out, &wanted, &href, &own_name, &entry);
        }
        ShareTarget::Folder { prefix } => {
            href.push('/');
            write(&mut out, &wanted, &href, &own_name, &PrefixEntry::folder(&*prefix));
            if has_entries {
                let listing = ShareListing::open(call, prefix).await?;
                let listed = VecDeque::new();
                let response = FolderResponse { call: call.clone(), listing, listed, wanted, href, sizes };
                return response.send(out).await;
            }
        }
    }
    out.push_str(TAIL);
    Ok(multistatus(Body::from(out)))
}

fn multistatus(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::MULTI_STATUS;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml; charset=utf-8"));
    response
}

fn write(out: &mut String, wanted: &Wanted, href: &str, name: &str, entry: &PrefixEntry) {
    let properties = EntryProperties {
        href,
        name,
        is_folder: entry.is_folder,
        mime: entry.mime.as_deref(),
        size: entry.size,
        modified: entry.modified,
    };
    properties.write(out, wanted);
}

/// The metadata of a file that no list has.
async fn unlisted(call: &Call, uri: String) -> Result<PrefixEntry, Failure> {
    let content = FileContent::load(&call.for_part(), &uri).await?;
    let (mime, size) = (content.mime().map(str::to_owned), Some(content.size()));
    Ok(PrefixEntry { uri, is_folder: false, mime, size, modified: None })
}

/// The response about a folder and its entries.
struct FolderResponse {
    call: Call,
    listing: ShareListing,
    /// Entries that are listed and measured, but not written yet.
    listed: VecDeque<ShareEntry>,
    wanted: Wanted,
    /// The address of the folder.
    href: String,
    sizes: Sizes,
}

impl FolderResponse {
    /// Sends the response: at once if the folder has one page, otherwise while the pages are listed. `out` is the beginning.
    async fn send(mut self, mut out: String) -> Result<Response<Body>, Failure> {
        let call = self.call.clone();
        self.write_page(&call, &mut out).await?;
        if self.is_written() {
            return Ok(multistatus(Body::from(out)));
        }
        let first = Some((call, out));
        let pages = stream::unfold((self, first), |(mut response, first)| async move {
            let (call, out) = match first {
                Some(first) => first,
                None if response.is_written() => return None,
                None => {
                    let (call, mut out) = (response.call.for_part(), String::new());
                    // Without the end of the document, a client sees that the folder was not listed to its end.
                    if let Err(failure) = response.write_page(&call, &mut out).await {
                        tracing::warn!(?failure, "a folder was not listed to its end");
                        return None;
                    }
                    (call, out)
                }
            };
            Some(((call, Bytes::from(out)), (response, None)))
        });
        Ok(multistatus(Body::streamed_reserved(pages)))
    }

    /// Whether all entries and the end of the document are written.
    fn is_written(&self) -> bool {
        self.listing.is_last && self.listed.is_empty()
    }

    /// Writes the next page of entries, and the end of the document after the last one. `call` reserves the memory.
    async fn write_page(&mut self, call: &Call, out: &mut String) -> Result<(), Failure> {
        if self.listed.is_empty() {
            self.list().await?;
        }
        read::reserve(call, PAGE_BYTES).await?;
        while out.len() < PAGE_BYTES
            && let Some(ShareEntry { name, entry }) = self.listed.pop_front()
        {
            let mut href = self.href.clone();
            names::push_encoded(&mut href, &name);
            if entry.is_folder {
                href.push('/');
            }
            write(out, &self.wanted, &href, &name, &entry);
        }
        if self.is_written() {
            if self.listing.is_incomplete {
                out.push_str(INCOMPLETE);
            }
            out.push_str(TAIL);
        }
        Ok(())
    }

    /// Lists the next entries, and determines their sizes.
    async fn list(&mut self) -> Result<(), Failure> {
        let unit = LISTINGS.take(self.call.client, 1).await;
        let _unit = unit.ok_or_else(|| Failure::Busy {
            message: "too many folders are being listed; try again later".to_owned(),
        })?;
        for ShareEntry { name, entry } in self.listing.next_page().await? {
            let entry = self.sizes.measured(&self.call, entry).await;
            self.listed.push_back(ShareEntry { name, entry });
        }
        Ok(())
    }
}

/// Reads files to determine their sizes, within the limits of one response.
struct Sizes {
    /// How many more files of unknown size, and how many more texts, may be read.
    unknown: usize,
    texts: usize,
    /// When the first file of unknown size was read.
    began: Option<Instant>,
}

impl Sizes {
    fn new(wanted: &Wanted) -> Self {
        match wanted.has_size() {
            true => Self { unknown: MAX_UNKNOWN, texts: MAX_TEXTS, began: None },
            false => Self { unknown: 0, texts: 0, began: None },
        }
    }

    /// The entry with its size, if that is known or could be determined.
    async fn measured(&mut self, call: &Call, mut entry: PrefixEntry) -> PrefixEntry {
        let mut key = None;
        let budget = match entry.size {
            _ if entry.is_folder => return entry,
            None => {
                let began = *self.began.get_or_insert_with(Instant::now);
                if began.elapsed() > UNKNOWN_TIME {
                    self.unknown = 0;
                }
                &mut self.unknown
            }
            Some(size) if size <= SMALL_TEXT && may_be_text(entry.mime.as_deref()) => {
                key = entry.modified.and_then(|modified| size_key(&entry, size, modified));
                if let Some(known) = key.and_then(|key| known_sizes().get(&key).copied()) {
                    entry.size = Some(known);
                    return entry;
                }
                &mut self.texts
            }
            Some(_) => return entry,
        };
        if *budget == 0 {
            return entry;
        }
        *budget -= 1;
        if let Ok(content) = FileContent::load(&call.for_part(), &entry.uri).await {
            entry.size = Some(content.size());
            if let Some(key) = key {
                let mut known = known_sizes();
                if known.len() >= MAX_KNOWN {
                    known.clear();
                }
                known.insert(key, content.size());
            }
        }
        entry
    }
}

fn known_sizes() -> MutexGuard<'static, HashMap<[u8; 32], u64>> {
    // Poisoning is ignored: each entry is complete.
    KNOWN_SIZES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key of a text in [`KNOWN_SIZES`]; `None` if its time of modification is before 1970.
fn size_key(entry: &PrefixEntry, size: u64, modified: SystemTime) -> Option<[u8; 32]> {
    let modified = modified.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let mut digest = Sha256::new();
    digest.update(size.to_le_bytes());
    digest.update(modified.as_nanos().to_le_bytes());
    digest.update(entry.mime.as_deref().unwrap_or_default());
    digest.update([0]);
    digest.update(&entry.uri);
    Some(digest.finalize().into())
}

/// Whether a file of this type may be text, whose size as UTF-8 may differ from that of the stored file.
fn may_be_text(mime: Option<&str>) -> bool {
    const BINARY: [&str; 4] = ["image/", "audio/", "video/", "font/"];
    !mime.is_some_and(|mime| {
        mime != "image/svg+xml" && BINARY.iter().any(|kind| mime.starts_with(kind))
            || matches!(mime, "application/pdf" | "application/zip" | "application/gzip")
    })
}
