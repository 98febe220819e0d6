//! A rule holds under every name of a resource, and for every response that shows its contents.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use libris::rules::{Effect, Operations, Rule, RuleSet, RulesPolicy, UriPattern, Who};
use libris::{
    Catalog, CompletionRequest, Config, ContentBody, Context, Error, Identity, Operation, Policy, Rights,
    Server, Source, Uri, UriTemplate,
};
use libris_sources::{Files, Git, files, git};

const SECRET: &str = "s3cret";

struct Nobody;

impl Policy for Nobody {
    fn rights(&self, _: Option<&Identity>) -> Rights {
        Rights::nothing()
    }
}

fn server(source: impl Source, rules: &[(&str, Effect)]) -> Server {
    let rule = |(uri, effect): &(&str, Effect)| Rule {
        who: Who::ANYONE,
        uris: vec![UriPattern::parse(uri).unwrap()],
        operations: Operations::ALL,
        effect: effect.clone(),
    };
    let rules = RuleSet::new(rules.iter().map(rule).collect());
    let policy = Arc::new(RulesPolicy::new(&rules, Arc::new(Nobody)));
    Server::with_policy(Arc::new(Catalog::new(vec![Arc::new(source)])), Config::default(), policy)
}

/// All text of a response, or the error.
async fn read(server: &Server, uri: &str) -> Result<String, Error> {
    let view = server.view_for(None);
    let contents = view.snapshot().read(&Uri::parse(uri).unwrap(), &Context::default()).await?;
    let text = contents.parts.iter().map(|part| match &part.body {
        ContentBody::Text(text) => format!("{}\n{text}\n", part.uri),
        _ => part.uri.to_string(),
    });
    Ok(text.collect())
}

fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_name_of_a_commit_leads_past_a_rule() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("repo");
    std::fs::create_dir_all(path.join("secrets")).unwrap();
    run(&path, &["init", "--quiet", "--initial-branch=main"]);
    for version in ["one", "two"] {
        std::fs::write(path.join("secrets/key"), format!("{SECRET} {version}\n")).unwrap();
        std::fs::write(path.join("readme"), format!("public {version}\n")).unwrap();
        run(&path, &["add", "."]);
        run(&path, &["commit", "--quiet", "--message", version]);
    }
    run(&path, &["branch", "feature/x"]);
    run(&path, &["tag", "v1"]);
    let id = run(&path, &["rev-parse", "HEAD"]);
    std::fs::write(path.join("secrets/key"), format!("{SECRET} three\n")).unwrap();
    let open = |rules: &[(&str, Effect)]| {
        let config = git::Config { path: path.clone(), ..git::Config::default() };
        server(Git::open(config).unwrap(), rules)
    };
    let all = ("git://repo/**", Effect::Allow);
    let revisions =
        ["HEAD", "main", "feature%2Fx", "v1", &id, &id[..10], "HEAD~1", "main%5E", "HEAD%40%7B0%7D"];
    for denied in [
        "git://repo/tree/HEAD/secrets/**",
        "git://repo/tree/*/secrets/**",
        "git://repo/tree/HEAD/secrets/key",
    ] {
        let server = open(&[(denied, Effect::Deny), all.clone()]);
        let mut shown = 0;
        for rev in revisions {
            for form in [
                "tree/{}/secrets/key",
                "tree/{}/secrets/key?lines=1-1",
                "tree/{}/secrets/key?bytes=0-3",
                "tree/{}/secrets/%6Bey",
                "tree/{}/secrets%2Fkey",
                "tree/{}/secrets",
                "tree/{}/secrets/",
                "tree/{}/secrets/?format=json",
                "tree/{}/",
                "tree/{}",
                "blob/{}/secrets/key",
                "blame/{}/secrets/key",
                "blame/{}/secrets/key?lines=1-1",
                "log/{}",
                "log/{}?path=secrets/key",
                "commit/{}",
                "commit/{}?format=json",
                "diff/HEAD~1/{}",
                "diff/{}/HEAD",
                "diff/HEAD~1/{}?path=secrets/key",
            ] {
                let uri = format!("git://repo/{}", form.replace("{}", rev));
                if let Ok(text) = read(&server, &uri).await {
                    shown += 1;
                    let text = text.replace(&uri, "");
                    assert!(!text.contains(SECRET), "{denied}: {uri}\n{text}");
                    assert!(!text.contains("secrets/key"), "{denied}: {uri}\n{text}");
                }
            }
            let readme = read(&server, &format!("git://repo/tree/{rev}/readme")).await;
            assert!(rev.contains("%40") || readme.unwrap().contains("public"), "{rev}");
        }
        for uri in ["status", "diff/worktree", "diff/staged", "diff/worktree?path=secrets/key"] {
            if let Ok(text) = read(&server, &format!("git://repo/{uri}")).await {
                assert!(!text.contains(SECRET) && !text.contains("secrets/key"), "{uri}: {text}");
            }
        }
        assert!(shown > 20, "only {shown} responses were checked");
    }
    // It is there for others.
    let open = open(&[all]);
    for uri in ["tree/v1/secrets/key", "commit/HEAD", "blame/main/secrets/key", "diff/worktree"] {
        assert!(read(&open, &format!("git://repo/{uri}")).await.unwrap().contains(SECRET), "{uri}");
    }
}

/// The values of a completion of `path` in a repository with two commits.
async fn completed(server: &Server, template: &str, typed: &str) -> Vec<String> {
    let template = UriTemplate::parse(&format!("git://repo/{template}")).unwrap();
    let known = [("ref", "main"), ("base", "HEAD~1"), ("head", "main")];
    let known = BTreeMap::from(known.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let partial =
        CompletionRequest { template: &template, variable: "path", typed, known: &known, limit: 100 };
    let view = server.view_for(None);
    view.snapshot().complete(partial, &Context::default()).await.unwrap().values
}

#[tokio::test(flavor = "multi_thread")]
async fn completion_of_a_path_names_nothing_that_a_rule_hides() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("repo");
    std::fs::create_dir_all(path.join("hidden")).unwrap();
    std::fs::create_dir_all(path.join("a/deep/below")).unwrap();
    run(&path, &["init", "--quiet", "--initial-branch=main"]);
    for version in ["one", "two"] {
        for name in ["hidden/f.txt", "a/deep/below/g.txt", "a/open.txt", "readme"] {
            std::fs::write(path.join(name), version).unwrap();
        }
        run(&path, &["add", "."]);
        run(&path, &["commit", "--quiet", "--message", version]);
    }
    let of_parameter = [
        "log/{ref}{?path,limit,format}",
        "diff/staged{?path}",
        "diff/worktree{?path}",
        "diff/{base}/{head}{?path}",
    ];
    let of_path =
        ["tree/{ref}/{+path}{?lines,bytes}", "tree/{ref}{/path*}", "blame/{ref}/{+path}{?lines,format}"];
    // Rules that deny, and rules that only allow.
    let denying = [
        ("git://*/tree/*/hidden/**", Effect::Deny),
        ("git://repo/tree/HEAD/a/deep/**", Effect::Deny),
        ("git://repo/**", Effect::Allow),
    ];
    let allowing = [
        ("git://repo/log/**", Effect::Allow),
        ("git://repo/diff/**", Effect::Allow),
        ("git://repo/tree/*/readme", Effect::Allow),
        ("git://repo/tree/*/a", Effect::Allow),
        ("git://repo/tree/*/a/open.txt", Effect::Allow),
    ];
    let all_templates = [&of_parameter[..], &of_path[..]].concat();
    for (rules, templates) in [(&denying[..], &all_templates[..]), (&allowing[..], &of_parameter[..])] {
        let config = git::Config { path: path.clone(), ..git::Config::default() };
        let server = server(Git::open(config).unwrap(), rules);
        for template in templates {
            for (typed, expected) in [
                ("h", &[][..]),
                ("hidden/", &[]),
                ("a/", &["a/open.txt"]),
                ("a/deep/", &[]),
                ("r", &["readme"]),
            ] {
                assert_eq!(completed(&server, template, typed).await, expected, "{template} {typed}");
            }
        }
        let view = server.view_for(None);
        for hidden in [
            "log/main?path=hidden%2Ff.txt",
            "diff/HEAD~1/main?path=hidden",
            "diff/staged?path=a%2Fdeep%2Fbelow%2Fg.txt",
            "diff/worktree?path=a/deep/",
        ] {
            let uri = Uri::parse(&format!("git://repo/{hidden}")).unwrap();
            let answer = view.snapshot().read(&uri, &Context::default()).await;
            assert!(matches!(answer, Err(Error::NotFound(_))), "{hidden}: {answer:?}");
            if rules.len() == denying.len() {
                assert!(!view.snapshot().allows(Operation::Read, &uri), "{hidden}");
            }
        }
    }
    // Without the rules, the names are completed.
    let config = git::Config { path: path.clone(), ..git::Config::default() };
    let open = server(Git::open(config).unwrap(), &[("git://repo/**", Effect::Allow)]);
    for template in of_parameter {
        assert_eq!(completed(&open, template, "hidden/").await, ["hidden/f.txt"], "{template}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_spelling_of_a_file_leads_past_a_rule() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("docs");
    std::fs::create_dir_all(path.join("private/deep")).unwrap();
    std::fs::write(path.join("secret+1.md"), SECRET).unwrap();
    std::fs::write(path.join("private/deep/a.md"), SECRET).unwrap();
    std::fs::write(path.join("public.md"), "public").unwrap();
    let config = files::Config::new(path.clone());
    for folder_rule in ["file:///docs/private/**", "file:///docs/private/", "file:///docs/private"] {
        let rules = [
            ("file:///docs/secret+1.md", Effect::Deny),
            (folder_rule, Effect::Deny),
            ("file:///docs/private/**", Effect::Deny),
            ("file:///docs/**", Effect::Allow),
        ];
        let server = server(Files::open(config.clone()).unwrap(), &rules);
        for uri in [
            "file:///docs/secret+1.md",
            "file:///docs/secret%2B1.md",
            "file:///docs/secret%2b1.md",
            "file:///docs/%73ecret+1.md",
            "file:///docs/secret+1.md?lines=1-1",
            "file:///docs/secret+1.md?bytes=0-2",
            "file:///docs/secret+1.md/",
            "file:///docs/x/../secret+1.md",
            "FILE:///docs/secret+1.md",
            "file://localhost/docs/secret+1.md",
            "file:///docs//secret+1.md",
            "file:///docs/private",
            "file:///docs/private/",
            "file:///docs/private/?format=json",
            "file:///docs/private/deep",
            "file:///docs/private/deep/",
            "file:///docs/private/deep/a.md",
            "file:///docs/private%2Fdeep%2Fa.md",
        ] {
            let answer = read(&server, uri).await;
            assert!(matches!(answer, Err(Error::NotFound(_))), "{uri}: {answer:?}");
        }
        for uri in ["file:///docs/", "file:///docs", "file:///docs/?format=json"] {
            let text = read(&server, uri).await.unwrap();
            assert!(text.contains("public.md"), "{text}");
            assert!(
                !text.contains(SECRET) && !text.contains("private") && !text.contains("secret"),
                "{text}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_requires_a_scope_is_named_and_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("docs");
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("draft.md"), SECRET).unwrap();
    std::fs::write(path.join("public.md"), "public").unwrap();
    let config = files::Config::new(path.clone());
    let rules = [
        ("file:///docs/draft.md", Effect::Require(["drafts".into()].into())),
        ("file:///docs/**", Effect::Allow),
    ];
    let server = server(Files::open(config.clone()).unwrap(), &rules);
    for uri in ["file:///docs/draft.md", "file:///docs/draft.md?lines=1-1"] {
        match read(&server, uri).await {
            Err(Error::ScopeRequired { scopes, .. }) => assert_eq!(&*scopes, [Box::from("drafts")]),
            other => panic!("{uri}: {other:?}"),
        }
    }
    for uri in ["file:///docs/", "file:///docs"] {
        let text = read(&server, uri).await.unwrap();
        assert!(text.contains("draft.md") && text.contains("public\n") && !text.contains(SECRET), "{text}");
    }
    let view = server.view_for(None);
    let page = view.snapshot().list(None, 10, &Context::default()).await.unwrap();
    assert!(page.resources.iter().any(|resource| resource.uri.as_str() == "file:///docs/draft.md"));
    let rest = view.snapshot().read(&Uri::parse("x:unserved").unwrap(), &Context::default()).await;
    assert!(matches!(rest, Err(Error::NotFound(_))));
}
