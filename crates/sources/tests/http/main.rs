//! APIs as resources, against a small server that behaves well or badly.

mod api;
mod caching;
mod fairness;
mod guards;
mod hostile;
mod injection;
mod openapi;
mod server;
mod watching;

use libris_core::{Body, Context, Error, Result, Source, Uri};
use libris_sources::{Http, http};

use server::Server;

/// A source of this server with these entries.
fn source(server: &Server, entries: &str) -> Http {
    let text = format!(
        "base = \"{}\"\npoll = \"30ms\"\nlimits = {{ allow_private = true, timeout = \"20s\", max_size = 1048576 }}\n{entries}",
        server.url()
    );
    Http::new(config(&text)).unwrap()
}

fn config(text: &str) -> http::Config {
    toml::from_str(text).unwrap()
}

fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

async fn read(source: &impl Source, text: &str) -> Result<String> {
    let contents = source.read(&uri(text), &Context::default()).await?;
    match &contents.parts[0].body {
        Body::Text(text) => Ok(text.clone()),
        Body::Bytes(bytes) => Ok(format!("{bytes:?}")),
    }
}

/// What reading says is wrong.
async fn refusal(source: &impl Source, text: &str) -> String {
    match read(source, text).await.unwrap_err() {
        error @ (Error::NotFound(_) | Error::Denied(_) | Error::Invalid(_) | Error::TooLarge { .. }) => {
            error.to_string()
        }
        Error::Unavailable(why) => {
            assert!(!why.contains("127.0.0.1") && !why.contains("detail"), "{why}");
            format!("unavailable: {why}")
        }
        other => panic!("{other:?}"),
    }
}
