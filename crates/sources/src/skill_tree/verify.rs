//! Verifies the files of a skill that were read from a server, against the entry of the skill.

use libris_core::{Skill, SkillResources, Uri};

use super::{SKILL_FILE, digest, front_matter};

/// Checks the entry of a skill, before its files are read: its front matter, the total size of its files, and their
/// URIs. An error says why the skill cannot be loaded.
pub fn check_entry(skill: &Skill) -> Result<(), String> {
    let folder = folder(&skill.uri).ok_or_else(|| format!("its URI does not end with `/{SKILL_FILE}`"))?;
    let name = folder.rsplit('/').next().unwrap_or_default();
    front_matter::check(&skill.frontmatter, name)?;
    let SkillResources::Files(files) = &skill.resources else { return Ok(()) };
    let size = files.iter().fold(0, |size: u64, file| size.saturating_add(file.size));
    if size > super::MAX_BYTES {
        return Err(format!("its files have more than {} bytes", super::MAX_BYTES));
    }
    if !files.iter().any(|file| file.uri == skill.uri) {
        return Err(format!("its `{SKILL_FILE}` is not among its files"));
    }
    match files.iter().find(|file| relative_path(skill, &file.uri).is_none()) {
        Some(outside) => Err(format!("the file `{}` is not below its folder", outside.uri)),
        None => Ok(()),
    }
}

/// Compares the bytes at a URI with the entry of the skill: their number, their digest, and for its `SKILL.md` the
/// front matter. The entry of a dynamic skill has only the front matter. An error says what differs; then the bytes
/// must not be used.
pub fn verify(skill: &Skill, uri: &Uri, bytes: &[u8]) -> Result<(), String> {
    if let SkillResources::Files(files) = &skill.resources {
        let Some(file) = files.iter().find(|file| file.uri == *uri) else {
            return Err(format!("`{uri}` is not among its files"));
        };
        if bytes.len() as u64 != file.size {
            return Err(format!("`{uri}` has {} bytes instead of {}", bytes.len(), file.size));
        }
        if digest::of(bytes) != file.digest {
            return Err(format!("`{uri}` has another digest than its entry"));
        }
    }
    if *uri == skill.uri {
        let read = front_matter::parse(bytes)?;
        if read != skill.frontmatter {
            return Err(format!("the front matter of `{uri}` differs from its entry"));
        }
    }
    Ok(())
}

/// The path of a file below the folder of the skill, as decoded segments. `None` if the file is not below that
/// folder, or if a segment cannot be a file name.
pub fn relative_path(skill: &Skill, uri: &Uri) -> Option<Vec<String>> {
    let rest = uri.as_str().strip_prefix(folder(&skill.uri)?)?.strip_prefix('/')?;
    let segment = |segment: &str| {
        let name = percent_encoding::percent_decode_str(segment).decode_utf8().ok()?.into_owned();
        let is_name = !matches!(&*name, "" | "." | "..")
            && !name.contains(['/', '\\', ':', '?', '#'])
            && !name.contains(char::is_control);
        is_name.then_some(name)
    };
    rest.split('/').map(segment).collect()
}

/// The URI of the folder of a skill, without the slash.
fn folder(uri: &Uri) -> Option<&str> {
    uri.as_str().strip_suffix(SKILL_FILE)?.strip_suffix('/')
}

#[cfg(test)]
mod tests {
    use libris_core::{Skill, SkillFile, SkillResources, Uri};
    use serde_json::json;

    use super::{check_entry, relative_path, verify};
    use crate::skill_tree::digest;

    const TEXT: &[u8] = b"---\nname: pdf\ndescription: Forms\n---\nBody.\n";

    fn uri(text: &str) -> Uri {
        Uri::parse(text).unwrap()
    }

    fn skill(files: &[(&str, &[u8])]) -> Skill {
        let file = |(name, bytes): &(&str, &[u8])| SkillFile {
            uri: uri(&format!("skill://a/pdf/{name}")),
            digest: digest::of(bytes),
            size: bytes.len() as u64,
        };
        let frontmatter = json!({ "name": "pdf", "description": "Forms" });
        Skill {
            uri: uri("skill://a/pdf/SKILL.md"),
            frontmatter: frontmatter.as_object().unwrap().clone(),
            resources: SkillResources::Files(files.iter().map(file).collect()),
        }
    }

    #[test]
    fn what_differs_from_the_entry_is_refused() {
        let skill = skill(&[("SKILL.md", TEXT), ("a.txt", b"abc")]);
        assert_eq!(check_entry(&skill), Ok(()));
        assert_eq!(verify(&skill, &skill.uri, TEXT), Ok(()));
        let file = uri("skill://a/pdf/a.txt");
        assert_eq!(verify(&skill, &file, b"abc"), Ok(()));
        assert!(verify(&skill, &file, b"abd").unwrap_err().contains("another digest"));
        assert!(verify(&skill, &file, b"abcd").unwrap_err().contains("4 bytes instead of 3"));
        let other = uri("skill://a/pdf/b.txt");
        assert!(verify(&skill, &other, b"abc").unwrap_err().contains("not among its files"));
    }

    #[test]
    fn the_front_matter_is_compared() {
        let mut lying = skill(&[("SKILL.md", TEXT)]);
        lying.frontmatter.insert("description".to_owned(), json!("Harmless"));
        assert!(verify(&lying, &lying.uri, TEXT).unwrap_err().contains("front matter"));
        lying.resources = SkillResources::Dynamic;
        assert!(verify(&lying, &lying.uri, TEXT).unwrap_err().contains("front matter"));
    }

    #[test]
    fn an_entry_keeps_the_rules() {
        assert!(check_entry(&skill(&[("a.txt", b"")])).unwrap_err().contains("not among its files"));
        let mut named = skill(&[("SKILL.md", TEXT)]);
        named.frontmatter.insert("name".to_owned(), json!("../pdf"));
        assert!(check_entry(&named).is_err());
        let mut outside = skill(&[("SKILL.md", TEXT)]);
        let SkillResources::Files(files) = &mut outside.resources else { panic!("it has files") };
        files.push(SkillFile { uri: uri("skill://a/other"), digest: digest::of(b""), size: 0 });
        assert!(check_entry(&outside).unwrap_err().contains("not below its folder"));
        let SkillResources::Files(files) = &mut outside.resources else { panic!("it has files") };
        files.pop();
        files[0].size = u64::MAX;
        assert!(check_entry(&outside).unwrap_err().contains("more than"));
    }

    #[test]
    fn paths_stay_below_the_folder() {
        let skill = skill(&[("SKILL.md", TEXT)]);
        let path = |name: &str| relative_path(&skill, &uri(&format!("skill://a/pdf/{name}")));
        assert_eq!(path("x/y%20z.md"), Some(vec!["x".to_owned(), "y z.md".to_owned()]));
        for name in ["%2e%2e/x", "a%2fb", "a%5cb", "a//b", "c:d", "a%00", "", "x/"] {
            assert_eq!(path(name), None, "{name}");
        }
    }
}
