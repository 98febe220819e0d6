//! Members of archives as resources: their contents, and folders derived from their paths.

use bytes::Bytes;
use libris_core::{Content, ContentBody, Contents, Context, Error, Freshness, Page, Result, Uri};

use super::Documents;
use super::archive_folder::ArchiveFolder;
use super::member_path::{MAX_DEPTH, MemberPath};
use super::read::{DocumentBytes, FoundContents, extraction_error, renamed};
use crate::{ArchiveFormat, ExtractionError};

/// The innermost archive that contains a member, and the path of the member within this archive.
pub(super) struct OpenArchive {
    pub(super) data: Bytes,
    pub(super) format: ArchiveFormat,
    pub(super) path: String,
    freshness: Freshness,
}

impl Documents {
    /// Reads a member, or lists a folder of an archive.
    pub(super) async fn read_member(
        &self,
        uri: &Uri,
        document: &Uri,
        member: &MemberPath,
        context: &Context,
    ) -> Result<Contents> {
        match self.find_member(document, member, context).await? {
            FoundContents::Other(contents) => Ok(contents),
            FoundContents::Document(DocumentBytes { data, mime, decoded, freshness, .. }) => {
                let body = match decoded {
                    true => ContentBody::Text(String::from_utf8(data.to_vec()).unwrap_or_default()),
                    false => ContentBody::Bytes(data),
                };
                let content = Content { uri: uri.clone(), mime, body, meta: None };
                Ok(Contents::from(content).with_freshness(freshness))
            }
        }
    }

    /// The text of an archive (`as=text`): the list of its members.
    pub(super) async fn list_archive(
        &self,
        uri: &Uri,
        archive: &Uri,
        format: ArchiveFormat,
        context: &Context,
    ) -> Result<Contents> {
        let folder = Uri::parse(&format!("{archive}/"))?;
        let member = MemberPath { archive: archive.clone(), format, path: String::new() };
        match self.find_member(&folder, &member, context).await? {
            FoundContents::Other(contents) => Ok(renamed(contents, &folder, uri)),
            FoundContents::Document(_) => Err(Error::NotFound(uri.clone())),
        }
    }

    /// The contents of a member, or the list of a folder in the archive.
    pub(super) async fn find_member(
        &self,
        document: &Uri,
        member: &MemberPath,
        context: &Context,
    ) -> Result<FoundContents> {
        let archive = self.open_archive(document, member, context).await?;
        if archive.path.is_empty() || archive.path.ends_with('/') {
            let caller = context.clone();
            let text = self.in_folder(document, &archive, context, move |folder| folder.text(&caller)).await;
            let text = match text {
                Err(Error::NotFound(_)) => {
                    return Err(self.no_member(document, &archive, context).await);
                }
                text => text?,
            };
            let content = Content::text(document.clone(), "text/markdown", text);
            return Ok(FoundContents::Other(Contents::from(content).with_freshness(archive.freshness)));
        }
        let contents = self.reader.member(&archive.data, archive.format, &archive.path, context).await;
        let data = match contents {
            Err(ExtractionError::NoMember) => {
                return Err(self.no_member(document, &archive, context).await);
            }
            contents => contents.map_err(|error| member_error(document, error))?,
        };
        let (mime, decoded) = media_type(&archive.path, &data);
        Ok(FoundContents::Document(DocumentBytes {
            data,
            mime,
            decoded,
            meta: None,
            freshness: archive.freshness,
        }))
    }

    /// Lists what is directly in a folder of an archive. The slash at the end of its URI may be omitted.
    pub(super) async fn member_children(
        &self,
        uri: &Uri,
        member: &MemberPath,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<Page> {
        let Some(folder) = member.as_folder() else { return Err(Error::NotDirectory(uri.clone())) };
        let slashed = match uri.as_str().ends_with('/') {
            true => uri.clone(),
            false => Uri::parse(&format!("{uri}/"))?,
        };
        let page = self.folder_children(&slashed, &folder, after, limit, context).await;
        page.map_err(|error| match error {
            // There may be a file of this name, which is no folder.
            Error::NotFound(_) if !member.is_folder() => Error::NotDirectory(uri.clone()),
            error => error,
        })
    }

    /// Lists what is directly in a folder of an archive, whose URI ends with a slash.
    async fn folder_children(
        &self,
        uri: &Uri,
        member: &MemberPath,
        after: Option<&Uri>,
        limit: usize,
        context: &Context,
    ) -> Result<Page> {
        let archive = self.open_archive(uri, member, context).await?;
        let after = after.cloned();
        let page = move |folder: &ArchiveFolder| Ok(folder.page(after.as_ref(), limit));
        let (resources, more) = self.in_folder(uri, &archive, context, page).await?;
        let mut page = Page { resources, more, freshness: archive.freshness, ..Page::default() };
        self.describe(&mut page);
        Ok(page)
    }

    /// Opens the archives on the path of a member, and returns the innermost one.
    async fn open_archive(
        &self,
        document: &Uri,
        member: &MemberPath,
        context: &Context,
    ) -> Result<OpenArchive> {
        // Members of a hidden archive are hidden too.
        if !context.sees(&member.archive) {
            return Err(Error::NotFound(document.clone()));
        }
        // Not with `find`: the outermost archive is not itself a member.
        let found = match self.find_in_source(&member.archive, context).await {
            Ok(FoundContents::Document(found)) => found,
            Ok(FoundContents::Other(_)) => return Err(Error::NotFound(document.clone())),
            Err(error) if error.is_not_found() => return Err(Error::NotFound(document.clone())),
            Err(error) => return Err(error),
        };
        let mut archive = OpenArchive {
            data: found.data,
            format: member.format,
            path: member.path.clone(),
            freshness: found.freshness,
        };
        let mut depth = 1;
        while let Some((path, format, rest)) = MemberPath::nested(&archive.path) {
            depth += 1;
            if depth > MAX_DEPTH {
                return Err(Error::missing(
                    document,
                    format!("archives are opened to a depth of {MAX_DEPTH}"),
                ));
            }
            let nested = self.reader.member(&archive.data, archive.format, path, context).await;
            archive = match nested {
                Ok(data) => OpenArchive { data, format, path: rest.to_owned(), freshness: archive.freshness },
                // It is a folder whose name looks like that of an archive.
                Err(ExtractionError::NoMember) => break,
                Err(error) => return Err(member_error(document, error)),
            };
        }
        Ok(archive)
    }

    /// Runs `work` on a folder of an archive on a blocking thread; `uri` is the URI of the folder.
    async fn in_folder<T: Send + 'static>(
        &self,
        uri: &Uri,
        archive: &OpenArchive,
        context: &Context,
        work: impl FnOnce(&ArchiveFolder) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let members = self.reader.members(&archive.data, archive.format, context.client()).await;
        let members = members.map_err(|error| member_error(uri, error))?;
        let folder = ArchiveFolder { members, uri: uri.clone(), path: archive.path.clone() };
        let run = move || match folder.is_empty() && !folder.path.is_empty() {
            true => Err(Error::NotFound(folder.uri)),
            false => work(&folder),
        };
        let result = tokio::task::spawn_blocking(run).await;
        result.map_err(|cause| Error::failed("list the members of the archive", cause))?
    }
}

/// The media type of a member, and whether to serve it as text (`true`) or as bytes.
fn media_type(path: &str, data: &[u8]) -> (Option<String>, bool) {
    let named = mime_guess::from_path(path).first_raw();
    let is_text = !data.contains(&0) && std::str::from_utf8(data).is_ok();
    let mime = match named {
        Some(named) if !is_text || !named.starts_with("application/octet") => named,
        _ if is_text => "text/plain",
        _ => "application/octet-stream",
    };
    let is_text = is_text && !data.starts_with(b"%PDF-");
    (Some(mime.to_owned()), is_text)
}

/// The error for a member that could not be extracted from its archive.
fn member_error(document: &Uri, error: ExtractionError) -> Error {
    match error {
        ExtractionError::Refused(_) | ExtractionError::Crashed | ExtractionError::TooLarge { .. } => {
            Error::invalid(format!("`{document}` cannot be taken from its archive: {error}"))
        }
        other => extraction_error(document, other),
    }
}
