//! Default names of resources.

use libris_core::{Uri, UriTemplate};

/// The last non-empty segment of a URI, decoded. If the path has none, the authority; if there is no authority either,
/// the whole URI.
pub(crate) fn last(uri: &Uri) -> String {
    let path = uri.path().rsplit('/').find(|segment| !segment.is_empty());
    let segment = path.or(uri.authority()).filter(|segment| !segment.is_empty()).unwrap_or(uri.as_str());
    Uri::decode_segment(segment)
        .map_or_else(|| segment.to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The literal segments of a template and its variables outside the query, such as `forecast by city and date` for
/// `weather://forecast/{city}/{date}{?units}`.
pub(crate) fn template_name(template: &UriTemplate) -> String {
    let text = template.as_str();
    let (scheme, rest) = text.split_once("://").or_else(|| text.split_once(':')).unwrap_or(("", text));
    let rest = &rest[..rest.find("{?").into_iter().chain(rest.find('?')).min().unwrap_or(rest.len())];
    let mut words = Vec::new();
    let mut names = Vec::new();
    for piece in rest.split('}') {
        let (literal, expression) = piece.split_once('{').unwrap_or((piece, ""));
        words.extend(literal.split('/').filter(|word| word.contains(char::is_alphanumeric)));
        let expression = expression.trim_start_matches(|letter: char| "+#./;&".contains(letter));
        let variables = expression.split(',').map(|name| name.split(['*', ':']).next().unwrap_or(name));
        names.extend(variables.filter(|name| !name.is_empty()));
    }
    let subject = if words.is_empty() { scheme.to_owned() } else { words.join(" ") };
    match &names[..] {
        [] => subject,
        [one] => format!("{subject} by {one}"),
        [others @ .., last] => format!("{subject} by {} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{UriTemplate, template_name};

    #[test]
    fn templates_are_named_after_their_segments() {
        for (template, name) in [
            ("weather://forecast/{city}/{date}{?units}", "forecast by city and date"),
            ("greeting://{name}", "greeting by name"),
            ("db://users/{id}/profile", "users profile by id"),
            ("api://search{?q}", "search"),
            ("log://files/{+path}", "files by path"),
            ("a://b{/x*}/{y:3}.json", "b .json by x and y"),
        ] {
            assert_eq!(template_name(&UriTemplate::parse(template).unwrap()), name);
        }
    }
}
