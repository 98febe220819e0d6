//! Integration tests of the HTTP source, against a scripted server.

mod api;
mod caching;
mod fairness;
mod guards;
mod hostile;
mod injection;
mod openapi;
mod paging;
mod server;
mod transcript;
mod watching;

use libris_core::{ContentBody, Context, Error, Result, Source, Uri};
use libris_sources::{Http, http};

use server::Server;

/// A source with these configuration entries, for this server.
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
        ContentBody::Text(text) => Ok(text.clone()),
        ContentBody::Bytes(bytes) => Ok(format!("{bytes:?}")),
    }
}

/// The error of a read.
async fn refusal(source: &impl Source, text: &str) -> String {
    match read(source, text).await.unwrap_err() {
        error @ (Error::NotFound(_) | Error::Missing { .. } | Error::Invalid(_) | Error::TooLarge { .. }) => {
            assert!(!error.to_string().contains("detail"), "{error}");
            error.to_string()
        }
        Error::Unavailable(why) => {
            assert!(!why.contains("127.0.0.1") && !why.contains("detail"), "{why}");
            format!("unavailable: {why}")
        }
        other => panic!("{other:?}"),
    }
}
