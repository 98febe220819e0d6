//! Contents and links in the messages of prompts, such as those of another server: only of resources that the caller may
//! read.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use libris::uri_template::Specificity;
use libris::{
    Catalog, Config, Content, Contents, Context, Error, Page, Prompt, PromptContent, PromptMessage, Prompts,
    Resource, Result, Server, Source, Uri,
};
use serde_json::json;

use crate::hints::{Reader, Readers, listen};
use crate::people::Who;
use crate::shelf::uri;

/// A source whose prompts contain what it has read itself.
struct Recommendations;

#[async_trait]
impl Source for Recommendations {
    fn covers(&self, _: &Uri) -> Option<Specificity> {
        None
    }

    async fn list(&self, _: Option<&Uri>, _: usize, _: &Context) -> Result<Page> {
        Ok(Page::default())
    }

    async fn read(&self, uri: &Uri, _: &Context) -> Result<Contents> {
        Err(Error::NotFound(uri.clone()))
    }

    async fn prompts(&self, _: &Context) -> Result<Prompts> {
        let names = ["embedded open", "embedded secret", "linked open", "linked secret"];
        Ok(names.map(Prompt::new).to_vec().into())
    }

    async fn prompt(
        &self,
        name: &str,
        _: &BTreeMap<String, String>,
        _: &Context,
    ) -> Result<Option<Vec<PromptMessage>>> {
        let Some((kind, book)) = name.split_once(' ') else { return Ok(None) };
        let book = uri(&format!("books://library/{book}"));
        let content = match kind {
            "embedded" => PromptContent::Embedded(Content::text(book, "text/plain", "Once upon a time")),
            _ => PromptContent::Link(Box::new(Resource::new(book, "a book"))),
        };
        Ok(Some(vec![PromptMessage::user(content)]))
    }
}

#[tokio::test]
async fn messages_contain_no_hidden_resource() {
    let catalog = Arc::new(Catalog::new(vec![Arc::new(Recommendations)]));
    let server = Arc::new(Server::with_policy(catalog, Config::default(), Arc::new(Readers)));
    let (address, _serving) = listen(server).await;
    for (who, sees_secret) in [(Who::A, false), (Who::B, true)] {
        for mut reader in [Reader::legacy(address, who).await, Reader::modern(address, who).await] {
            for (name, kind) in [("embedded open", "resource"), ("linked open", "resource_link")] {
                let answer = reader.ask("prompts/get", name, json!({ "name": name })).await;
                assert_eq!(answer["result"]["messages"][0]["content"]["type"], kind, "{answer}");
            }
            for name in ["embedded secret", "linked secret"] {
                let answer = reader.ask("prompts/get", name, json!({ "name": name })).await;
                assert_eq!(answer["result"].is_object(), sees_secret, "{answer}");
                assert_eq!(answer.to_string().contains("Once"), sees_secret && name.starts_with('e'));
            }
        }
    }
}
