//! Answers PROPFIND: the properties of a file, or of a folder and what is in it.
//!
//! The response to a large folder is sent while it is listed, one page after the other.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use libris_wire::http::Body;
use libris_wire::{Call, Failure, PrefixEntry};

use super::content::FileContent;
use super::folder::{ShareEntry, ShareListing};
use super::properties::{EntryProperties, HEAD, INCOMPLETE, TAIL, Wanted};
use super::target::ShareTarget;
use super::{ROOT, message, names, share_path};

/// How many files of a response are read to determine a size that the list does not have, and for how long.
const MAX_UNKNOWN: usize = 100;
const UNKNOWN_TIME: Duration = Duration::from_secs(2);

/// How many small texts of a response are read to determine their size as UTF-8, and up to which size. The size in the
/// list is that of the stored file, which differs if the file has another encoding or a byte order mark.
const MAX_TEXTS: usize = 1_000;
const SMALL_TEXT: u64 = 64 << 10;

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
                let response = FolderResponse { call: call.clone(), listing, wanted, href, sizes };
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
    wanted: Wanted,
    /// The address of the folder.
    href: String,
    sizes: Sizes,
}

impl FolderResponse {
    /// Sends the response: at once if the folder has one page, otherwise while the pages are listed. `out` is the beginning.
    async fn send(mut self, mut out: String) -> Result<Response<Body>, Failure> {
        self.write_page(&mut out).await?;
        if !self.call.reserve_loaded(out.len()) {
            return Err(Failure::Busy {
                message: "the memory for contents is used up; try again later".to_owned(),
            });
        }
        if self.listing.is_last {
            return Ok(multistatus(Body::from(out)));
        }
        let pages = stream::unfold(Some((self, out)), |state| async move {
            let (mut response, out) = state?;
            if response.listing.is_last {
                return Some((Bytes::from(out), None));
            }
            let mut next = String::new();
            // Without the end of the document, a client sees that the folder was not listed to its end.
            let state = match response.write_page(&mut next).await {
                Ok(()) => Some((response, next)),
                Err(failure) => {
                    tracing::warn!(?failure, "a folder was not listed to its end");
                    None
                }
            };
            Some((Bytes::from(out), state))
        });
        Ok(multistatus(Body::streamed(pages)))
    }

    /// Writes the next page of entries, and the end of the document after the last one.
    async fn write_page(&mut self, out: &mut String) -> Result<(), Failure> {
        for ShareEntry { name, entry } in self.listing.next_page().await? {
            let entry = self.sizes.measured(&self.call, entry).await;
            let mut href = self.href.clone();
            names::push_encoded(&mut href, &name);
            if entry.is_folder {
                href.push('/');
            }
            write(out, &self.wanted, &href, &name, &entry);
        }
        if self.listing.is_last {
            if self.listing.is_incomplete {
                out.push_str(INCOMPLETE);
            }
            out.push_str(TAIL);
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
        let budget = match entry.size {
            _ if entry.is_folder => return entry,
            None => {
                let began = *self.began.get_or_insert_with(Instant::now);
                if began.elapsed() > UNKNOWN_TIME {
                    self.unknown = 0;
                }
                &mut self.unknown
            }
            Some(size) if size <= SMALL_TEXT && may_be_text(entry.mime.as_deref()) => &mut self.texts,
            Some(_) => return entry,
        };
        if *budget == 0 {
            return entry;
        }
        *budget -= 1;
        if let Ok(content) = FileContent::load(&call.for_part(), &entry.uri).await {
            entry.size = Some(content.size());
        }
        entry
    }
}

/// Whether a file of this type may be text, whose size as text is not that of the stored file.
fn may_be_text(mime: Option<&str>) -> bool {
    const BINARY: [&str; 4] = ["image/", "audio/", "video/", "font/"];
    !mime.is_some_and(|mime| {
        mime != "image/svg+xml" && BINARY.iter().any(|kind| mime.starts_with(kind))
            || matches!(mime, "application/pdf" | "application/zip" | "application/gzip")
    })
}
