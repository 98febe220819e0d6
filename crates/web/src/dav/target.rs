//! What the path of a request stands for.

use libris_wire::{Call, Failure, PrefixEntry};

use super::content::FileContent;
use super::offered::OfferedTemplates;
use super::{extension, names};

/// A file or a folder of the share.
#[derive(Debug)]
pub(super) enum ShareTarget {
    Folder {
        /// The prefix of the URIs in it.
        prefix: String,
    },
    File {
        uri: String,
        /// Its metadata, if it is listed.
        entry: Option<PrefixEntry>,
    },
}

impl ShareTarget {
    /// Finds what a path below the share stands for.
    pub(super) async fn resolve(call: &Call, path: &str) -> Result<Self, Failure> {
        let missing = || Failure::not_found(path);
        let names = names::decode_path(path).ok_or_else(missing)?;
        let prefix = names::prefix(&names).ok_or_else(missing)?;
        let view = call.view();
        let files = match path.ends_with('/') || names.len() < 2 {
            true => Vec::new(),
            false => candidates(&names),
        };
        for file in &files {
            match view.describe(call, &file.uri).await? {
                Some(entry) if entry.is_folder => return Ok(Self::Folder { prefix: entry.uri }),
                Some(entry) if file.is_named_by(entry.mime.as_deref()) => {
                    return Ok(Self::File { uri: entry.uri.clone(), entry: Some(entry) });
                }
                _ => {}
            }
        }
        if view.describe(call, &prefix).await?.is_some() {
            return Ok(Self::Folder { prefix });
        }
        let templates = OfferedTemplates::load(call).await?;
        for file in files.iter().filter(|file| templates.may_have_file(&file.folder, &file.uri)) {
            if let Ok(content) = FileContent::load(&call.for_part(), &file.uri).await
                && file.is_named_by(content.mime())
            {
                return Ok(Self::File { uri: file.uri.clone(), entry: None });
            }
        }
        if templates.contain(call, &prefix).await {
            return Ok(Self::Folder { prefix });
        }
        // A resource that no list has is found by reading it. So is one that is requested without the extension that
        // listings add to its name.
        for file in files {
            match FileContent::load(&call.for_part(), &file.uri).await {
                Ok(content) if file.has_extension_of(content.mime()) => {
                    return Ok(Self::File { uri: file.uri, entry: None });
                }
                Ok(_) | Err(Failure::NotFound { .. } | Failure::Invalid { .. }) => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(missing())
    }
}

/// A URI that a path may stand for.
struct FileCandidate<'n> {
    uri: String,
    /// The prefix of its folder.
    folder: String,
    name: &'n str,
    /// The extension of the name, if listings may have added it. Then it must be that of the media type.
    extension: Option<&'n str>,
}

impl FileCandidate<'_> {
    /// Whether a folder lists the resource by this name if it has this media type.
    fn is_named_by(&self, mime: Option<&str>) -> bool {
        match self.extension {
            Some(_) => self.has_extension_of(mime),
            None => extension::with_extension(self.name.to_owned(), &self.uri, mime) == self.name,
        }
    }

    fn has_extension_of(&self, mime: Option<&str>) -> bool {
        match self.extension {
            None => true,
            Some(wanted) => mime.and_then(|mime| extension::of(&self.uri, mime)) == Some(wanted),
        }
    }
}

/// The resources that the names may stand for. A resource to whose name listings add the extension comes before one
/// that has the extension in its URI: [`names::FolderNames`] names them in this order.
fn candidates(names: &[String]) -> Vec<FileCandidate<'_>> {
    let Some((last, folders)) = names.split_last() else { return Vec::new() };
    let Some(folder) = names::prefix(folders) else { return Vec::new() };
    let extended = extension::split(last).and_then(|(base, extension)| {
        let uri = names::child(&folder, base)?;
        Some(FileCandidate { uri, folder: folder.clone(), name: last, extension: Some(extension) })
    });
    let plain = names::child(&folder, last);
    let plain = plain.map(|uri| FileCandidate { uri, folder: folder.clone(), name: last, extension: None });
    extended.into_iter().chain(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::candidates;

    #[test]
    fn a_name_with_an_extension_may_stand_for_two_resources() {
        let uris = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            candidates(&names)
                .into_iter()
                .map(|file| format!("{} {:?}", file.uri, file.extension))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            uris(&["sqlite", "shop", "schema.md"]),
            ["sqlite://shop/schema Some(\"md\")", "sqlite://shop/schema.md None"]
        );
        assert_eq!(uris(&["file", "docs", "a b.exe"]), ["file:///docs/a%20b.exe None"]);
        assert_eq!(uris(&["docs", "one"]), ["docs://one None"]);
    }
}
