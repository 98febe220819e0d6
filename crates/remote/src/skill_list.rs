//! The skills of a server, by the Skills extension: `skills/list` and `skills/get`.

use libris_core::{Meta, Sha256Digest, Skill, SkillFile, SkillResources};
use rmcp::model::CacheScope;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::RemoteLimits;
use crate::fault::{RemoteFault, quoted};
use crate::link::UpstreamSession;
use crate::listing::{CacheHints, PageWalk};
use crate::mount::UriMount;

/// The identifier of the extension.
pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/skills";

pub(crate) const LIST: &str = "skills/list";
pub(crate) const GET: &str = "skills/get";

/// The maximum number of files in a skill, by the extension.
const MAX_FILES: usize = 512;

/// The estimated memory of a skill, or of a file of a skill, in bytes, without the URI.
const FILE_OVERHEAD: usize = 96;

/// All skills of a server.
#[derive(Default)]
pub(crate) struct SkillList {
    /// Sorted by URI. The URIs are served URIs, not upstream URIs.
    pub(crate) skills: Vec<Skill>,
    pub(crate) hints: CacheHints,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SkillListResult {
    skills: Vec<Value>,
    next_cursor: Option<String>,
    ttl_ms: Option<u64>,
    cache_scope: Option<CacheScope>,
}

#[derive(Deserialize)]
struct SkillGetResult {
    skill: SkillEntry,
}

/// A skill as the server sends it.
#[derive(Deserialize)]
struct SkillEntry {
    uri: String,
    frontmatter: Meta,
    resources: ListedFiles,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ListedFiles {
    Files(Vec<ListedFile>),
    /// The word `dynamic`: the files are generated, so they have no digests.
    Generated(String),
}

#[derive(Deserialize)]
struct ListedFile {
    uri: String,
    digest: String,
    size: u64,
}

impl SkillList {
    /// Fetches all pages. A malformed skill is left out.
    pub(crate) async fn fetch(
        session: &UpstreamSession,
        mount: &UriMount,
        limits: &RemoteLimits,
    ) -> Result<Self, RemoteFault> {
        let mut walk = PageWalk::new(session, limits, session.supports_skills());
        let mut list = Self::default();
        while let Some(cursor) = walk.next_cursor() {
            let params = cursor.and_then(|params| params.cursor).map(|cursor| json!({ "cursor": cursor }));
            let Some(page) = walk.ask(session.custom(LIST, params)).await? else { break };
            let page: SkillListResult = decoded(LIST, page)?;
            walk.add(page.skills.len(), page.next_cursor, page.ttl_ms, page.cache_scope)?;
            for entry in page.skills {
                let skill = serde_json::from_value::<SkillEntry>(entry).map_err(|cause| cause.to_string());
                match skill.and_then(|entry| skill_of(entry, mount)) {
                    Ok(skill) => {
                        walk.add_bytes(weight(&skill))?;
                        list.skills.push(skill);
                    }
                    Err(cause) => {
                        let cause = quoted(&cause);
                        tracing::warn!(cause, "a skill of an MCP server is malformed and left out");
                    }
                }
            }
        }
        list.skills.sort_by(|one, other| one.uri.cmp(&other.uri));
        list.skills.dedup_by(|one, other| one.uri == other.uri);
        list.hints = walk.hints();
        Ok(list)
    }
}

/// Decodes the result of `skills/get`.
pub(crate) fn requested(result: Value, mount: &UriMount) -> Result<Skill, RemoteFault> {
    let SkillGetResult { skill } = decoded(GET, result)?;
    skill_of(skill, mount).map_err(|cause| RemoteFault::WrongResult { method: GET, cause: quoted(&cause) })
}

fn decoded<T: serde::de::DeserializeOwned>(method: &'static str, result: Value) -> Result<T, RemoteFault> {
    serde_json::from_value(result)
        .map_err(|cause| RemoteFault::WrongResult { method, cause: quoted(&cause.to_string()) })
}

fn skill_of(entry: SkillEntry, mount: &UriMount) -> Result<Skill, String> {
    let outer = |uri: &str| mount.outer(uri).map_err(|cause| cause.to_string());
    let resources = match entry.resources {
        ListedFiles::Generated(word) if word == "dynamic" => SkillResources::Dynamic,
        ListedFiles::Generated(word) => {
            return Err(format!("`resources` is `{word}`, not a list or `dynamic`"));
        }
        ListedFiles::Files(files) if files.len() > MAX_FILES => {
            return Err(format!("it has more than {MAX_FILES} files"));
        }
        ListedFiles::Files(files) => {
            let file = |file: ListedFile| {
                let digest: Sha256Digest = file.digest.parse()?;
                Ok(SkillFile { uri: outer(&file.uri)?, digest, size: file.size })
            };
            SkillResources::Files(files.into_iter().map(file).collect::<Result<_, String>>()?)
        }
    };
    Ok(Skill { uri: outer(&entry.uri)?, frontmatter: entry.frontmatter, resources })
}

/// Estimates the memory of a skill, in bytes. Parsed JSON takes about eight times its text.
fn weight(skill: &Skill) -> usize {
    let files = match &skill.resources {
        SkillResources::Dynamic => 0,
        SkillResources::Files(files) => {
            files.iter().map(|file| file.uri.as_str().len() + FILE_OVERHEAD).sum()
        }
    };
    let frontmatter = serde_json::to_string(&skill.frontmatter).map_or(0, |text| 8 * text.len());
    skill.uri.as_str().len() + FILE_OVERHEAD + frontmatter + files
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{RemoteFault, SkillResources, requested};
    use crate::mount::UriMount;

    fn entry(digest: &str) -> serde_json::Value {
        json!({ "skill": {
            "uri": "skill://pdf/SKILL.md",
            "frontmatter": { "name": "pdf" },
            "resources": [{ "uri": "skill://pdf/SKILL.md", "digest": digest, "size": 3 }],
        }})
    }

    #[test]
    fn a_skill_has_the_uris_of_the_source() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let skill = requested(entry(&digest), &UriMount::prefixed("docs").unwrap()).unwrap();
        assert_eq!(skill.uri.as_str(), "docs+skill://pdf/SKILL.md");
        let SkillResources::Files(files) = &skill.resources else { panic!("it has files") };
        assert_eq!((files[0].uri.as_str(), files[0].size), ("docs+skill://pdf/SKILL.md", 3));
        assert_eq!(files[0].digest.to_string(), digest);
    }

    #[test]
    fn a_malformed_skill_is_refused() {
        let wrong = |value| requested(value, &UriMount::Kept).unwrap_err();
        for digest in ["", "sha256:", "md5:00", &format!("sha256:{}", "0A".repeat(32))] {
            assert!(matches!(wrong(entry(digest)), RemoteFault::WrongResult { .. }), "{digest}");
        }
        let mut generated = entry("");
        generated["skill"]["resources"] = json!("static");
        assert!(wrong(generated.clone()).to_string().contains("not a list or `dynamic`"));
        generated["skill"]["resources"] = json!("dynamic");
        assert_eq!(requested(generated, &UriMount::Kept).unwrap().resources, SkillResources::Dynamic);
    }
}
