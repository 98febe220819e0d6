//! The error for a member that an archive does not have: it names what is wrong, and similar names.

use libris_core::suggest::did_you_mean;
use libris_core::{Context, Error, Uri};

use super::Documents;
use super::archive_folder::{ArchiveEntries, below};
use super::members::OpenArchive;
use crate::archive::{Member, uri_order};

/// The longest path that is compared, in bytes.
const MAX_PATH: usize = 1_000;

impl Documents {
    /// The error for a member, or a folder of an archive, that does not exist. `archive` is the innermost archive.
    pub(super) async fn no_member(&self, uri: &Uri, archive: &OpenArchive, context: &Context) -> Error {
        // A hint could name members that a caller with restricted rights must not see.
        if !context.sees_everything() || archive.path.len() > MAX_PATH {
            return Error::NotFound(uri.clone());
        }
        let members = self.reader.members(&archive.data, archive.format, context.client()).await;
        let Ok(members) = members else { return Error::NotFound(uri.clone()) };
        let (subject, path) = (uri.clone(), archive.path.clone());
        // On a blocking thread: it compares the name with all names of the folder.
        match tokio::task::spawn_blocking(move || hint(&subject, &path, &members)).await {
            Ok(hint) => Error::missing(uri, hint),
            Err(_) => Error::NotFound(uri.clone()),
        }
    }
}

/// The hint about the first wrong segment of a path in an archive. `uri` ends with the path.
fn hint(uri: &Uri, path: &str, members: &[Member]) -> String {
    let uri = uri.as_str().trim_end_matches('/');
    let path = path.trim_end_matches('/');
    let ends: Vec<usize> = path.match_indices('/').map(|(at, _)| at).chain([path.len()]).collect();
    // The URI of the path up to a segment, by the number of segments after it.
    let own = |after: usize| uri.rsplitn(after + 1, '/').last().unwrap_or_default();
    let mut folder = String::new();
    for (depth, end) in ends.iter().enumerate() {
        let (prefix, after) = (&path[..*end], ends.len() - depth - 1);
        let subfolder = format!("{prefix}/");
        if !below(members, &subfolder).is_empty() {
            folder = subfolder;
        } else if members.binary_search_by(|member| uri_order(&member.path, prefix)).is_ok() {
            return format!("`{}` is a file and not a folder: read it by this URI", own(after));
        } else {
            let entries = ArchiveEntries { members: below(members, &folder), folder: &folder };
            let names = entries.map(|entry| entry.name);
            let wrong = prefix.rsplit('/').next().unwrap_or_default();
            let similar = match did_you_mean(wrong, names) {
                similar if similar.is_empty() => "; read that folder to see its entries".to_owned(),
                similar => similar,
            };
            return format!("there is no `{wrong}` in `{}/`{similar}", own(after + 1));
        }
    }
    format!("`{uri}/` is a folder: read it with the slash at the end")
}
