//! Answers the methods of the Skills extension: `skills/list` and `skills/get`.

use bytes::Bytes;
use libris_core::{Error, Skill, SkillPage, SkillResources, Uri};
use libris_wire::{Answer, Call, Failure, Reply};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::caller_view::{CallerView, unavailable_meta, unknown_cursor};
use crate::cursor::{self, ListKind};
use crate::encode::{self, PageWriter};
use crate::params;
use crate::rights::Operation;
use crate::server::to_failure;

/// The identifier of the extension.
pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/skills";

/// The names of the methods.
pub(crate) const LIST: &str = "skills/list";
pub(crate) const GET: &str = "skills/get";

/// The settings of the extension, as declared to clients.
pub(crate) fn settings() -> Value {
    json!({ "directoryRead": true })
}

#[derive(Deserialize)]
struct SkillListParams {
    #[serde(default)]
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct SkillGetParams {
    uri: String,
}

impl CallerView {
    pub(crate) async fn list_skills(&self, call: &Call, params: &str) -> Answer {
        let params: SkillListParams = params::parse(params)?;
        let answer = self.skill_page(call, params.cursor.as_deref()).await;
        self.audit(call, "skills", None, None, &answer);
        answer
    }

    async fn skill_page(&self, call: &Call, cursor: Option<&str>) -> Answer {
        let view = self.view().snapshot();
        let after = match cursor {
            None => None,
            Some(cursor) => Some(
                cursor::decode(ListKind::Skills, cursor)
                    .and_then(|last| Uri::parse(&last).ok())
                    .ok_or_else(unknown_cursor)?,
            ),
        };
        let page = view.skills(after.as_ref(), self.page_size(), &self.context(call)).await;
        let SkillPage { skills, more, freshness, unavailable } = page.map_err(to_failure)?;
        let mut members = PageWriter::new("skills", &skills, write_skill);
        if let Some(last) = skills.last().filter(|_| more) {
            members = members.text("nextCursor", &cursor::encode(ListKind::Skills, last.uri.as_str()));
        }
        let reply = Reply {
            members: members.finish(),
            freshness: Some(freshness.or_uncached()),
            meta: unavailable_meta(&view, &unavailable),
        };
        Ok(self.scoped(reply))
    }

    pub(crate) async fn read_skill(&self, call: &Call, params: &str) -> Answer {
        let params: SkillGetParams = params::parse(params)?;
        let answer = self.skill_entry(call, &params.uri).await;
        self.audit(call, "skill", Some(Operation::Read), Some(&params.uri), &answer);
        answer
    }

    async fn skill_entry(&self, call: &Call, requested: &str) -> Answer {
        let uri = Uri::parse(requested).map_err(to_failure)?;
        let found = self.view().snapshot().skill(&uri, &self.context(call)).await;
        let (skill, freshness) = found.map_err(|error| match error {
            // Not "resource not found": the URI may be a resource that is not a skill. This error has the same JSON-RPC
            // code in all revisions.
            Error::NotFound(_) | Error::Missing { .. } | Error::Denied(_) => {
                let shown: String = requested.chars().take(params::LONGEST_QUOTE).collect();
                Failure::invalid(format!("no skill is served at `{shown}`; `skills/list` has the URIs"))
            }
            error => to_failure(error),
        })?;
        let mut json = b"\"skill\":".to_vec();
        write_skill(&mut json, &skill);
        let reply = Reply { members: json.into(), freshness: Some(freshness), meta: Bytes::new() };
        Ok(self.scoped(reply))
    }
}

fn write_skill(json: &mut Vec<u8>, skill: &Skill) {
    json.extend_from_slice(b"{\"uri\":");
    encode::write(json, skill.uri.as_str());
    json.extend_from_slice(b",\"frontmatter\":");
    encode::write(json, &skill.frontmatter);
    json.extend_from_slice(b",\"resources\":");
    match &skill.resources {
        SkillResources::Dynamic => json.extend_from_slice(b"\"dynamic\""),
        SkillResources::Files(files) => {
            json.push(b'[');
            for (index, file) in files.iter().enumerate() {
                if index > 0 {
                    json.push(b',');
                }
                json.extend_from_slice(b"{\"uri\":");
                encode::write(json, file.uri.as_str());
                let rest = format!(",\"digest\":\"{}\",\"size\":{}}}", file.digest, file.size);
                json.extend_from_slice(rest.as_bytes());
            }
            json.push(b']');
        }
    }
    json.push(b'}');
}
