//! Resources from functions: attributes, the builder, and conversion of return values.

mod builder;
mod cache;
mod contract;
mod identity;
mod lists;
mod macros;
mod prompts;
mod transcript;

use libris::{ContentBody, Context, Error, Result, Source, Uri};

fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

/// The text or bytes at a URI, with the media type.
async fn read(source: &dyn Source, at: &str) -> Result<(String, String)> {
    let contents = source.read(&uri(at), &Context::default()).await?;
    let [part] = &*contents.parts else { panic!("{contents:?}") };
    assert_eq!(part.uri, uri(at));
    let data = match &part.body {
        ContentBody::Text(text) => text.clone(),
        ContentBody::Bytes(bytes) => format!("{bytes:?}"),
    };
    Ok((data, part.mime.clone().unwrap_or_default()))
}

async fn text(source: &dyn Source, at: &str) -> String {
    read(source, at).await.unwrap().0
}

/// The message of a failed read.
async fn refused(source: &dyn Source, at: &str) -> String {
    match read(source, at).await.unwrap_err() {
        Error::NotFound(_) => "not found".into(),
        Error::Denied(_) => "denied".into(),
        error => error.to_string(),
    }
}

async fn listed(source: &dyn Source) -> Vec<String> {
    let page = source.list(None, 1000, &Context::default()).await.unwrap();
    assert!(!page.more);
    page.resources.into_iter().map(|resource| resource.uri.to_string()).collect()
}
