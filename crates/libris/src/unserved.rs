//! The hint for a URI that no source covers and that no source has a [hint](libris_core::Source::hint) for.
//!
//! If no source serves the root of the URI (its scheme and authority), the hint names the roots that are served.
//! Otherwise [`wrong_uri`] compares the URI with the templates and resources.

use std::collections::{BTreeMap, HashMap};

use libris_core::suggest::{closest, meant};
use libris_core::{Error, Uri, UriTemplate, wrong_uri};

/// How many roots, templates or resources a hint names.
const MAX_NAMED: usize = 8;

/// How many roots of one scheme a hint names. If there are more, it names only the scheme.
const MAX_ROOTS_OF_SCHEME: usize = 4;

/// The longest URI that a hint repeats, in bytes.
const MAX_QUOTED: usize = 100;

/// The error for a URI that no source covers. `templates` are those of all sources; `resources` are those of the
/// sources without templates.
pub(crate) fn missing(uri: &Uri, templates: &[&UriTemplate], resources: &[&Uri]) -> Error {
    let text = uri.as_str();
    let served = templates.iter().map(|template| template.as_str());
    let served: Vec<_> = served.chain(resources.iter().map(|resource| resource.as_str())).collect();
    let below: Vec<_> = served.iter().copied().filter(|served| text.starts_with(root(served))).collect();
    let hint = match below.first() {
        None if served.is_empty() => return Error::NotFound(uri.clone()),
        None => {
            let (own, roots) = (root(text), roots(&served));
            let roots: Vec<_> = roots.iter().map(|root| &**root).collect();
            let (same_scheme, others): (Vec<_>, Vec<_>) =
                roots.iter().copied().partition(|root| root.starts_with(scheme(own)));
            let suggested = match &similar(scheme(own), own, &same_scheme)[..] {
                [] => similar("", own, &others),
                similar => similar.to_vec(),
            };
            let own = if own.len() <= MAX_QUOTED { own } else { scheme(own) };
            format!("no source serves `{own}`; served are {}{}", named(&roots), meant(&suggested))
        }
        Some(first) => wrong_uri::hint(uri, resources.iter().copied(), templates.iter().copied())
            .unwrap_or_else(|| {
                format!("nothing in `{}` matches this URI; there are {}", root(first), named(&below))
            }),
    };
    Error::missing(uri, hint)
}

/// The names that are similar to `wrong` after their common `prefix`, the most similar one first.
fn similar<'a>(prefix: &str, wrong: &str, names: &[&'a str]) -> Vec<&'a str> {
    let rests: HashMap<_, _> =
        names.iter().filter_map(|name| Some((name.strip_prefix(prefix)?, *name))).collect();
    let wrong = wrong.strip_prefix(prefix).unwrap_or(wrong);
    closest(wrong, rests.keys().copied()).into_iter().filter_map(|rest| rests.get(rest).copied()).collect()
}

/// The scheme of a URI with the slashes after it, such as `file:///`.
fn scheme(text: &str) -> &str {
    let Some(colon) = text.find(':') else { return text };
    let rest = text[colon + 1..].trim_start_matches('/');
    &text[..text.len() - rest.len()]
}

/// The scheme and authority of a URI or template, such as `git://project/`. If the authority is empty, the root
/// includes the first path segment, such as `file:///handbook/`. Without `//`, the root is the scheme, such as `note:`.
/// The root of a template ends before the first variable.
pub(crate) fn root(text: &str) -> &str {
    let literal = text.split(['{', '?', '#']).next().unwrap_or_default();
    let Some(colon) = literal.find(':') else { return literal };
    let Some(rest) = literal[colon + 1..].strip_prefix("//") else { return &literal[..=colon] };
    let start = literal.len() - rest.len();
    // After an empty authority, as in `file:///handbook/`, the first path segment belongs to the root.
    let start = if rest.starts_with('/') { start + 1 } else { start };
    literal[start..].find('/').map_or(literal, |slash| &literal[..=start + slash])
}

/// The distinct roots, in order; of a scheme with many roots only the scheme. A root without a slash at the end, such
/// as that of `file:///docs{/path*}`, is left out if the same root with a slash is served.
fn roots(served: &[&str]) -> Vec<String> {
    let mut by_scheme: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for text in served {
        let root = root(text);
        let scheme = root.split_once(':').map_or(root, |(scheme, _)| scheme);
        let roots = by_scheme.entry(scheme).or_default();
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
    let of_scheme = |(scheme, roots): (&str, Vec<&str>)| {
        let is_folder = |root: &str| roots.iter().any(|other| other.strip_suffix('/') == Some(root));
        let distinct: Vec<_> = roots.iter().filter(|root| !is_folder(root)).collect();
        match distinct.len() <= MAX_ROOTS_OF_SCHEME {
            true => distinct.into_iter().map(ToString::to_string).collect(),
            false => vec![format!("{scheme}:")],
        }
    };
    by_scheme.into_iter().flat_map(of_scheme).collect()
}

/// The first texts in backticks, and how many more there are.
fn named(texts: &[&str]) -> String {
    let mut named: Vec<_> = texts.iter().take(MAX_NAMED).map(|text| format!("`{text}`")).collect();
    if texts.len() > MAX_NAMED {
        named.push(format!("{} more", texts.len() - MAX_NAMED));
    }
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use super::{missing, root};
    use libris_core::{Error, Uri, UriTemplate};

    fn hint(uri: &str, served: &[&str]) -> String {
        let (templates, resources): (Vec<_>, Vec<_>) = served.iter().partition(|text| text.contains('{'));
        let templates: Vec<_> = templates.into_iter().map(|text| UriTemplate::parse(text).unwrap()).collect();
        let resources: Vec<_> = resources.into_iter().map(|text| Uri::parse(text).unwrap()).collect();
        let (templates, resources): (Vec<_>, Vec<_>) =
            (templates.iter().collect(), resources.iter().collect());
        match missing(&Uri::parse(uri).unwrap(), &templates, &resources) {
            Error::Missing { hint, .. } => hint,
            error => error.to_string(),
        }
    }

    #[test]
    fn a_root_is_the_scheme_and_the_authority_or_mount() {
        for (text, expected) in [
            ("file:///handbook/{+path}{?lines,bytes}", "file:///handbook/"),
            ("file:///handbook/guide/on-call.md", "file:///handbook/"),
            ("file:///handbook", "file:///handbook"),
            ("git://project/blob/{ref}/{+path}", "git://project/"),
            ("notes://{number}", "notes://"),
            ("weather://stations?all", "weather://stations"),
            ("note:{number}", "note:"),
        ] {
            assert_eq!(root(text), expected);
        }
    }

    #[test]
    fn names_what_is_served_and_the_closest_root() {
        let served = ["file:///handbook/{+path}", "git://project/blob/{ref}", "git://project/log/{ref}"];
        assert_eq!(
            hint("flie:///handbook/a.md", &served),
            "no source serves `flie:///handbook/`; served are `file:///handbook/`, `git://project/`; did you mean \
             `file:///handbook/`?"
        );
        assert_eq!(
            hint("file:///docs/a.md", &served),
            "no source serves `file:///docs/`; served are `file:///handbook/`, `git://project/`"
        );
        assert_eq!(
            hint("file:///hand-book/a.md", &served),
            "no source serves `file:///hand-book/`; served are `file:///handbook/`, `git://project/`; did you mean \
             `file:///handbook/`?"
        );
        assert_eq!(
            hint("postgres://shop/orders", &served),
            "no source serves `postgres://shop/`; served are `file:///handbook/`, `git://project/`"
        );
        assert_eq!(
            hint("config://app/setings", &["config://app/settings", "config://app/users"]),
            "did you mean `config://app/settings`?"
        );
        assert_eq!(hint("git://project/blb/main", &served), "did you mean `git://project/blob/main`?");
        assert_eq!(
            hint("git://project/", &["git://project/{+path}.md", "git://project/{+path}.txt"]),
            "nothing in `git://project/` matches this URI; there are `git://project/{+path}.md`, \
             `git://project/{+path}.txt`"
        );
        assert_eq!(
            hint("file:///dcs/", &["file:///docs{/path*}", "file:///docs/{+path}", "file:///notes"]),
            "no source serves `file:///dcs/`; served are `file:///docs/`, `file:///notes`; did you mean `file:///docs/`?"
        );
        assert_eq!(hint("a:b", &[]), "no resource at `a:b`");
    }

    #[test]
    fn a_hint_is_short() {
        let many: Vec<_> = (0..100).map(|number| format!("note://{number}")).collect();
        let many: Vec<_> = many.iter().map(|uri| &**uri).collect();
        assert_eq!(hint("x:1", &many), "no source serves `x:`; served are `note:`");
        let schemes: Vec<_> = (10..30).map(|number| format!("s{number}:a")).collect();
        let schemes: Vec<_> = schemes.iter().map(|uri| &**uri).collect();
        assert!(hint("x:1", &schemes).ends_with("`s17:`, 12 more"), "{}", hint("x:1", &schemes));
        assert_eq!(
            hint(&format!("x://{}/", "h".repeat(500)), &["a:b"]),
            "no source serves `x://`; served are `a:`"
        );
    }
}
