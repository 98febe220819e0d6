//! A folder of skills in a temporary directory, and short ways to ask for what it serves.

use std::fs;
use std::path::{Path, PathBuf};

use libris_core::{Content, ContentBody, Context, Error, Sha256Digest, Skill, SkillResources, Source, Uri};
use libris_sources::Skills;
use libris_sources::skills::Config;
use tempfile::TempDir;

pub(crate) fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

/// The text of a `SKILL.md`.
pub(crate) fn skill_text(name: &str) -> String {
    format!("---\nname: {name}\ndescription: The skill {name}\n---\n\n# {name}\n")
}

pub(crate) struct SkillShelf {
    dir: TempDir,
    pub(crate) skills: Skills,
}

impl SkillShelf {
    /// A folder with these skills, given by the paths of their folders.
    pub(crate) fn new(paths: &[&str]) -> Self {
        Self::with(paths, |config| config)
    }

    pub(crate) fn with(paths: &[&str], configure: impl FnOnce(Config) -> Config) -> Self {
        let dir = TempDir::new().unwrap();
        for path in paths {
            write_skill(dir.path(), path);
        }
        Self::open(dir, configure)
    }

    pub(crate) fn open(dir: TempDir, configure: impl FnOnce(Config) -> Config) -> Self {
        let skills = Skills::open(configure(Config::new(dir.path()))).unwrap();
        Self { dir, skills }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, data: impl AsRef<[u8]>) {
        write(&self.path(path), data);
    }

    /// The URIs of all listed resources.
    pub(crate) async fn listed(&self) -> Vec<String> {
        let page = self.skills.list(None, usize::MAX, &Context::default()).await.unwrap();
        assert!(!page.more);
        page.resources.iter().map(|resource| resource.uri.to_string()).collect()
    }

    /// The URIs of all listed skills.
    pub(crate) async fn published(&self) -> Vec<String> {
        let page = self.skills.skills(None, usize::MAX, &Context::default()).await.unwrap();
        assert!(!page.more);
        page.skills.iter().map(|skill| skill.uri.to_string()).collect()
    }

    pub(crate) async fn skill(&self, text: &str) -> Result<Skill, Error> {
        self.skills.skill(&uri(text), &Context::default()).await.map(|(skill, _)| skill)
    }

    pub(crate) async fn read(&self, text: &str) -> Result<Content, Error> {
        let contents = self.skills.read(&uri(text), &Context::default()).await?;
        let [content] = contents.parts.try_into().unwrap();
        Ok(content)
    }

    /// The URIs, and the kinds, of what is directly in a directory.
    pub(crate) async fn children(&self, text: &str) -> Result<Vec<(String, String)>, Error> {
        let page = self.skills.children(&uri(text), None, usize::MAX, &Context::default()).await?;
        let child = |resource: libris_core::Resource| (resource.uri.to_string(), resource.mime.unwrap());
        Ok(page.resources.into_iter().map(child).collect())
    }

    /// Checks that each file of a manifest reads as the bytes that its digest and its size describe, and returns the URIs.
    pub(crate) async fn verified(&self, skill: &Skill) -> Vec<String> {
        let mut uris = Vec::new();
        for file in files(skill) {
            let bytes = match self.read(&file.0).await.unwrap().body {
                ContentBody::Text(text) => text.into_bytes(),
                ContentBody::Bytes(bytes) => bytes.to_vec(),
            };
            assert_eq!((bytes.len() as u64, digest(&bytes)), (file.2, file.1), "{}", file.0);
            uris.push(file.0);
        }
        uris
    }
}

/// The URI, digest and size of each file.
pub(crate) fn files(skill: &Skill) -> Vec<(String, String, u64)> {
    let SkillResources::Files(files) = &skill.resources else { panic!("no files: {skill:?}") };
    files.iter().map(|file| (file.uri.to_string(), file.digest.to_string(), file.size)).collect()
}

/// The digest as the program `sha256sum` computes it.
pub(crate) fn digest(bytes: &[u8]) -> String {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let mut program = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    program.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = String::from_utf8(program.wait_with_output().unwrap().stdout).unwrap();
    let digest = format!("sha256:{}", output.split(' ').next().unwrap());
    assert_eq!(digest.len(), Sha256Digest([0; 32]).to_string().len(), "{output}");
    digest
}

pub(crate) fn write_skill(root: &Path, path: &str) {
    let name = path.rsplit('/').next().unwrap();
    write(&root.join(path).join("SKILL.md"), skill_text(name));
}

pub(crate) fn write(path: &Path, data: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, data).unwrap();
}
