//! What a client gets from several sources, one of which is unavailable, with all rights and with few.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use libris::catalog::Config;
use libris::uri_template::Specificity;
use libris::{
    Catalog, Contents, Context, FunctionSource, Identity, Operation, Page, Policy, ResourceSpec, Result,
    Rights, Rules, Server, Source, Templates, Uri, View,
};

use crate::toy::{Behaviour, Toy, uri};

#[path = "../../../sources/tests/transcripts/mod.rs"]
mod transcripts;

/// A caller without rights for the salaries and the status.
struct Visitor;

impl Rules for Visitor {
    fn allow(&self, _: Operation, uri: &Uri) -> bool {
        !uri.as_str().contains("salaries") && !uri.as_str().starts_with("libris://status")
    }
}

/// Callers with an identity may do everything, others are visitors.
struct Staff;

impl Policy for Staff {
    fn rights(&self, identity: Option<&Identity>) -> Rights {
        match identity {
            Some(_) => Rights::everything(),
            None => Rights::new(Visitor),
        }
    }
}

/// What one caller gets, as a source.
struct Caller(View);

#[async_trait]
impl Source for Caller {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.0
            .snapshot()
            .covers(Operation::Read, uri)
            .is_ok_and(|covers| covers)
            .then_some(Specificity::EXACT)
    }

    fn name(&self) -> Cow<'_, str> {
        "caller".into()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, context: &Context) -> Result<Page> {
        let view = self.0.snapshot();
        let mut page = view.list(after, limit, context).await?;
        // As the server does for callers who may not read the status.
        if !view.allows(Operation::Read, &uri("libris://status")) {
            page.unavailable.iter_mut().for_each(|unavailable| unavailable.source = "a source".to_owned());
        }
        Ok(page)
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        self.0.snapshot().read(uri, context).await
    }

    async fn templates(&self, context: &Context) -> Result<Templates> {
        self.0.snapshot().templates(context).await
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_gets() {
    let markdown = |uri: &str, title: &str| ResourceSpec::new(uri).title(title).mime("text/markdown");
    let handbook = FunctionSource::new()
        .resource(markdown("docs://handbook/welcome.md", "Welcome"), || "# Welcome\n")
        .resource(markdown("docs://handbook/salaries.md", "Salaries"), || "# Salaries\n");
    let shop = Arc::new(Toy::new("shop", 2).behaving(Behaviour::RejectsPassword));
    let catalog = Arc::new(Catalog::with_config(vec![Arc::new(handbook), shop], Config::default()));
    catalog.add_status();
    let server = Server::with_policy(catalog, libris::Config::default(), Arc::new(Staff));
    for (name, identity) in [("all_rights", Some(Identity::new("ada"))), ("few_rights", None)] {
        let caller = Caller(server.view_for(identity));
        let mut transcript = transcripts::Transcript::of_catalog(&caller);
        transcript.list().await;
        transcript.templates().await;
        for uri in [
            "docs://handbook/welcome.md",
            "docs://handbook/salaries.md",
            "docs://handbook/salary.md",
            "docs://hanbook/welcome.md",
            "shop:00000",
            "libris://status",
        ] {
            transcript.read(uri).await;
        }
        insta::with_settings!({ filters => [(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "[time]")] }, {
            insta::assert_snapshot!(name, transcript.text());
        });
    }
}
