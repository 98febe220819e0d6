//! Resources from closures, added and removed at runtime.

use futures_util::{FutureExt as _, StreamExt as _};
use libris::{Change, Error, FunctionSource, Json, Request, ResourceSpec, Result, Source};

use crate::{listed, read, refused, text, uri};

fn sum(request: Request) -> Result<Json<i64>> {
    Ok(Json(request.list::<i64>("n")?.iter().sum()))
}

async fn greeting(request: Request) -> Result<String> {
    Ok(format!("Hello {}", request.variable::<String>("name")?))
}

#[tokio::test]
async fn any_kind_of_function_will_do() {
    let word = "captured".to_owned();
    let functions = FunctionSource::new()
        .resource("a://text", || "text")
        .resource(ResourceSpec::new("a://captured").mime("text/markdown"), move || word.clone())
        .resource("a://later", async || Some("later"))
        .resource("a://asked", |request: Request| request.uri().to_string())
        .template("a://sum{?n*}", sum)
        .template("a://greeting/{name}", greeting)
        .template("a://failing/{x}", |_: Request| Err::<String, _>("the cause"));
    assert_eq!(text(&functions, "a://text").await, "text");
    assert_eq!(read(&functions, "a://captured").await.unwrap(), ("captured".into(), "text/markdown".into()));
    assert_eq!(text(&functions, "a://later").await, "later");
    assert_eq!(text(&functions, "a://asked").await, "a://asked");
    assert_eq!(text(&functions, "a://sum?n=1&n=2").await, "3");
    assert_eq!(text(&functions, "a://greeting/Ada").await, "Hello Ada");
    assert_eq!(refused(&functions, "a://failing/1").await, "could not read the resource");
    assert_eq!(listed(&functions).await, ["a://asked", "a://captured", "a://later", "a://text"]);
}

#[tokio::test]
async fn what_comes_and_goes_is_told() {
    let functions = FunctionSource::new().resource("a://one", || "1");
    let handle = functions.handle();
    let mut changes = functions.watch().await.unwrap().unwrap();
    let mut told = async || changes.next().await.unwrap();
    handle.resource("a://two", || "2").unwrap();
    assert_eq!(told().await, Change::Added(uri("a://two")));
    handle.resource("a://two", || "two").unwrap();
    assert_eq!(told().await, Change::Described(uri("a://two")));
    assert_eq!(told().await, Change::Updated(uri("a://two")));
    assert_eq!(text(&functions, "a://two").await, "two");
    handle.updated("a://one").unwrap();
    assert_eq!(told().await, Change::Updated(uri("a://one")));
    handle.template("a://{x}/y", || "xy").unwrap();
    assert_eq!(told().await, Change::Lost);
    assert!(handle.remove("a://two").unwrap());
    assert_eq!(told().await, Change::Removed(uri("a://two")));
    assert!(handle.remove("a://{x}/y").unwrap());
    assert_eq!(told().await, Change::Lost);
    assert_eq!(refused(&functions, "a://x/y").await, "not found");
    assert!(!handle.remove("a://two").unwrap());
    assert!(changes.next().now_or_never().is_none());
}

#[tokio::test]
async fn whoever_falls_behind_is_told_to_look_again() {
    let functions = FunctionSource::new().resource("a://one", || "1");
    let mut changes = functions.watch().await.unwrap().unwrap();
    for _ in 0..10_000 {
        functions.handle().updated("a://one").unwrap();
    }
    assert_eq!(changes.next().await, Some(Change::Lost));
    assert_eq!(changes.next().await, Some(Change::Updated(uri("a://one"))));
}

#[test]
fn mistakes_are_refused_and_change_nothing() {
    let handle = FunctionSource::new().handle();
    let why = |result: Result<()>| result.unwrap_err().to_string();
    assert!(why(handle.resource("no uri", || "x")).contains("no uri"));
    assert_eq!(
        why(handle.resource("a://{x}", || "x")),
        "`a://{x}` has variables; add it as a template, not as a resource"
    );
    let mime = ResourceSpec::new("a://x").mime("text/plain\n");
    assert_eq!(why(handle.resource(mime, || "x")), "a media type must not contain control characters");
    assert_eq!(
        why(handle.template("a://x", || "x")),
        "`a://x` has no variables; add it as a resource, not as a template"
    );
    let priority = ResourceSpec::new("a://x").priority(2.0);
    assert_eq!(why(handle.resource(priority, || "x")), "the priority must be from 0 to 1, not `2`");
    assert_eq!(
        why(handle.complete("a://{x}", "x", |_| vec!["1"])),
        "there is no template `a://{x}`; add it first"
    );
    handle.template("a://{x}", || "x").unwrap();
    assert_eq!(why(handle.complete("a://{x}", "y", |_| vec!["1"])), "`a://{x}` has no variable `y`");
    assert!(matches!(handle.updated("no uri"), Err(Error::Invalid(_))));
}

#[test]
#[should_panic(expected = "no uri")]
fn the_builder_panics() {
    let _ = FunctionSource::new().resource("no uri", || "x");
}
