//! Parses the arguments of the attributes.

use std::time::Duration;

use libris_core::{Uri, UriTemplate};
use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitStr, Result, Token};

/// A template literal and its parsed form.
pub(crate) struct TemplateLiteral {
    pub(crate) text: LitStr,
    pub(crate) template: UriTemplate,
}

impl TemplateLiteral {
    pub(crate) fn variables(&self) -> Vec<&str> {
        self.template.variables().collect()
    }

    /// A text that is equal for templates that differ only in the names of their variables, and so match the same
    /// URIs.
    pub(crate) fn shape(&self) -> String {
        let numbered = self.template.variables().enumerate().map(|(at, name)| (name, format!("v{at}")));
        // The expansion never fails if all values are strings.
        let filled = self.template.expand(&numbered.collect()).unwrap_or_default();
        let filled = Uri::parse(&filled).map_or(filled, |uri| uri.to_string());
        let forms = self
            .template
            .variables()
            .map(|name| (self.template.is_optional(name), self.template.explodes(name)));
        format!("{filled} {:?}", forms.collect::<Vec<_>>())
    }

    /// The variables as a phrase for messages, such as "only the variable `id`".
    pub(crate) fn describe_variables(&self) -> String {
        match &*self.variables() {
            [] => "no variables".to_owned(),
            [one] => format!("only the variable `{one}`"),
            many => format!("the variables `{}`", many.join("`, `")),
        }
    }
}

impl Parse for TemplateLiteral {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if !input.peek(LitStr) {
            let hint = "begin with the URI or template in quotes, as in `\"docs://documents/{id}\"`";
            return Err(Error::new(input.span(), hint));
        }
        let text: LitStr = input.parse()?;
        let wrong = |cause: libris_core::Error| Error::new(text.span(), cause.to_string());
        let template = UriTemplate::parse(&text.value()).map_err(wrong)?;
        // Every expansion must be an absolute URI. The expansion with one sample value is checked.
        let filled = template.expand(&template.variables().map(|name| (name, "x")).collect());
        filled.and_then(|filled| Uri::parse(&filled)).map_err(|_| {
            let hint = "a resource needs an absolute URI with a scheme, as in `docs://documents/{id}`";
            Error::new(text.span(), hint)
        })?;
        Ok(Self { text, template })
    }
}

/// `#[resource("…", title = "…", …)]`
pub(crate) struct ResourceAttribute {
    pub(crate) pattern: TemplateLiteral,
    pub(crate) name: Option<LitStr>,
    pub(crate) title: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    pub(crate) mime: Option<LitStr>,
    pub(crate) icon: Option<LitStr>,
    /// The names of the variants of `Audience`.
    pub(crate) audience: Vec<Ident>,
    pub(crate) priority: Option<f64>,
    /// How long results are cached, and the span of the literal, for errors.
    pub(crate) cache: Option<(Duration, Span)>,
}

const KEYS: [&str; 8] = ["name", "title", "description", "mime", "icon", "audience", "priority", "cache"];

impl Parse for ResourceAttribute {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut resource = Self {
            pattern: input.parse()?,
            name: None,
            title: None,
            description: None,
            mime: None,
            icon: None,
            audience: Vec::new(),
            priority: None,
            cache: None,
        };
        let mut seen = Vec::new();
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if input.is_empty() {
                break;
            }
            let key = key(input, &mut seen)?;
            match key.to_string().as_str() {
                "name" => resource.name = Some(text(input)?),
                "title" => resource.title = Some(text(input)?),
                "description" => resource.description = Some(text(input)?),
                "mime" => resource.mime = Some(mime(input)?),
                "icon" => resource.icon = Some(text(input)?),
                "audience" => resource.audience = audience(input)?,
                "priority" => resource.priority = Some(priority(input)?),
                "cache" => resource.cache = Some(duration(input)?),
                unknown => return Err(Error::new(key.span(), unknown_key(unknown, &KEYS))),
            }
        }
        Ok(resource)
    }
}

/// Parses a key, which must not appear twice, and the `=` after it.
fn key(input: ParseStream<'_>, seen: &mut Vec<Ident>) -> Result<Ident> {
    let key: Ident = input.parse()?;
    if seen.contains(&key) {
        return Err(Error::new(key.span(), format!("`{key}` appears twice; remove one")));
    }
    input
        .parse::<Token![=]>()
        .map_err(|error| Error::new(error.span(), format!("add a value for `{key}`, as in `{key} = …`")))?;
    seen.push(key.clone());
    Ok(key)
}

/// `#[prompt]` or `#[prompt(title = "…", …)]`
#[derive(Default)]
pub(crate) struct PromptAttribute {
    pub(crate) name: Option<LitStr>,
    pub(crate) title: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    pub(crate) icon: Option<LitStr>,
    /// The resources that the prompt embeds.
    pub(crate) resources: Vec<TemplateLiteral>,
}

const PROMPT_KEYS: [&str; 5] = ["name", "title", "description", "icon", "resources"];

impl Parse for PromptAttribute {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let (mut prompt, mut seen) = (Self::default(), Vec::new());
        while !input.is_empty() {
            let key = key(input, &mut seen)?;
            match key.to_string().as_str() {
                "name" => prompt.name = Some(text(input)?),
                "title" => prompt.title = Some(text(input)?),
                "description" => prompt.description = Some(text(input)?),
                "icon" => prompt.icon = Some(text(input)?),
                "resources" => {
                    let list;
                    syn::bracketed!(list in input);
                    let all = Punctuated::<TemplateLiteral, Token![,]>::parse_terminated(&list)?;
                    prompt.resources = all.into_iter().collect();
                }
                unknown => return Err(Error::new(key.span(), unknown_key(unknown, &PROMPT_KEYS))),
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(prompt)
    }
}

fn unknown_key(unknown: &str, keys: &[&str]) -> String {
    match closest(unknown, keys.iter().copied()) {
        Some(known) => format!("unknown key `{unknown}`; did you mean `{known}`?"),
        None => format!("unknown key `{unknown}`; the keys are `{}`", keys.join("`, `")),
    }
}

/// The known word that is most similar to an unknown one; `None` if none is similar.
pub(crate) fn closest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(unknown, known), known))
        .filter(|(similarity, _)| *similarity > 0.75)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, known)| known)
}

fn text(input: ParseStream<'_>) -> Result<LitStr> {
    input.parse().map_err(|error| Error::new(error.span(), "expected a string literal"))
}

fn mime(input: ParseStream<'_>) -> Result<LitStr> {
    let mime = text(input)?;
    let value = mime.value();
    let good = value.split_once('/').is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty());
    if !good || value.contains(char::is_control) {
        return Err(Error::new(mime.span(), "a media type has two parts, as in `text/markdown`"));
    }
    Ok(mime)
}

fn audience(input: ParseStream<'_>) -> Result<Vec<Ident>> {
    let expression: Expr = input.parse()?;
    let wrong = |span| Error::new(span, "the audience is a list of \"user\" and \"assistant\"");
    let Expr::Array(array) = &expression else { return Err(wrong(expression.span())) };
    array
        .elems
        .iter()
        .map(|element| match element {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => match text.value().as_str() {
                "user" => Ok(Ident::new("User", text.span())),
                "assistant" => Ok(Ident::new("Assistant", text.span())),
                _ => Err(wrong(text.span())),
            },
            other => Err(wrong(other.span())),
        })
        .collect()
}

fn priority(input: ParseStream<'_>) -> Result<f64> {
    let literal: Lit = input.parse()?;
    let value = match &literal {
        Lit::Float(number) => number.base10_parse().ok(),
        Lit::Int(number) => number.base10_parse().ok(),
        _ => None,
    };
    value
        .filter(|value| (0.0..=1.0).contains(value))
        .ok_or_else(|| Error::new(literal.span(), "the priority is a number from 0.0 to 1.0"))
}

fn duration(input: ParseStream<'_>) -> Result<(Duration, Span)> {
    let literal = text(input)?;
    match humantime::parse_duration(&literal.value()) {
        Ok(time) if !time.is_zero() => Ok((time, literal.span())),
        _ => Err(Error::new(literal.span(), "expected a duration such as \"300s\" or \"5m\"")),
    }
}

/// `#[complete("…", variable)]`
pub(crate) struct CompleteAttribute {
    pub(crate) pattern: TemplateLiteral,
    pub(crate) variable: Ident,
}

impl Parse for CompleteAttribute {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let pattern: TemplateLiteral = input.parse()?;
        let hint = format!(
            "add the variable to complete, as in `#[complete(\"{}\", {})]`",
            pattern.text.value(),
            pattern.variables().first().unwrap_or(&"id")
        );
        let mut rest = match input.parse::<Token![,]>() {
            Ok(_) => {
                Punctuated::<Ident, Token![,]>::parse_terminated_with(input, Ident::parse_any)?.into_iter()
            }
            Err(_) => return Err(Error::new(pattern.text.span(), hint)),
        };
        match (rest.next(), rest.next()) {
            (Some(variable), None) => Ok(Self { pattern, variable }),
            _ => Err(Error::new(pattern.text.span(), hint)),
        }
    }
}
