//! The text of a prompt: `{{name}}` is the value of an argument, and `{{resource:URI}}` the contents of a resource.

use std::collections::BTreeMap;

use libris_core::uri_template::Variables;
use libris_core::{Error, PromptContent, Result, Uri, UriTemplate};

/// The prefix of a resource placeholder, inside the braces.
const RESOURCE: &str = "resource:";

/// A parsed text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PromptText(Vec<TextSegment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TextSegment {
    Text(String),
    /// The value of an argument.
    Argument(String),
    /// The contents of a resource; the variables of the template are arguments.
    Resource(UriTemplate),
}

impl PromptText {
    /// Parses a text. The error says what is wrong with it.
    pub(super) fn parse(text: &str) -> std::result::Result<Self, String> {
        let (mut segments, mut rest) = (Vec::new(), text);
        while let Some(open) = rest.find("{{") {
            let (before, placeholder) = rest.split_at(open);
            push_text(&mut segments, before);
            let Some((inside, after)) = split_placeholder(&placeholder[2..]) else {
                return Err(format!("`{}` has no `}}}}` at its end", excerpt(placeholder)));
            };
            let inside = inside.trim();
            segments.push(match inside.strip_prefix(RESOURCE) {
                Some(uri) => TextSegment::Resource(resource(uri.trim())?),
                None if is_name(inside) => TextSegment::Argument(inside.to_owned()),
                None => {
                    return Err(format!(
                        "`{{{{{}}}}}` is neither the name of an argument, as in `{{{{topic}}}}`, nor a resource, as in \
                         `{{{{resource:file:///docs/style.md}}}}`",
                        excerpt(inside)
                    ));
                }
            });
            rest = after;
        }
        push_text(&mut segments, rest);
        Ok(Self(segments))
    }

    /// The names of the arguments in the text, in the order of their first occurrence.
    pub(super) fn arguments(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for segment in &self.0 {
            let used: Vec<&str> = match segment {
                TextSegment::Text(_) => Vec::new(),
                TextSegment::Argument(name) => vec![name],
                TextSegment::Resource(template) => template.variables().collect(),
            };
            names.extend(used.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
        }
        names
    }

    /// The resource placeholders in the text.
    pub(super) fn resources(&self) -> impl Iterator<Item = &UriTemplate> {
        self.0.iter().filter_map(|segment| match segment {
            TextSegment::Resource(template) => Some(template),
            _ => None,
        })
    }

    /// The contents with these values: texts, with the resources between them. A value is not parsed for
    /// placeholders.
    pub(super) fn fill(&self, values: &BTreeMap<String, String>) -> Result<Vec<PromptContent>> {
        let (mut contents, mut text) = (Vec::new(), String::new());
        for segment in &self.0 {
            match segment {
                TextSegment::Text(literal) => text.push_str(literal),
                TextSegment::Argument(name) => {
                    text.push_str(values.get(name).map(String::as_str).unwrap_or_default());
                }
                TextSegment::Resource(template) => {
                    push_content(&mut contents, &mut text);
                    if let Some(uri) = expand(template, values)? {
                        contents.push(PromptContent::Resource(uri));
                    }
                }
            }
        }
        push_content(&mut contents, &mut text);
        Ok(contents)
    }
}

/// The URI of a resource placeholder with these values; `None` if a required variable has no value, so that nothing is
/// embedded.
fn expand(template: &UriTemplate, values: &BTreeMap<String, String>) -> Result<Option<Uri>> {
    let is_filled = |name: &str| values.get(name).is_some_and(|value| !value.is_empty());
    if !template.variables().all(|name| template.is_optional(name) || is_filled(name)) {
        return Ok(None);
    }
    let variables: Variables = values.iter().filter(|(_, value)| !value.is_empty()).collect();
    let uri = template.expand(&variables)?;
    Uri::parse(&uri).map(Some).map_err(|cause| {
        Error::invalid(format!(
            "the arguments give the resource `{}`, which is no URI: {cause}",
            excerpt(&uri)
        ))
    })
}

/// Splits at the `}}` that ends a placeholder. Braces of variables, as in `{{resource:db://{id}}}`, are part of the
/// placeholder.
fn split_placeholder(text: &str) -> Option<(&str, &str)> {
    let (mut depth, bytes) = (0, text.as_bytes());
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            b'}' if bytes.get(at + 1) == Some(&b'}') => return Some((&text[..at], &text[at + 2..])),
            _ => {}
        }
    }
    None
}

fn resource(text: &str) -> std::result::Result<UriTemplate, String> {
    let wrong = |cause: Error| format!("`{}` is not a URI or a template: {cause}", excerpt(text));
    let template = UriTemplate::parse(text).map_err(wrong)?;
    if template.variables().next().is_none() {
        // Converted to its normal form.
        let uri = Uri::parse(text).map_err(wrong)?;
        return UriTemplate::parse(uri.as_str()).map_err(wrong);
    }
    Ok(template)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_alphanumeric() || "_.-".contains(letter))
}

fn push_text(segments: &mut Vec<TextSegment>, text: &str) {
    if !text.is_empty() {
        segments.push(TextSegment::Text(text.to_owned()));
    }
}

/// Adds the text before a resource, without white space around the text, and clears `text`.
fn push_content(contents: &mut Vec<PromptContent>, text: &mut String) {
    let trimmed = text.trim();
    if !trimmed.is_empty() {
        contents.push(PromptContent::Text(trimmed.to_owned()));
    }
    text.clear();
}

fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::{PromptContent, PromptText, Uri};
    use std::collections::BTreeMap;

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn text(text: &str) -> PromptContent {
        PromptContent::Text(text.into())
    }

    fn resource(uri: &str) -> PromptContent {
        PromptContent::Resource(Uri::parse(uri).unwrap())
    }

    #[test]
    fn placeholders_split_a_text() {
        let parsed = PromptText::parse(
            "Review {{ code }} by\n\n{{resource:file:///docs/style.md}}\n\nand {{resource:db://users/{id}}}. Thanks!",
        )
        .unwrap();
        assert_eq!(parsed.arguments(), ["code", "id"]);
        assert_eq!(
            parsed.resources().map(|template| template.as_str()).collect::<Vec<_>>(),
            ["file:///docs/style.md", "db://users/{id}"]
        );
        assert_eq!(
            parsed.fill(&values(&[("code", "fn main() {}"), ("id", "a/b c")])).unwrap(),
            [
                text("Review fn main() {} by"),
                resource("file:///docs/style.md"),
                text("and"),
                resource("db://users/a%2Fb%20c"),
                text(". Thanks!"),
            ]
        );
        // A resource whose argument is missing is not embedded.
        assert_eq!(
            parsed.fill(&values(&[("code", "x")])).unwrap(),
            [text("Review x by"), resource("file:///docs/style.md"), text("and"), text(". Thanks!")]
        );
    }

    #[test]
    fn values_are_not_parsed_again() {
        let parsed = PromptText::parse("{{a}}{{b}}").unwrap();
        let hostile = "{{resource:file:///etc/passwd}}";
        assert_eq!(
            parsed.fill(&values(&[("a", hostile), ("b", "{{a}}")])).unwrap(),
            [text("{{resource:file:///etc/passwd}}{{a}}")]
        );
    }

    #[test]
    fn a_whole_uri_can_be_an_argument() {
        let parsed = PromptText::parse("{{resource:{+uri}}}").unwrap();
        assert_eq!(
            parsed.fill(&values(&[("uri", "test://example?x=1")])).unwrap(),
            [resource("test://example?x=1")]
        );
        assert!(parsed.fill(&values(&[("uri", "no uri")])).is_err());
    }

    #[test]
    fn errors_name_the_wrong_placeholder() {
        for (wrong, why) in [
            ("{{", "has no `}}`"),
            ("a {{topic", "has no `}}`"),
            ("{{two words}}", "neither the name of an argument"),
            ("{{}}", "neither the name of an argument"),
            ("{{resource:}}", "is not a URI"),
            ("{{resource:no uri}}", "is not a URI"),
            ("{{resource:a:{}}}", "is not a URI or a template"),
        ] {
            let error = PromptText::parse(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
