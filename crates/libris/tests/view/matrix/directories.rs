//! Directories, by their method and by the tool, and skills.

use std::collections::BTreeSet;

use libris::Operation;
use serde_json::{Value, json};

use super::{Asking, PAGE};
use crate::rules::Verdict;
use crate::shelf::{SKILLS, Universe};

impl Asking<'_> {
    /// Reads directories: the entries are those that the rules show, and a hidden directory is like an absent one.
    pub(super) async fn directories(&mut self, universe: &Universe) {
        let absent = self.ask("resources/directory/read", json!({ "uri": "shelf:///d9/" })).await;
        for directory in ["shelf:///d0/", "shelf:///d1/", "shelf:///d2/"] {
            let (status, body) = self.ask("resources/directory/read", json!({ "uri": directory })).await;
            let context = self.context(directory, &body);
            if self.verdict(Operation::List, directory) == Verdict::Deny {
                let hidden = (status, body.replace(directory, "URI"));
                assert_eq!(hidden, (absent.0, absent.1.replace("shelf:///d9/", "URI")), "{context}");
                continue;
            }
            let expected: Vec<_> = universe
                .resources
                .iter()
                .map(ToString::to_string)
                .filter(|uri| uri.starts_with(directory) && uri != directory)
                .filter(|uri| self.verdict(Operation::List, uri) == Verdict::Allow)
                .collect();
            let mut pages = vec![serde_json::from_str::<Value>(&body).unwrap()];
            while let Some(cursor) = pages.last().and_then(|page| page["result"]["nextCursor"].as_str()) {
                let params = json!({ "uri": directory, "cursor": cursor });
                let (_, body) = self.ask("resources/directory/read", params).await;
                pages.push(serde_json::from_str(&body).unwrap());
            }
            let uris = |page: &Value| {
                let listed = page["result"]["resources"].as_array().unwrap_or_else(|| panic!("{context}"));
                listed.iter().map(|entry| entry["uri"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
            };
            let pages: Vec<_> = pages.iter().map(uris).collect();
            let full: Vec<_> = match expected.is_empty() {
                true => vec![Vec::new()],
                false => expected.chunks(PAGE).map(<[_]>::to_vec).collect(),
            };
            assert_eq!(pages, full, "{context}");
        }
    }

    /// Lists directories with the tool: the entries are those that the rules show, and a hidden directory without visible
    /// entries is like an absent one.
    pub(super) async fn call_list(&mut self, universe: &Universe) {
        let call = |parent: &str| json!({ "name": "list_resources", "arguments": { "parent": parent } });
        for directory in ["shelf:///d0/", "shelf:///d1/", "shelf:///d2/"] {
            let expected: Vec<_> = universe
                .resources
                .iter()
                .map(ToString::to_string)
                .filter(|uri| uri.starts_with(directory) && uri != directory)
                .filter(|uri| self.verdict(Operation::List, uri) == Verdict::Allow)
                .collect();
            let mut listed: Vec<String> = Vec::new();
            let mut params = call(directory);
            loop {
                let (_, body) = self.ask("tools/call", params.clone()).await;
                let context = self.context(directory, &body);
                let answer: Value = serde_json::from_str(&body).unwrap();
                let result = &answer["result"];
                if result["isError"] == true {
                    assert!(expected.is_empty() && body.contains("There is no resource at"), "{context}");
                    break;
                }
                let entries = result["structuredContent"]["entries"].as_array();
                let entries = entries.unwrap_or_else(|| panic!("{context}"));
                listed.extend(entries.iter().map(|entry| entry["uri"].as_str().unwrap().to_owned()));
                match result["structuredContent"]["nextCursor"].as_str() {
                    Some(cursor) => params["arguments"]["cursor"] = cursor.into(),
                    None => break,
                }
            }
            assert_eq!(listed, expected, "{}", self.context(directory, "list_resources"));
        }
    }

    /// Skills: those whose `SKILL.md` may be listed and read, with the files that may be read.
    pub(super) async fn skills(&mut self, universe: &Universe) {
        let files = |asking: &Self, directory: &str| {
            let below = universe.resources.iter().map(ToString::to_string);
            below
                .filter(|uri| uri.starts_with(directory) && uri != directory && asking.may_read(uri))
                .collect::<BTreeSet<_>>()
        };
        let (_, listed) = self.ask("skills/list", json!({})).await;
        for (skill, directory) in SKILLS {
            let is_listed = self.may_read(skill) && self.verdict(Operation::List, skill) == Verdict::Allow;
            let quoted = format!("\"name\":\"{skill}\"");
            assert_eq!(listed.contains(&quoted), is_listed, "{}", self.context(skill, &listed));
            let (status, body) = self.ask("skills/get", json!({ "uri": skill })).await;
            let context = self.context(skill, &body);
            if !self.may_read(skill) {
                let absent = "shelf:///d0/absent";
                let (absent_status, nothing) = self.ask("skills/get", json!({ "uri": absent })).await;
                let hidden = (status, body.replace(skill, "URI"));
                assert_eq!(hidden, (absent_status, nothing.replace(absent, "URI")), "{context}");
                continue;
            }
            let shown: BTreeSet<_> = universe
                .resources
                .iter()
                .map(ToString::to_string)
                .filter(|uri| uri.starts_with(directory) && uri != directory)
                .filter(|uri| uri == skill || body.contains(&format!("\"{uri}\"")))
                .collect();
            assert_eq!(shown, files(&*self, directory), "{context}");
        }
    }
}
