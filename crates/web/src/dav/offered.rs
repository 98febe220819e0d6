//! Files and folders of URI templates, with the values that their variables complete to.
//!
//! So resources that are not listed can be browsed: `git://project/tree/{ref}/{+path}` is a folder for each branch, and
//! `sqlite://shop/{table}/rows/{key}` a file for each row. The segments of a template become folders as long as each is
//! literal or a single variable. Below that, the source must have directories.

use std::collections::BTreeMap;

use libris_wire::{Call, CompletionParams, Failure, PrefixEntry, Reference};
use serde::Deserialize;
use serde_json::json;

use super::content::FileContent;
use crate::read::parse;

/// The maximum number of templates that are considered.
const MAX_TEMPLATES: usize = 1_000;

#[derive(Deserialize)]
struct OfferedTemplatePage {
    #[serde(rename = "resourceTemplates")]
    templates: Vec<ListedTemplate>,
    #[serde(rename = "nextCursor")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct ListedTemplate {
    #[serde(rename = "uriTemplate")]
    uri: String,
    #[serde(rename = "mimeType")]
    mime: Option<String>,
}

#[derive(Deserialize)]
struct CompletionAnswer {
    completion: CompletedValues,
}

#[derive(Deserialize)]
struct CompletedValues {
    values: Vec<String>,
}

/// A segment of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TemplateSegment<'t> {
    Literal(&'t str),
    Variable(&'t str),
    /// Anything else, which cannot be listed.
    Other,
}

/// The segments of the path of a template, without the query.
fn segments(template: &str) -> Vec<TemplateSegment<'_>> {
    let end = ["{?", "{&", "{#", "?", "#"].iter().filter_map(|mark| template.find(mark)).min();
    let path = &template[..end.unwrap_or(template.len())];
    let segment = |text| match variable(text) {
        Some(name) => TemplateSegment::Variable(name),
        None if str::contains(text, ['{', '}']) => TemplateSegment::Other,
        None => TemplateSegment::Literal(text),
    };
    path.split('/').map(segment).collect()
}

/// The name of the variable, if a segment is nothing else.
fn variable(segment: &str) -> Option<&str> {
    let name = segment.strip_prefix('{')?.strip_suffix('}')?;
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.%".contains(&byte));
    is_name.then_some(name)
}

/// The segment of a template that is directly below a prefix.
#[derive(Debug, PartialEq, Eq)]
struct TemplateStep<'t> {
    /// The values of the variables in the prefix.
    known: BTreeMap<String, String>,
    /// The prefix, with the slashes between it and the segment `next`.
    start: String,
    next: TemplateSegment<'t>,
    /// Whether nothing follows the segment.
    is_last: bool,
    /// Whether `next` is a variable, and the segment after it is neither literal nor a single variable.
    needs_directory: bool,
}

fn step<'t>(template: &'t str, prefix: &str) -> Option<TemplateStep<'t>> {
    let segments = segments(template);
    if prefix.is_empty() {
        let TemplateSegment::Literal(scheme) = segments.first()? else { return None };
        let (scheme, _) = scheme.split_once(':')?;
        let next = TemplateSegment::Literal(scheme);
        let (known, start) = (BTreeMap::new(), String::new());
        return Some(TemplateStep { known, start, next, is_last: false, needs_directory: false });
    }
    let mut start = match prefix.strip_suffix(':') {
        Some(_) => format!("{prefix}//"),
        None => prefix.to_owned(),
    };
    let mut known = BTreeMap::new();
    let mut rest = segments.iter();
    for part in start.strip_suffix('/')?.split('/') {
        match rest.next()? {
            TemplateSegment::Literal(text) if *text == part => {}
            TemplateSegment::Variable(name) if !part.is_empty() => {
                known.insert((*name).to_owned(), decoded(part)?);
            }
            _ => return None,
        }
    }
    let mut next = *rest.next()?;
    // An empty authority, as in `file:///docs/`, is no level of its own.
    if next == TemplateSegment::Literal("") && prefix.ends_with(':') {
        start.push('/');
        next = *rest.next()?;
    }
    let following = rest.next();
    let is_variable = matches!(next, TemplateSegment::Variable(_));
    let needs_directory = is_variable && following == Some(&TemplateSegment::Other);
    Some(TemplateStep { known, start, next, is_last: following.is_none(), needs_directory })
}

fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn encoded(value: &str) -> String {
    let mut segment = String::new();
    for &byte in value.as_bytes() {
        // As the simple expansion of a template: only unreserved characters stand for themselves.
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => segment.push(char::from(byte)),
            false => segment.push_str(&format!("%{byte:02X}")),
        }
    }
    segment
}

/// The templates of a caller.
pub(super) struct OfferedTemplates {
    templates: Vec<ListedTemplate>,
}

impl OfferedTemplates {
    pub(super) async fn load(call: &Call) -> Result<Self, Failure> {
        let mut templates = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let reply = call.view().templates(call, cursor.as_deref()).await?;
            let Some(page) = parse::<OfferedTemplatePage>(&reply.members) else { break };
            templates.extend(page.templates);
            cursor = page.next;
            if cursor.is_none() || templates.len() >= MAX_TEMPLATES {
                break;
            }
        }
        Ok(Self { templates })
    }

    /// The entries directly below a prefix, in URI order.
    pub(super) async fn below(&self, call: &Call, prefix: &str) -> Vec<PrefixEntry> {
        let mut entries = BTreeMap::new();
        for template in &self.templates {
            let Some(step) = step(&template.uri, prefix) else { continue };
            let values: Vec<String> = match step.next {
                TemplateSegment::Literal(text) => vec![text.to_owned()],
                TemplateSegment::Variable(name) => {
                    let values = complete(call, &template.uri, name, "", &step.known).await;
                    values.iter().map(|value| encoded(value)).collect()
                }
                TemplateSegment::Other => continue,
            };
            let end = match (prefix.is_empty(), step.is_last) {
                (true, _) => ":",
                (false, true) => "",
                (false, false) => "/",
            };
            let values = values.iter().filter(|value| !matches!(value.as_str(), "" | "." | ".."));
            let uris: Vec<_> = values.map(|value| format!("{}{value}{end}", step.start)).collect();
            let mut mime = template.mime.clone().filter(|_| step.is_last);
            if let Some(first) = uris.first().filter(|_| step.is_last && mime.is_none()) {
                // All resources of a template usually have the same type.
                match FileContent::load(&call.for_part(), first).await {
                    Ok(content) => mime = content.mime().map(str::to_owned),
                    Err(Failure::NotFound { .. }) if uris.len() == 1 => continue,
                    Err(_) => {}
                }
            }
            for uri in uris {
                // Not every value of the earlier variables has this folder: a view of a database, for example, has no
                // keys.
                let is_literal = matches!(step.next, TemplateSegment::Literal(_));
                let is_bound = is_literal && !step.is_last && !step.known.is_empty();
                if is_bound && !self.contain(call, &uri).await {
                    continue;
                }
                // Below the variable, only a directory can be listed.
                if step.needs_directory && !matches!(call.view().describe(call, &uri).await, Ok(Some(_))) {
                    continue;
                }
                let folder = PrefixEntry::folder(&*uri);
                let entry = PrefixEntry { is_folder: !step.is_last, mime: mime.clone(), ..folder };
                entries.entry(uri).or_insert(entry);
            }
        }
        entries.into_values().collect()
    }

    /// Whether `uri` may be a file that a template has directly below a prefix.
    pub(super) fn may_have_file(&self, prefix: &str, uri: &str) -> bool {
        self.templates.iter().filter_map(|template| step(&template.uri, prefix)).any(|step| {
            let name = uri.strip_prefix(step.start.as_str());
            step.is_last
                && match step.next {
                    TemplateSegment::Literal(text) => name == Some(text),
                    TemplateSegment::Variable(_) => name.is_some_and(|name| !name.contains('/')),
                    TemplateSegment::Other => false,
                }
        })
    }

    /// Whether a prefix is a folder of a template: the source offers the value of each of its variables as a
    /// completion.
    pub(super) async fn contain(&self, call: &Call, prefix: &str) -> bool {
        'templates: for template in &self.templates {
            let Some(step) = step(&template.uri, prefix) else { continue };
            if step.next == TemplateSegment::Other {
                continue;
            }
            for (name, value) in &step.known {
                let others = step.known.iter().filter(|(other, _)| *other != name);
                let others = others.map(|(name, value)| (name.clone(), value.clone())).collect();
                if !complete(call, &template.uri, name, value, &others).await.contains(value) {
                    continue 'templates;
                }
            }
            return true;
        }
        false
    }
}

/// The values of a variable. There are none if the source cannot complete, or if it fails: the list reports the
/// failure.
async fn complete(
    call: &Call,
    template: &str,
    variable: &str,
    typed: &str,
    known: &BTreeMap<String, String>,
) -> Vec<String> {
    let params = CompletionParams {
        reference: Reference::Resource(template.to_owned()),
        argument: variable.to_owned(),
        typed: typed.to_owned(),
        known: known.clone(),
        sent: [
            json!({ "type": "ref/resource", "uri": template }),
            json!({ "name": variable, "value": typed }),
            json!({ "arguments": known }),
        ]
        .map(|member| member.to_string().into()),
    };
    match call.view().complete(call, &params).await {
        Ok(reply) => {
            parse::<CompletionAnswer>(&reply.members).map_or_else(Vec::new, |answer| answer.completion.values)
        }
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{TemplateSegment, decoded, encoded, step};

    fn next(template: &'static str, prefix: &str) -> Option<(String, TemplateSegment<'static>, bool)> {
        step(template, prefix).map(|step| (step.start, step.next, step.is_last))
    }

    #[test]
    fn templates_are_followed_segment_by_segment() {
        use TemplateSegment::{Literal, Other, Variable};
        let rows = "sqlite://shop/{table}/rows/{key}{?format}";
        for (template, prefix, expected) in [
            (rows, "", Some(("", Literal("sqlite"), false))),
            (rows, "sqlite:", Some(("sqlite://", Literal("shop"), false))),
            (rows, "sqlite://shop/", Some(("sqlite://shop/", Variable("table"), false))),
            (rows, "sqlite://shop/a%20b/", Some(("sqlite://shop/a%20b/", Literal("rows"), false))),
            (rows, "sqlite://shop/a/rows/", Some(("sqlite://shop/a/rows/", Variable("key"), true))),
            (rows, "sqlite://shop/a/rows/7/", None),
            (rows, "sqlite://other/", None),
            (rows, "git:", None),
            ("a://{id}", "a:", Some(("a://", Variable("id"), true))),
            ("file:///docs/{+path}", "file:", Some(("file:///", Literal("docs"), false))),
            ("file:///docs/{+path}{?lines}", "file:///docs/", Some(("file:///docs/", Other, true))),
            ("a://b/rows{?limit,after}", "a://b/", Some(("a://b/", Literal("rows"), true))),
            ("a://b/{one}.{two}", "a://b/", Some(("a://b/", Other, true))),
            ("git://p/tree/{ref}/{+path}", "git://p/tree/", Some(("git://p/tree/", Variable("ref"), false))),
        ] {
            let expected = expected.map(|(start, next, is_last)| (start.to_owned(), next, is_last));
            assert_eq!(next(template, prefix), expected, "{template} below {prefix}");
        }
        assert_eq!(step(rows, "sqlite://shop/a%20b/").unwrap().known["table"], "a b");
        assert!(step("git://p/tree/{ref}/{+path}", "git://p/tree/").unwrap().needs_directory);
        assert!(!step(rows, "sqlite://shop/").unwrap().needs_directory);
    }

    #[test]
    fn values_are_escaped_as_templates_expand() {
        assert_eq!(encoded("feature/ä,1"), "feature%2F%C3%A4%2C1");
        assert_eq!(decoded("feature%2F%C3%A4%2C1").as_deref(), Some("feature/ä,1"));
        assert_eq!(decoded("%F"), None);
    }
}
