//! Reads while sources are unavailable.

use std::sync::Arc;
use std::time::Duration;

use libris::{CompletionRequest, Context, Error, Source as _, UriTemplate};
use tokio::time::{Instant, sleep};

use crate::toy::{Behaviour, REJECTED, STARTING, Toy, catalog, list, missing, text, uri};

#[tokio::test(start_paused = true)]
async fn an_error_says_what_to_do() {
    let toys = [Toy::new("a", 1), Toy::new("b", 1)].map(Arc::new);
    let catalog = catalog(&toys);
    catalog.add_status();
    let hint =
        "hint: read `libris://status` for the state of the sources, and try again once they are available";
    let state = "`libris://status` has the state of the sources";
    let (template, known) = (UriTemplate::parse("a:{number}").unwrap(), Default::default());
    let asked =
        CompletionRequest { template: &template, variable: "number", typed: "", known: &known, limit: 9 };
    assert_eq!(catalog.complete(asked, &Context::default()).await.unwrap().values, ["00000"]);
    for (behaviour, why, end) in [
        (Behaviour::Fails, "could not list the toys", hint),
        (Behaviour::IsUnavailable, "the toy shop is closed", hint),
        (Behaviour::Hangs, "it did not answer within 5s", hint),
        // These say themselves what to do.
        (Behaviour::RejectsPassword, REJECTED, state),
        (Behaviour::IsStarting, STARTING, state),
    ] {
        toys[0].behave(behaviour);
        let page = list(&catalog).await.unwrap();
        let since = jiff::Timestamp::try_from(page.unavailable[0].since).unwrap().as_second();
        let since = jiff::Timestamp::from_second(since).unwrap();
        let begun = Instant::now();
        let error = text(&catalog, "a:00000").await.unwrap_err();
        assert!(begun.elapsed() <= Duration::from_secs(6), "{:?}", begun.elapsed());
        assert!(matches!(error, Error::Unavailable(_)));
        let message = format!("`a` is unavailable since {since}: {why}; {end}");
        assert_eq!(error.to_string(), message);
        let error = catalog.children(&uri("a:00000"), None, 9, &Context::default()).await.unwrap_err();
        assert_eq!(error.to_string(), message);
        let error = catalog.complete(asked, &Context::default()).await.unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(text(&catalog, "b:00000").await.unwrap(), "a toy");
        toys[0].behave(Behaviour::Answers);
        // Reads do not depend on whether listing the source fails.
        assert_eq!(text(&catalog, "a:00000").await.unwrap(), "a toy");
        crate::toy::recovered(&catalog).await;
        sleep(Duration::from_secs(100)).await;
    }
    // A missing resource is `NotFound`, whatever the state of the source.
    assert!(matches!(text(&catalog, "a:nowhere").await, Err(Error::NotFound(_))));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_fails_finds_out_whether_the_source_is_available() {
    let toys = [Toy::new("a", 1), Toy::new("b", 1)].map(Arc::new);
    let catalog = catalog(&toys);
    toys[0].behave(Behaviour::IsUnavailable);
    let error = text(&catalog, "a:00000").await.unwrap_err().to_string();
    assert_eq!(error, "the toy shop is closed");
    sleep(Duration::from_millis(10)).await;
    let asked = toys[0].asked();
    assert_eq!(missing(&list(&catalog).await.unwrap().unavailable), [("a", false)]);
    assert_eq!(toys[0].asked(), asked, "nobody has listed, and yet it is known to be unavailable");

    // Errors of available sources are passed on unchanged.
    toys[1].behave(Behaviour::Fails);
    assert_eq!(text(&catalog, "b:00000").await.unwrap_err().to_string(), "could not list the toys");
}

#[tokio::test(start_paused = true)]
async fn reads_that_fail_do_not_cause_a_probe_each() {
    let toys = [Arc::new(Toy::new("a", 1)), Arc::new(Toy::new("b", 1))];
    let catalog = catalog(&toys);
    for _ in 0..100 {
        toys[0].behave(Behaviour::IsUnavailable);
        text(&catalog, "a:00000").await.unwrap_err();
        toys[0].behave(Behaviour::Answers);
        sleep(Duration::from_millis(1)).await;
    }
    // A hundred reads, and one probe of the list and the templates.
    assert_eq!(toys[0].asked(), 102);
}
