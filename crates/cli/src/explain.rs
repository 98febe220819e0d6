//! `libris explain`: prints which access rule decides about a resource.

use anyhow::Result;
use clap::Args;
use libris::rules::{Rule, RuleDecision, RuleSet};
use libris::{Catalog, Decision, Identity, Operation, Source as _, Uri};
use serde_json::{Value, json};

use crate::rule_config::describe;
use crate::sources::{OpenedConfig, SourceArguments};
use crate::terminal::{SUCCESS, counted, failure, print, shown, styled, warning};

/// Explain which rule decides what a caller may do with a resource
///
/// The first rule that matches decides. A resource can have other names: a file at any revision of a git repository
/// also has the name with `HEAD`. A rule that denies one of its names denies the resource.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  libris explain file:///handbook/salaries.md             what an anonymous caller may do
  libris explain --as ada --group hr file:///handbook/salaries.md
  libris explain --as ada --scope docs:read --json file:///handbook/salaries.md")]
pub(crate) struct ExplainOptions {
    /// The URI of the resource
    uri: String,
    /// The name of the caller [default: an anonymous caller]
    #[arg(long = "as", value_name = "USER")]
    user: Option<String>,
    /// A group of the caller
    #[arg(long, value_name = "GROUP", requires = "user")]
    group: Vec<String>,
    /// A scope of the caller
    #[arg(long, value_name = "SCOPE", requires = "user")]
    scope: Vec<String>,
    /// The configuration file [default: `libris.toml`]
    #[arg(long, short, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the decision about each operation.
pub(crate) fn run(options: ExplainOptions) -> Result<()> {
    let uri = Uri::parse(&options.uri)?;
    let OpenedConfig { config, sources, errors } = SourceArguments::of_config(options.config).open(&[])?;
    let rules = RuleSet::new(config.rules);
    let catalog = Catalog::new(sources.into_iter().map(|opened| opened.source).collect());
    catalog.add_status();
    let aliases = catalog.aliases(&uri);
    let identity = options.user.map(|name| {
        let groups = options.group.iter().map(String::as_str);
        let scopes = options.scope.iter().map(String::as_str);
        let identity = Identity::new(name).with_groups(groups).with_scopes(scopes);
        match &config.auth {
            Some(auth) => auth.with_implied_scopes(identity),
            None => identity,
        }
    });
    let explained = Explained {
        uri: &uri,
        identity: identity.as_ref(),
        rules: &rules,
        is_served: catalog.covers(&uri).is_some(),
        decisions: Operation::ALL
            .map(|operation| (operation, rules.explain(identity.as_ref(), operation, &uri, &aliases))),
        unavailable: errors.len(),
    };
    let text = if options.json { format!("{:#}\n", explained.json()) } else { explained.text() };
    print(&text).map_err(|cause| anyhow::Error::new(cause).context("could not print"))?;
    Ok(())
}

/// The decisions about a resource.
struct Explained<'a> {
    uri: &'a Uri,
    identity: Option<&'a Identity>,
    rules: &'a RuleSet,
    /// Whether a source covers the URI.
    is_served: bool,
    decisions: [(Operation, RuleDecision); 4],
    /// How many sources could not be opened, so that `decisions` may ignore other names of the resource.
    unavailable: usize,
}

impl Explained<'_> {
    fn text(&self) -> String {
        let mut lines = vec![format!("{} asks for {}", self.who(), self.uri)];
        for (operation, decision) in &self.decisions {
            let (verdict, why) = self.verdict(decision);
            lines.push(format!("  {:<9}  {verdict}: {why}", operation.name()));
        }
        if !self.is_served {
            lines.push(warning("no source serves this URI"));
        }
        if self.unavailable > 0 {
            lines.push(warning(format_args!(
                "{} could not be opened, so other names of the resource may be missing here",
                counted(self.unavailable as u64, "source")
            )));
        }
        lines.join("\n") + "\n"
    }

    fn who(&self) -> String {
        let Some(identity) = self.identity else { return "an anonymous caller".to_owned() };
        let list = |name: &str, texts: &std::collections::BTreeSet<Box<str>>| {
            let texts: Vec<_> = texts.iter().map(|text| shown(text)).collect();
            (!texts.is_empty()).then(|| format!("{name}: {}", texts.join(", ")))
        };
        let more: Vec<_> = [list("groups", identity.groups()), list("scopes", identity.scopes())]
            .into_iter()
            .flatten()
            .collect();
        match more.is_empty() {
            true => shown(identity.name()),
            false => format!("{} ({})", shown(identity.name()), more.join("; ")),
        }
    }

    fn verdict(&self, decision: &RuleDecision) -> (String, String) {
        let verdict = match &decision.decision {
            _ if self.rules.rules().is_empty() => styled(SUCCESS, "allowed"),
            Decision::Allow => styled(SUCCESS, "allowed"),
            Decision::Deny => failure("hidden"),
            Decision::Require(scopes) => {
                failure(format_args!("requires the scope {}", shown(&scopes.join(" "))))
            }
        };
        let alias = decision.alias.as_ref().map(|alias| format!(", as {alias}")).unwrap_or_default();
        let why = match decision.rule {
            _ if self.rules.rules().is_empty() => "there are no rules".to_owned(),
            None => "no rule matches".to_owned(),
            Some(at) => format!("rule {}{alias} {}", at + 1, shown(&describe(self.rule(at)))),
        };
        (verdict, why)
    }

    fn rule(&self, at: usize) -> &Rule {
        &self.rules.rules()[at]
    }

    fn json(&self) -> Value {
        let no_rules = self.rules.rules().is_empty();
        let decisions = self.decisions.iter().map(|(operation, decision)| {
            let (verdict, scopes) = match &decision.decision {
                _ if no_rules => ("allow", None),
                Decision::Allow => ("allow", None),
                Decision::Deny => ("deny", None),
                Decision::Require(scopes) => ("require", Some(scopes)),
            };
            let mut object = json!({
                "operation": operation.name(),
                "decision": verdict,
                "rule": decision.rule.map(|at| at + 1),
                "why": decision.rule.map(|at| describe(self.rule(at))),
            });
            if let Some(scopes) = scopes {
                object["scopes"] = json!(&**scopes);
            }
            if let Some(alias) = &decision.alias {
                object["alias"] = json!(alias);
            }
            object
        });
        json!({
            "uri": self.uri,
            "who": self.identity.map(Identity::name),
            "served": self.is_served,
            "decisions": decisions.collect::<Vec<_>>(),
        })
    }
}

/// Warnings about rules, for `libris check`: rules that can never match, and patterns that match nothing that is served.
/// `served` are URIs, and the literal beginnings of templates.
pub(crate) fn rule_warnings(rules: &RuleSet, served: &[String]) -> Vec<String> {
    let shadowed = rules.shadowed();
    let mut warnings = Vec::new();
    for (at, rule) in rules.rules().iter().enumerate() {
        let number = at + 1;
        if shadowed.contains(&at) {
            warnings.push(format!(
                "rule {number} can never match: earlier rules match first. It {}",
                describe(rule)
            ));
            continue;
        }
        for pattern in &rule.uris {
            if let Some(prefix) = unserved_prefix(pattern.as_str(), served) {
                warnings.push(format!(
                    "rule {number} can never match `{pattern}`: no source serves URIs that begin with `{prefix}`"
                ));
            }
        }
    }
    warnings
}

/// The beginning of a pattern up to its first `*`, if no served URI can begin with it.
fn unserved_prefix<'p>(pattern: &'p str, served: &[String]) -> Option<&'p str> {
    let wild = pattern.find('*').unwrap_or(pattern.len());
    let prefix = pattern[..wild].trim_end_matches('/');
    let is_served = served.iter().any(|served| {
        let served = served.trim_end_matches('/');
        served.starts_with(prefix) || prefix.starts_with(served)
    });
    (!is_served).then_some(prefix)
}
