//! Hints for URIs that are similar to known resources and templates: what is wrong with the path or the query.
//!
//! A source whose configuration names all its URIs uses this for [`Source::hint`](crate::Source::hint). For other sources,
//! the catalog compares the URI with the resources and templates that they list. Only the catalog gives hints for a wrong
//! scheme, since only it knows all schemes.

use crate::{Error, Uri, UriTemplate, suggest};

/// The maximum number of URIs and templates that a hint names.
const MAX_NAMED: usize = 4;

/// The error for a URI that is neither one of these resources nor matches one of these templates.
pub fn error<'a>(
    uri: &Uri,
    resources: impl IntoIterator<Item = &'a Uri>,
    templates: impl IntoIterator<Item = &'a UriTemplate>,
) -> Error {
    match hint(uri, resources, templates) {
        Some(hint) => Error::missing(uri, hint),
        None => Error::NotFound(uri.clone()),
    }
}

/// A hint on what is wrong with a URI: an unknown query parameter, a misspelt segment, or a wrong number of
/// segments. If the query is not wrong, `None` if the URI has no authority, if no resource or template with its scheme
/// has an authority and a fixed number of segments, or if none of those is similar and there are too many to name.
pub fn hint<'a>(
    uri: &Uri,
    resources: impl IntoIterator<Item = &'a Uri>,
    templates: impl IntoIterator<Item = &'a UriTemplate>,
) -> Option<String> {
    let resources: Vec<_> = resources.into_iter().collect();
    let templates: Vec<_> = templates.into_iter().collect();
    if let Some(hint) = query_hint(uri, &resources, &templates) {
        return Some(hint);
    }
    let texts = resources.iter().map(|uri| uri.as_str()).chain(templates.iter().map(|uri| uri.as_str()));
    let forms: Vec<_> = texts.filter_map(UriForm::of).collect();
    let wrong = UriForm::of(uri.as_str())?;
    let siblings: Vec<_> = forms.iter().filter(|form| form.scheme == wrong.scheme).collect();
    if siblings.is_empty() {
        return None;
    }
    let mut corrected: Vec<_> = siblings.iter().filter_map(|form| form.corrected(&wrong)).collect();
    corrected.sort();
    corrected.dedup();
    if !corrected.is_empty() {
        let corrected = corrected.into_iter().map(|(_, text)| text).collect();
        return Some(format!("did you mean {}?", any_of(corrected)));
    }
    let nearby: Vec<_> = siblings.iter().filter(|form| form.segments[0] == wrong.segments[0]).collect();
    let shown = if nearby.is_empty() { siblings.iter().collect() } else { nearby };
    let shown: Vec<_> = shown.into_iter().map(|form| form.text.to_owned()).collect();
    match shown.len() > MAX_NAMED {
        true => None,
        false => Some(format!("no template matches this URI; use the form {}", any_of(shown))),
    }
}

/// The hint for an unknown query parameter, if the URI without its query is one of these resources or matches one of these
/// templates.
pub fn query_hint(uri: &Uri, resources: &[&Uri], templates: &[&UriTemplate]) -> Option<String> {
    let query = uri.query()?;
    let bare = uri.without_query();
    let matching: Vec<_> = templates.iter().filter(|template| template.matches(&bare).is_some()).collect();
    if matching.is_empty() && !resources.contains(&&bare) {
        return None;
    }
    let names: Vec<_> = matching.iter().flat_map(|template| query_variables(template.as_str())).collect();
    let keys = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(key, _)| key));
    let unknown = keys.filter(|key| !key.is_empty()).find(|key| !names.contains(key))?;
    if names.is_empty() {
        return Some(format!("`{bare}` has no query parameters"));
    }
    let meant = suggest::did_you_mean(unknown, names.iter().copied());
    let meant = if meant.is_empty() { format!(", only {}", all_of(&names)) } else { meant };
    Some(format!("`{bare}` has no query parameter `{unknown}`{meant}"))
}

/// The variables of a template that are query parameters.
fn query_variables(template: &str) -> impl Iterator<Item = &str> {
    let expressions = template.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    let queries = expressions.filter_map(|(inside, _)| inside.strip_prefix(['?', '&']));
    queries
        .flat_map(|names| names.split(','))
        .map(|name| name.trim_end_matches('*').split(':').next().unwrap_or(name))
}

/// A URI or a template as segments, the first of which is the authority.
struct UriForm<'a> {
    text: &'a str,
    scheme: &'a str,
    segments: Vec<&'a str>,
}

impl<'a> UriForm<'a> {
    /// `None` for a URI without an authority, and for a template with a variable number of segments.
    fn of(text: &'a str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let end = rest.find("{?").into_iter().chain(rest.find(['?', '#'])).min().unwrap_or(rest.len());
        let varies =
            scheme.contains('{') || ["{/", "{+", "{#"].iter().any(|start| rest[..end].contains(start));
        (!varies).then(|| Self { text, scheme, segments: rest[..end].split('/').collect() })
    }

    /// The number of misspelt segments of `wrong`, and its URI with these segments replaced by those of this form. `None` if
    /// `wrong` is not similar to this form.
    fn corrected(&self, wrong: &UriForm<'_>) -> Option<(usize, String)> {
        if self.segments.len() != wrong.segments.len() {
            return None;
        }
        let mut corrections = 0;
        let mut segments = Vec::with_capacity(self.segments.len());
        for (right, wrong) in self.segments.iter().zip(&wrong.segments) {
            let is_variable = right.contains('{');
            if is_variable && wrong.is_empty() {
                return None;
            }
            if is_variable || right == wrong {
                segments.push(*wrong);
                continue;
            }
            suggest::closest(wrong, [*right]).first()?;
            corrections += 1;
            segments.push(*right);
        }
        (corrections > 0).then(|| (corrections, format!("{}://{}", self.scheme, segments.join("/"))))
    }
}

/// Up to [`MAX_NAMED`] of these texts, as in "`a`, `b` or `c`".
fn any_of(mut texts: Vec<String>) -> String {
    texts.truncate(MAX_NAMED);
    let last = texts.pop().unwrap_or_default();
    match texts.is_empty() {
        true => format!("`{last}`"),
        false => format!("{} or `{last}`", all_of(&texts)),
    }
}

/// All texts, as in "`a`, `b`".
pub fn all_of(texts: &[impl AsRef<str>]) -> String {
    texts.iter().map(|text| format!("`{}`", text.as_ref())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::hint;
    use crate::{Uri, UriTemplate};

    #[test]
    fn hints_say_what_is_wrong_with_a_uri() {
        let resources = ["weather://stations", "weather://radar/europe"].map(|uri| Uri::parse(uri).unwrap());
        let templates = ["weather://forecast/{city}/{date}{?units,language*}", "weather://station/{id}"];
        let templates = templates.map(|text| UriTemplate::parse(text).unwrap());
        let forms = "no template matches this URI; use the form `weather://stations`, `weather://radar/europe`, \
                     `weather://forecast/{city}/{date}{?units,language*}` or `weather://station/{id}`";
        for (uri, expected) in [
            ("weather://forcast/lima/today", Some("did you mean `weather://forecast/lima/today`?")),
            (
                "weather://forecast/lima/today?unit=metric",
                Some("`weather://forecast/lima/today` has no query parameter `unit`; did you mean `units`?"),
            ),
            (
                "weather://forecast/lima/today?x=1",
                Some("`weather://forecast/lima/today` has no query parameter `x`, only `units`, `language`"),
            ),
            ("weather://stations?sort=name", Some("`weather://stations` has no query parameters")),
            (
                "weather://forecast/lima",
                Some(
                    "no template matches this URI; use the form `weather://forecast/{city}/{date}{?units,language*}`",
                ),
            ),
            ("weather://radar/eurpoe", Some("did you mean `weather://radar/europe`?")),
            ("weather://stationz", Some("did you mean `weather://stations`?")),
            ("weather://x", Some(forms)),
            ("wether://stations", None),
            ("mailto:ada", None),
        ] {
            let hint = hint(&Uri::parse(uri).unwrap(), &resources, &templates);
            assert_eq!(hint.as_deref(), expected, "{uri}");
        }
    }
}
