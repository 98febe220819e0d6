//! The URI of an archive member: the URI of the archive, a slash, and the path in the archive.

use libris_core::Uri;
use memchr::memchr_iter;

use crate::ArchiveFormat;

/// How deep archives may be nested: `a.zip/b.tar/c.zip/d.txt` is allowed, one more archive is not.
pub(super) const MAX_DEPTH: usize = 3;

/// A URI below an archive, split into the archive and the path in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberPath {
    /// The URI of the archive.
    pub(super) archive: Uri,
    pub(super) format: ArchiveFormat,
    /// The percent-decoded path below the archive. Empty for the archive itself as a folder; ends with a slash for a
    /// folder in it.
    pub(super) path: String,
}

impl MemberPath {
    /// Splits a URI at the first segment that has the name of an archive and is followed by a slash; `None` if there is
    /// no such segment. Also `None` if an encoded slash (`%2F`) comes later: no name in an archive contains a slash,
    /// and in `a.zip/b.zip%2Fc`, access rules would not see that `c` is in the archive `b.zip`.
    pub(super) fn of(uri: &Uri) -> Option<Self> {
        let (archive, rest, format) = split(uri.as_str())?;
        if rest.as_bytes().windows(3).any(|escape| escape.eq_ignore_ascii_case(b"%2f")) {
            return None;
        }
        let path = Uri::decode_segment(rest).and_then(|bytes| String::from_utf8(bytes).ok())?;
        Some(Self { archive: Uri::parse(archive).ok()?, format, path })
    }

    /// The URIs of the archives that contain the resource at `uri`, the outermost first.
    pub(super) fn archives(uri: &Uri) -> Vec<Uri> {
        let text = uri.as_str();
        let mut archives = Vec::new();
        let mut start = 0;
        while archives.len() < MAX_DEPTH
            && let Some((archive, ..)) = split(&text[start..])
        {
            archives.extend(Uri::parse(&text[..start + archive.len()]).ok());
            start += archive.len() + 1;
        }
        archives
    }

    /// Splits a path at the first archive in it. Returns the path of that archive, its format, and the path below it.
    pub(super) fn nested(path: &str) -> Option<(&str, ArchiveFormat, &str)> {
        let (archive, rest, format) = split(path)?;
        Some((archive, format, rest))
    }

    /// Whether the path has the form of a folder: it is empty or ends with a slash.
    pub(super) fn is_folder(&self) -> bool {
        self.path.is_empty() || self.path.ends_with('/')
    }

    /// This path in the form of a folder, with a slash at the end. `None` for an archive without that slash:
    /// `a.zip/b.zip` is a file, and only `a.zip/b.zip/` is a folder.
    pub(super) fn as_folder(&self) -> Option<Self> {
        let Self { archive, format, path } = self;
        let path = match self.is_folder() {
            true => path.clone(),
            false if ArchiveFormat::by_name(path).is_some() => return None,
            false => format!("{path}/"),
        };
        Some(Self { archive: archive.clone(), format: *format, path })
    }
}

/// A quick check that rules out most URIs that do not concern this layer. True if the URI has a query, or a segment
/// before a slash ends with the last letter of an archive extension. Every read calls this several times, so it is one
/// loop without branches, which the compiler vectorises.
pub(super) fn may_be_own(uri: &Uri) -> bool {
    // The last letters of all archive extensions, in either case.
    let ends_archive = |byte: u8| matches!(byte | 0x20, b'p' | b'r' | b'z');
    let bytes = uri.as_str().as_bytes();
    let pairs = bytes.iter().zip(bytes.iter().skip(1));
    pairs.fold(false, |own, (&before, &byte)| own | (byte == b'?') | (byte == b'/') & ends_archive(before))
}

/// Whether a URI is below a segment with the name of an archive. The archive need not exist.
pub(super) fn is_member(uri: &Uri) -> bool {
    split(uri.as_str()).is_some()
}

/// Splits at the first segment that has the name of an archive and is followed by a slash. Returns the text up to the
/// end of the archive's name, the text after the slash without query and fragment, and the format.
fn split(text: &str) -> Option<(&str, &str, ArchiveFormat)> {
    let path = &text[..text.find(['?', '#']).unwrap_or(text.len())];
    let mut start = 0;
    memchr_iter(b'/', path.as_bytes()).find_map(|slash| {
        let segment = &path[start..slash];
        start = slash + 1;
        ArchiveFormat::by_name(segment).map(|format| (&path[..slash], &path[slash + 1..], format))
    })
}

#[cfg(test)]
mod tests {
    use super::{MemberPath, is_member, may_be_own};
    use libris_core::Uri;

    #[test]
    fn the_first_archive_is_the_subject() {
        let member = |text: &str| MemberPath::of(&Uri::parse(text).unwrap());
        let found = member("file:///docs/a.zip/b%20c/d.tar.gz/e.txt").unwrap();
        assert_eq!((found.archive.as_str(), &*found.path), ("file:///docs/a.zip", "b c/d.tar.gz/e.txt"));
        let (archive, _, rest) = MemberPath::nested(&found.path).unwrap();
        assert_eq!((archive, rest), ("b c/d.tar.gz", "e.txt"));
        assert_eq!(member("file:///a.zip/").unwrap().path, "");
        assert_eq!(member("file:///a.zip/b%2Fc"), None);
        let archives = |text: &str| MemberPath::archives(&Uri::parse(text).unwrap());
        let nested = archives("file:///docs/a.zip/b%20c/d.tar.gz/e.txt?as=text&x=f.zip/g");
        assert_eq!(
            nested.iter().map(Uri::as_str).collect::<Vec<_>>(),
            ["file:///docs/a.zip", "file:///docs/a.zip/b%20c/d.tar.gz"]
        );
        assert!(archives("file:///docs/a.zip").is_empty());
        for none in [
            "file:///a.zip",
            "file:///a.zip?x=a.zip/b",
            "file:///zip/a",
            "file:///.zip/a",
            "file:///a.zipp/b",
        ] {
            assert_eq!(member(none), None, "{none}");
            assert!(!is_member(&Uri::parse(none).unwrap()));
        }
    }

    #[test]
    fn members_and_queries_are_never_taken_for_other_uris() {
        let own = |text: &str| may_be_own(&Uri::parse(text).unwrap());
        for extension in ["zip", "tar", "tgz", "tar.gz", "TAR.GZ", "Zip"] {
            assert!(own(&format!("file:///docs/a.{extension}/b")), "{extension}");
            assert!(own(&format!("file:///a.{extension}/")), "{extension}");
        }
        assert!(own("file:///docs/a.pdf?as=text") && own("a:b?"));
        assert!(!own("file:///docs/a.zip") && !own("file:///docs/notes/1k.txt") && !own("db://users/1"));
    }
}
