//! Integration tests of the Notion source, against a fake API server.

mod contract;
mod faults;
mod read;
mod server;
mod transcript;
mod watch;

use std::time::Duration;

use libris_core::{ContentBody, Contents, Context, Result, Source as _, Uri};
use libris_sources::{Notion, notion};

use server::{Server, TOKEN};

struct Bench {
    server: Server,
    notion: Notion,
}

impl Bench {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(set: impl FnOnce(&mut notion::Config)) -> Self {
        let server = Server::start().await;
        let mut config = notion::Config { url: server.url.clone(), ..notion::Config::default() };
        config.poll = Duration::from_millis(50);
        config.retry_timeout = Duration::from_secs(20);
        set(&mut config);
        let notion = Notion::with_token(config, TOKEN).unwrap();
        Self { server, notion }
    }

    async fn read(&self, uri: &str) -> Result<Contents> {
        self.notion.read(&Uri::parse(uri).unwrap(), &Context::default()).await
    }

    async fn text(&self, uri: &str) -> String {
        match self.read(uri).await.unwrap_or_else(|error| panic!("{uri}: {error:?}")).parts.remove(0).body {
            ContentBody::Text(text) => text,
            ContentBody::Bytes(_) => panic!("{uri} is not text"),
        }
    }
}
