//! Only callers that may read `libris://status` see the names of unavailable sources.

use std::sync::Arc;

use libris::{
    Catalog, CompletionRequest, Config, Context, Error, Identity, Operation, Policy, Result, Rights, Rules,
    Server, Source as _, Uri, UriTemplate, ViewSnapshot,
};

use crate::toy::{Behaviour, Toy, catalog, uri};

/// Hides the resource at this URI.
struct Without(&'static str);

impl Rules for Without {
    fn allow(&self, _: Operation, uri: &Uri) -> bool {
        uri.as_str() != self.0
    }
}

/// Two classes of callers, neither of which sees everything: one may read the status, and the others may not.
struct Operators;

impl Policy for Operators {
    fn rights(&self, identity: Option<&Identity>) -> Rights {
        Rights::new(Without(match identity {
            Some(_) => "a:hidden",
            None => "libris://status",
        }))
    }
}

async fn complete(view: &ViewSnapshot<'_>, template: &str) -> Result<()> {
    let template = UriTemplate::parse(template).unwrap();
    let known = std::collections::BTreeMap::new();
    let asked =
        CompletionRequest { template: &template, variable: "number", typed: "", known: &known, limit: 9 };
    view.complete(asked, &Context::default()).await.map(drop)
}

/// The text of the error, which is about a source that is unavailable.
fn unavailable<T>(outcome: Result<T>) -> String {
    match outcome.map(drop) {
        Err(error @ Error::Unavailable(_)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn errors_name_a_source_to_those_who_may_read_the_status() {
    let toys = [Arc::new(Toy::new("a", 1).named("secret").behaving(Behaviour::IsUnavailable))];
    let catalog = Arc::new(catalog(&toys));
    catalog.add_status();
    let server = Server::with_policy(catalog, Config::default(), Arc::new(Operators));
    for (identity, is_named) in [(Some(Identity::new("operator")), true), (None, false)] {
        let view = server.view_for(identity);
        let (view, context) = (view.snapshot(), Context::default());
        let messages = [
            unavailable(view.list(None, 9, &context).await),
            unavailable(view.list(Some(&uri("a:00000")), 9, &context).await),
            unavailable(view.templates(&context).await),
            unavailable(view.read(&uri("a:00000"), &context).await),
            unavailable(complete(&view, "a:{number}").await),
        ];
        for (number, message) in messages.iter().enumerate() {
            assert_eq!(message.contains("`secret`"), is_named, "{number}: {message}");
            let redacted = "a source is unavailable; if this persists, tell the administrator of this server";
            assert_eq!(message != redacted, is_named, "{number}: {message}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_template_may_be_that_of_a_source_that_is_unavailable() {
    let toys = [Toy::new("a", 1), Toy::new("b", 1)].map(Arc::new);
    let catalog: Arc<Catalog> = Arc::new(catalog(&toys));
    let server = Server::new(catalog.clone(), Config::default());
    let view = server.view_for(None);
    assert!(complete(&view.snapshot(), "b:{number}").await.is_ok());
    assert!(matches!(complete(&view.snapshot(), "c:{number}").await, Err(Error::Invalid(_))));
    let toys = [Toy::new("a", 1), Toy::new("b", 1).behaving(Behaviour::IsUnavailable)].map(Arc::new);
    catalog.replace(toys.iter().map(|toy| toy.clone() as _).collect());
    for template in ["b:{number}", "c:{number}"] {
        let message = unavailable(complete(&view.snapshot(), template).await);
        assert!(message.contains("`b`") && message.contains(template), "{message}");
    }
    assert!(complete(&view.snapshot(), "a:{number}").await.is_ok());
    toys[1].behave(Behaviour::Answers);
    crate::toy::recovered(&catalog).await;
    assert!(catalog.templates(&Context::default()).await.unwrap().unavailable.is_empty());
    assert!(matches!(complete(&view.snapshot(), "c:{number}").await, Err(Error::Invalid(_))));
}
