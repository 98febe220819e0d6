//! The `[[rule]]` tables of the configuration: who may do what with which resources.

use libris::rules::{Effect, Operations, Rule, RuleSet, UriPattern, Who};
use libris::wire::{Caller, Channel};
use libris::{Authenticate, Identity, Operation, Policy, Rights};
use serde::Deserialize;
use serde::de::Error;

/// A rule. The first rule that matches a caller, a URI and an operation decides; if there are rules and none matches,
/// access is denied.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RuleConfig {
    /// URI patterns of the resources. Default: all.
    uri: OneOrMore,
    /// Names of callers; `"*"` is everyone who is authenticated. A rule without `user`, `group` and `scope` applies to
    /// everyone.
    user: OneOrMore,
    /// Groups of callers.
    group: OneOrMore,
    /// Scopes of callers.
    scope: OneOrMore,
    /// The operations: `"list"`, `"read"`, `"subscribe"`, `"search"`. Default: all.
    operation: OneOrMore,
    /// `"allow"` or `"deny"`.
    action: Option<String>,
    /// Instead of an `action`: the scopes that callers must have. The resource is visible to callers without them.
    require: OneOrMore,
}

/// A text, or a list of texts.
#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
    #[default]
    #[serde(skip)]
    None,
}

impl OneOrMore {
    fn texts(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::More(texts) => texts,
            Self::None => &[],
        }
    }

    fn boxed(&self) -> Vec<Box<str>> {
        self.texts().iter().map(|text| text.as_str().into()).collect()
    }

    /// Whether it is an empty list, which would not restrict the rule.
    fn is_empty_list(&self) -> bool {
        matches!(self, Self::More(texts) if texts.is_empty())
    }
}

/// The rules of a configuration; an error names the number of the rule.
pub(crate) fn rules<E: Error>(configs: Vec<RuleConfig>) -> Result<Vec<Rule>, E> {
    if configs.len() > RuleSet::LIMIT {
        return Err(E::custom(format!(
            "there are {} rules; hint: a configuration may have {} at most; combine some with patterns",
            configs.len(),
            RuleSet::LIMIT
        )));
    }
    let rule = |(index, config): (usize, RuleConfig)| {
        config.rule().map_err(|message| E::custom(format!("rule {}: {message}", index + 1)))
    };
    configs.into_iter().enumerate().map(rule).collect()
}

impl RuleConfig {
    fn rule(&self) -> Result<Rule, String> {
        let lists = [
            ("uri", &self.uri),
            ("user", &self.user),
            ("group", &self.group),
            ("scope", &self.scope),
            ("operation", &self.operation),
            ("require", &self.require),
        ];
        if let Some((key, _)) = lists.iter().find(|(_, list)| list.is_empty_list()) {
            return Err(format!("`{key}` is an empty list; hint: name something, or remove the key"));
        }
        let effect = match (self.action.as_deref(), self.require.texts()) {
            (Some("allow"), []) => Effect::Allow,
            (Some("deny"), []) => Effect::Deny,
            (None, [_, ..]) => Effect::Require(self.require.boxed().into()),
            (None, []) => {
                return Err("there is no `action`; hint: set it to \"allow\" or \"deny\"".to_owned());
            }
            (Some(_), [_, ..]) => {
                return Err("it has an `action` and `require`; hint: remove one of them".to_owned());
            }
            (Some(other), []) => {
                return Err(format!(
                    "unknown action `{other}`; hint: use \"allow\" or \"deny\", or `require`"
                ));
            }
        };
        if let Some(scope) = self.require.texts().iter().find(|scope| !is_scope(scope)) {
            return Err(format!(
                "`{scope}` is not a scope; hint: a scope has no spaces, quotes or backslashes"
            ));
        }
        let uris = match self.uri.texts() {
            [] => vec![UriPattern::everything()],
            texts => texts
                .iter()
                .map(|text| UriPattern::parse(text).map_err(|error| error.to_string()))
                .collect::<Result<_, _>>()?,
        };
        let operations = match self.operation.texts() {
            [] => Operations::ALL,
            names => names.iter().map(|name| operation(name)).collect::<Result<_, _>>()?,
        };
        let who = Who { users: self.user.boxed(), groups: self.group.boxed(), scopes: self.scope.boxed() };
        Ok(Rule { who, uris, operations, effect })
    }
}

fn operation(name: &str) -> Result<Operation, String> {
    Operation::ALL.into_iter().find(|operation| operation.name() == name).ok_or_else(|| {
        format!("unknown operation `{name}`; hint: use \"list\", \"read\", \"subscribe\" or \"search\"")
    })
}

/// Whether a text is a scope token (RFC 6749).
fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'!' | b'#'..=b'[' | b']'..=b'~'))
}

/// A rule in one line.
pub(crate) fn describe(rule: &Rule) -> String {
    let quoted =
        |texts: &[Box<str>]| texts.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(", ");
    let Who { users, groups, scopes } = &rule.who;
    let mut who: Vec<_> =
        users
            .iter()
            .map(|user| {
                if **user == *"*" { "everyone who is authenticated".to_owned() } else { format!("`{user}`") }
            })
            .collect();
    if !groups.is_empty() {
        who.push(format!("the group {}", quoted(groups)));
    }
    if !scopes.is_empty() {
        who.push(format!("the scope {}", quoted(scopes)));
    }
    let who = if who.is_empty() { "everyone".to_owned() } else { who.join(" or ") };
    let uris: Vec<_> = rule.uris.iter().map(|uri| format!("`{uri}`")).collect();
    let operations: Vec<_> =
        Operation::ALL.into_iter().filter(|one| rule.operations.contains(*one)).collect();
    let operations = match operations.len() == Operation::ALL.len() {
        true => "everything".to_owned(),
        false => operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(", "),
    };
    let uris = uris.join(", ");
    match &rule.effect {
        Effect::Allow => format!("allows {who} {operations} on {uris}"),
        Effect::Deny => format!("denies {who} {operations} on {uris}"),
        Effect::Require(needed) => {
            format!("requires of {who} the scope {} for {operations} on {uris}", quoted(needed))
        }
    }
}

/// Callers without authentication: the user of this machine over stdio, and anonymous callers over HTTP.
pub(crate) struct LocalCallers;

impl Authenticate for LocalCallers {
    fn identify(&self, caller: &Caller<'_>) -> libris::Identified {
        libris::Identified::Caller((caller.channel == Channel::Stdio).then(libris::auth::local_user))
    }
}

impl Policy for LocalCallers {
    fn authentication(&self) -> &dyn Authenticate {
        self
    }

    fn rights(&self, _: Option<&Identity>) -> Rights {
        Rights::everything()
    }

    fn is_open(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{RuleConfig, describe, rules};

    fn parsed(text: &str) -> Result<String, String> {
        #[derive(serde::Deserialize)]
        struct RuleFile {
            rule: Vec<RuleConfig>,
        }
        let file: RuleFile = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let rules = rules::<toml::de::Error>(file.rule).map_err(|error| error.message().to_owned())?;
        Ok(rules.iter().map(describe).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn rules_are_read() {
        let text = "[[rule]]\ngroup = \"hr\"\nuri = \"file:///a/**\"\naction = \"allow\"\n\
                    [[rule]]\nuri = [\"file:///a/**\", \"x:*\"]\noperation = [\"read\", \"search\"]\naction = \"deny\"\n\
                    [[rule]]\nuser = [\"*\"]\nrequire = \"docs:read\"\n[[rule]]\naction = \"allow\"";
        assert_eq!(
            parsed(text).unwrap(),
            "allows the group `hr` everything on `file:///a/**`\n\
             denies everyone read, search on `file:///a/**`, `x:*`\n\
             requires of everyone who is authenticated the scope `docs:read` for everything on `**`\n\
             allows everyone everything on `**`"
        );
    }

    #[test]
    fn a_wrong_rule_is_refused_with_its_number_and_a_hint() {
        for (rule, message) in [
            ("", "rule 1: there is no `action`; hint: set it to \"allow\" or \"deny\""),
            ("action = \"permit\"", "rule 1: unknown action `permit`; hint: "),
            ("action = \"deny\"\nrequire = \"a\"", "rule 1: it has an `action` and `require`; hint: "),
            ("action = \"deny\"\nuri = \"file:///a?x\"", "rule 1: the pattern `file:///a?x` has a `?`"),
            ("action = \"deny\"\ngroup = []", "rule 1: `group` is an empty list; hint: "),
            ("action = \"deny\"\noperation = \"write\"", "rule 1: unknown operation `write`; hint: "),
            ("require = \"a b\"", "rule 1: `a b` is not a scope; hint: "),
            ("actoin = \"deny\"", "unknown field `actoin`"),
        ] {
            let error = parsed(&format!("[[rule]]\n{rule}")).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
        assert!(parsed(&"[[rule]]\naction = \"deny\"\n".repeat(1_001)).unwrap_err().contains("1000 at most"));
    }
}
