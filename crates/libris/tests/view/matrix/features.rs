//! The introduction, tools and prompts, asked in each way.

use libris::Operation;
use serde_json::{Value, json};

use super::Asking;
use crate::rules::Verdict;
use crate::shelf::{PROMPTS, ROOT};

impl Asking<'_> {
    /// What the server says about itself, with instructions that name folders and numbers of resources.
    pub(super) async fn introduce(&mut self) {
        let (method, params) = match self.way.is_modern() {
            true => ("server/discover", json!({})),
            false => {
                let client = json!({ "name": "test", "version": "1" });
                let params =
                    json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
                ("initialize", params)
            }
        };
        let (status, body) = self.ask(method, params).await;
        assert!(status == 200 && body.contains("\"capabilities\""), "{}", self.context(method, &body));
    }

    /// The tools do not depend on these rules, which name none.
    pub(super) async fn list_tools(&mut self) {
        let (_, body) = self.ask("tools/list", json!({})).await;
        let answer: Value = serde_json::from_str(&body).unwrap();
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{body}"));
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["search_resources", "read_resource", "list_resources", "bundle_resources"]);
    }

    /// Prompts: those whose resource may be seen, and messages without contents that may not be read.
    pub(super) async fn prompts(&mut self) {
        let (_, listed) = self.ask("prompts/list", json!({})).await;
        let fixed = PROMPTS[0].1;
        let is_listed = self.verdict(Operation::Read, fixed) != Verdict::Deny;
        assert_eq!(listed.contains("\"name\":\"fixed\""), is_listed, "{}", self.context(fixed, &listed));
        let (status, body) = self.ask("prompts/get", json!({ "name": "fixed" })).await;
        match self.verdict(Operation::Read, fixed) {
            Verdict::Allow => assert!(body.contains("version Some(0)"), "{}", self.context(fixed, &body)),
            Verdict::Require => assert!(!body.contains("version Some"), "{}", self.context(fixed, &body)),
            Verdict::Deny => {
                let (absent_status, nothing) = self.ask("prompts/get", json!({ "name": "fived" })).await;
                let hidden = (status, body.replace("fixed", "NAME"));
                let context = self.context(fixed, &body);
                assert_eq!(hidden, (absent_status, nothing.replace("fived", "NAME")), "{context}");
            }
        }
        for number in 0..6 {
            let name = format!("f{number}");
            self.prompt("in-d1", "name", &name, &format!("{ROOT}d1/{name}")).await;
        }
        for lines in ["1-1", "2-3"] {
            self.prompt("of-lines", "lines", lines, &format!("{ROOT}p1")).await;
        }
    }

    /// Gets a prompt that embeds the resource at `uri` if its argument has this value.
    pub(super) async fn prompt(&mut self, prompt: &str, argument: &str, value: &str, uri: &str) {
        let params = json!({ "name": prompt, "arguments": { argument: value } });
        let (_, body) = self.ask("prompts/get", params).await;
        let context = self.context(&format!("{prompt} {value}"), &body);
        match self.verdict(Operation::Read, uri) {
            Verdict::Allow => assert!(body.contains("\"messages\""), "{context}"),
            Verdict::Require | Verdict::Deny => {
                assert!(!body.contains("\"messages\"") && !body.contains("version Some"), "{context}");
            }
        }
    }

    /// Searches for a file by the name that is in its text: it is found if it may be searched and read. A search for a
    /// hidden one is answered as if it were absent.
    pub(super) async fn search(&mut self, uri: &str) {
        let word = uri.rsplit('/').next().unwrap();
        let params = json!({ "name": "search_resources", "arguments": { "query": word } });
        let (_, body) = self.ask("tools/call", params).await;
        let is_visible = self.may_read(uri) && self.verdict(Operation::Search, uri) == Verdict::Allow;
        let is_found = body.contains(&format!("\"uri\":\"{uri}\""));
        assert_eq!(is_found, is_visible && cfg!(feature = "search"), "{}", self.context(uri, &body));
    }

    /// Bundles passages about a file by the name that is in its text: they are of resources that may be searched and read.
    pub(super) async fn bundle(&mut self, uri: &str) {
        let word = uri.rsplit('/').next().unwrap();
        let params = json!({ "name": "bundle_resources", "arguments": { "query": word } });
        let (_, body) = self.ask("tools/call", params).await;
        let context = self.context(uri, &body);
        let answer: Value = serde_json::from_str(&body).unwrap();
        let passages = answer["result"]["structuredContent"]["passages"].as_array().cloned();
        let quoted: Vec<_> = passages.unwrap_or_default();
        let quoted: Vec<_> = quoted.iter().map(|passage| passage["uri"].as_str().unwrap()).collect();
        let is_visible =
            |uri: &str| self.may_read(uri) && self.verdict(Operation::Search, uri) == Verdict::Allow;
        assert!(quoted.iter().all(|quoted| is_visible(quoted)), "{context}");
        assert_eq!(quoted.contains(&uri), is_visible(uri) && cfg!(feature = "search"), "{context}");
    }
}
