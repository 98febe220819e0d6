//! Access rules over HTTP: the challenge names all scopes that a request needs, and rules decide who may read metrics.

use std::sync::Arc;

use axum::http::Method;
use libris::rules::{Effect, Operations, Rule, RuleSet, RulesPolicy, UriPattern, Who};
use libris::{Operation, Policy};
use serde_json::json;

use crate::issuer::{SigningKey, TestIssuer};
use crate::served::{Answer, PATHS, Path, Sent, Served, legacy, trusting};
use crate::tokens::METADATA;

fn rule(group: Option<&str>, uri: &str, effect: Effect) -> Rule {
    Rule {
        who: Who { groups: group.iter().map(|&group| group.into()).collect(), ..Who::ANYONE },
        uris: vec![UriPattern::parse(uri).unwrap()],
        operations: Operations::from_iter(Operation::ALL),
        effect,
    }
}

/// Adds these rules to the policy that authenticates callers.
fn under(rules: Vec<Rule>) -> impl FnOnce(Arc<dyn Policy>) -> Arc<dyn Policy> {
    move |authenticating| Arc::new(RulesPolicy::new(&RuleSet::new(rules), authenticating))
}

/// Reads `test://who`, in a session of the older protocol and without one.
async fn reads(served: &Served, path: Path, token: &str, session: &str) -> [Answer; 2] {
    let headers: &[_] = &[("mcp-session-id", session)];
    let body = legacy("resources/read", &json!({ "uri": "test://who" }));
    let in_session = Sent { token: Some(token), headers, body, ..Sent::default() };
    [served.ask(path, Sent::read(Some(token), "test://who")).await, served.ask(path, in_session).await]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_requires_scopes_names_those_of_every_token_too() {
    let issuer = TestIssuer::start(vec![SigningKey::ecdsa("one")]).await;
    let mut config = trusting(&issuer);
    config.scopes = vec!["docs:read".into(), "docs:list".into()];
    let required: [Box<str>; 3] = ["docs:who".into(), "docs:read".into(), "docs:all".into()];
    let rules =
        vec![rule(None, "test://who", Effect::Require(required.into())), rule(None, "**", Effect::Allow)];
    let served = Served::start_with(config, under(rules)).await;
    let all = "docs:read docs:list docs:who docs:all";
    let lacking =
        [issuer.token(|_| {}), issuer.token(|it| it["scope"] = "docs:read docs:list docs:who".into())];
    for path in PATHS {
        for token in &lacking {
            let session = served.session(path, token).await;
            for answer in reads(&served, path, token, &session).await {
                let expected = format!(
                    "Bearer error=\"insufficient_scope\", scope=\"{all}\", resource_metadata=\"{METADATA}\", \
                     error_description=\"the token lacks a scope that this request requires\""
                );
                assert_eq!((answer.status, answer.challenge()), (403, &*expected), "{path:?}: {answer:?}");
            }
            assert_eq!(served.ask(path, Sent::read(Some(token), "test://hello")).await.status, 200);
        }
        // A token with exactly the scopes of the challenge is enough.
        let token = issuer.token(|it| it["scope"] = all.into());
        let session = served.session(path, &token).await;
        for answer in reads(&served, path, &token, &session).await {
            assert_eq!(answer.status, 200);
            assert!(answer.body.contains("ada"), "{answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_the_status_gets_no_metrics() {
    let issuer = TestIssuer::start(vec![SigningKey::ecdsa("one")]).await;
    let operators = rule(Some("operators"), "libris://status", Effect::Allow);
    for hiding in [Effect::Deny, Effect::Require(["operate".into()].into())] {
        let rules =
            vec![operators.clone(), rule(None, "libris://status", hiding), rule(None, "**", Effect::Allow)];
        let served = Served::start_with(trusting(&issuer), under(rules)).await;
        let ada = issuer.token(|_| {});
        let operator = issuer.token(|it| it["groups"] = json!(["operators"]));
        let get = |token, path| Sent { method: Method::GET, path, token, ..Sent::default() };
        for path in PATHS {
            let hidden = served.ask(path, get(Some(&ada), "/metrics")).await;
            let absent = served.ask(path, get(Some(&ada), "/metricz")).await;
            let headers = |answer: &Answer| {
                let mut headers = answer.headers.clone();
                headers.remove("date");
                headers
            };
            assert_eq!(hidden.status, 404, "{hidden:?}");
            assert_eq!((absent.status, &absent.body), (hidden.status, &hidden.body), "{path:?}");
            assert_eq!(headers(&absent), headers(&hidden), "{path:?}");
            let shown = served.ask(path, get(Some(&operator), "/metrics")).await;
            assert_eq!(shown.status, 200);
            assert!(shown.body.contains("mcp_requests"), "{shown:?}");
            // Without credentials, both are refused alike.
            for at in ["/metrics", "/metricz"] {
                assert_eq!(served.ask(path, get(None, at)).await.status, 401);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_implies_others() {
    let issuer = TestIssuer::start(vec![SigningKey::ecdsa("one")]).await;
    let mut config = trusting(&issuer);
    let implied = [("admin", ["docs:write", "admin"]), ("docs:write", ["docs:read", "docs:who"])];
    config.implied_scopes =
        implied.map(|(scope, implied)| (scope.into(), implied.map(Into::into).to_vec())).into();
    let required: [Box<str>; 1] = ["docs:who".into()];
    let rules =
        vec![rule(None, "test://who", Effect::Require(required.into())), rule(None, "**", Effect::Allow)];
    let served = Served::start_with(config, under(rules)).await;
    for path in PATHS {
        for (scope, hello, who) in
            [("admin", 200, 200), ("docs:write", 200, 200), ("docs:read", 200, 403), ("docs:who", 403, 403)]
        {
            let token = issuer.token(|it| it["scope"] = scope.into());
            // The second time, the token is cached.
            for _ in 0..2 {
                let status = async |uri| served.ask(path, Sent::read(Some(&token), uri)).await.status;
                assert_eq!(
                    (status("test://hello").await, status("test://who").await),
                    (hello, who),
                    "{scope} over {path:?}"
                );
            }
        }
    }
}
