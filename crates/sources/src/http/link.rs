//! The next page of a response, from its `Link` header (RFC 8288).

use http::header::{HeaderMap, LINK};
use url::Url;

/// The target of `rel="next"`, resolved against the URL of the response; `None` if there is none, or if it is of
/// another origin.
pub(super) fn next(headers: &HeaderMap, url: &Url) -> Option<Url> {
    let values = headers.get_all(LINK).iter().filter_map(|value| value.to_str().ok());
    let target = values.flat_map(links).find(|(_, relations)| is_next(relations))?.0;
    same_origin(url, target)
}

/// Resolves `target` against `url`; `None` if the result is of another origin, because credentials must not be sent
/// there.
pub(super) fn same_origin(url: &Url, target: &str) -> Option<Url> {
    let mut next = url.join(target).ok()?;
    next.set_fragment(None);
    let is_plain = next.username().is_empty() && next.password().is_none();
    if next.origin() != url.origin() || !is_plain {
        tracing::warn!(
            origin = url.origin().ascii_serialization(),
            "did not follow a next page of another origin"
        );
        return None;
    }
    Some(next)
}

fn is_next(relations: &str) -> bool {
    relations.split_ascii_whitespace().any(|relation| relation.eq_ignore_ascii_case("next"))
}

/// The link targets in a header value, each with its `rel`.
fn links(value: &str) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    let mut rest = value;
    while let Some((_, after)) = rest.split_once('<') {
        let Some((target, parameters)) = after.split_once('>') else { break };
        let end = end_of_parameters(parameters);
        let relation = parameters[..end].split(';').find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("rel").then(|| value.trim().trim_matches('"'))
        });
        links.push((target.trim(), relation.unwrap_or_default()));
        rest = &parameters[end..];
    }
    links
}

/// The offset of the comma that ends the parameters of a link: one that is not quoted.
fn end_of_parameters(parameters: &str) -> usize {
    let mut quoted = false;
    let end = parameters.bytes().position(|byte| {
        quoted ^= byte == b'"';
        byte == b',' && !quoted
    });
    end.unwrap_or(parameters.len())
}

#[cfg(test)]
mod tests {
    use super::{LINK, Url, next};
    use http::header::{HeaderMap, HeaderValue};

    #[test]
    fn the_next_page_is_found_in_a_link_header() {
        let url = Url::parse("https://api.example/v1/books?page=1").unwrap();
        for (value, expected) in [
            (
                "<https://api.example/v1/books?page=2>; rel=\"next\"",
                Some("https://api.example/v1/books?page=2"),
            ),
            ("<?page=2>; rel=next", Some("https://api.example/v1/books?page=2")),
            ("</v1/x>;title=\"a, <b>\"; REL=\"last NEXT\"", Some("https://api.example/v1/x")),
            ("<?page=9>; rel=last, <?page=2#x>; rel=next", Some("https://api.example/v1/books?page=2")),
            ("<?page=0>; rel=\"prev\"", None),
            ("<?page=2>; title=next", None),
            ("<https://elsewhere.example/>; rel=next", None),
            ("<https://ada@api.example/>; rel=next", None),
            ("<http://api.example/v1/books?page=2>; rel=next", None),
            ("<?page=2", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(LINK, HeaderValue::from_str(value).unwrap())]);
            assert_eq!(next(&headers, &url).as_ref().map(Url::as_str), expected, "{value}");
        }
    }
}
