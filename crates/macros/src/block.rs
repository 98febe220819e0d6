//! Parses an `impl` block and the attributes of its functions.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote};
use syn::ext::IdentExt as _;
use syn::{Attribute, Error, Expr, ExprLit, ImplItem, ImplItemFn, ItemImpl, Lit, Meta, Result};

use crate::attribute::{CompleteAttribute, PromptAttribute, ResourceAttribute, TemplateLiteral, closest};
use crate::function::Function;
use crate::generate;

/// The functions of a block with their attributes. For resources and prompts, the second element is the doc comment of the
/// function.
#[derive(Default)]
pub(crate) struct Block {
    pub(crate) resources: Vec<(ResourceAttribute, Option<String>, Function)>,
    pub(crate) completions: Vec<(CompleteAttribute, Function)>,
    pub(crate) lists: Vec<(TemplateLiteral, Function)>,
    pub(crate) changes: Option<Function>,
    pub(crate) prompts: Vec<(PromptAttribute, Option<String>, Function)>,
}

pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut implementation: ItemImpl = match syn::parse2(item.clone()) {
        Ok(implementation) => implementation,
        Err(_) => {
            let message = "`#[resources]` is only valid on an `impl` block, as in `#[libris::resources] impl Docs { … }`";
            return quote!(::core::compile_error!(#message); #item);
        }
    };
    let parsed = parse(arguments, &mut implementation);
    let source = match parsed.and_then(|block| generate::source(&implementation, &block)) {
        Ok(source) => source,
        Err(error) => {
            let error = error.to_compile_error();
            let stub = implementation.trait_.is_none().then(|| generate::stub(&implementation));
            quote!(#error #stub)
        }
    };
    quote!(#implementation #source)
}

/// Parses the attributes of the functions of a block, and removes the attributes from the functions. Reports the errors
/// of all functions at once.
fn parse(arguments: TokenStream, implementation: &mut ItemImpl) -> Result<Block> {
    let mut block = Block::default();
    let mut wrong: Option<Error> = None;
    let mut record = |outcome: Result<()>| {
        if let Err(error) = outcome {
            match &mut wrong {
                Some(wrong) => wrong.combine(error),
                None => wrong = Some(error),
            }
        }
    };
    if !arguments.is_empty() {
        record(Err(Error::new_spanned(
            arguments,
            "`#[resources]` takes no arguments; put them on each `#[resource]`",
        )));
    }
    if let Some((name, _)) = &implementation.trait_ {
        let message = "`#[resources]` does not support trait implementations; use an inherent `impl` block";
        record(Err(Error::new_spanned(name, message)));
    }
    for item in &mut implementation.items {
        let ImplItem::Fn(function) = item else { continue };
        let mut ours = Vec::new();
        let mut others = Vec::new();
        for attribute in std::mem::take(&mut function.attrs) {
            match attribute_kind(&attribute) {
                Some(kind) => ours.push((kind, attribute)),
                None => others.push(attribute),
            }
        }
        function.attrs = others;
        for (kind, attribute) in ours {
            record(block.add(kind, &attribute, function));
        }
    }
    record(block.check());
    if block.resources.is_empty() && block.prompts.is_empty() {
        let message = "this block has no `#[resource(\"…\")]` function; add one";
        let here = implementation.self_ty.to_token_stream();
        wrong = Some(wrong.unwrap_or_else(|| Error::new_spanned(here, message)));
    }
    wrong.map_or(Ok(block), Err)
}

#[derive(Clone, Copy)]
enum AttributeKind {
    Resource,
    Complete,
    List,
    Changes,
    Prompt,
}

/// The kind of one of our attributes, written as `#[resource]` or as `#[libris::resource]`; `None` for other attributes.
fn attribute_kind(attribute: &Attribute) -> Option<AttributeKind> {
    let path = &attribute.path().segments;
    let last = path.last()?;
    if path.len() > 2 || (path.len() == 2 && path[0].ident != "libris") {
        return None;
    }
    match last.ident.to_string().as_str() {
        "resource" => Some(AttributeKind::Resource),
        "complete" => Some(AttributeKind::Complete),
        "list" => Some(AttributeKind::List),
        "changes" => Some(AttributeKind::Changes),
        "prompt" => Some(AttributeKind::Prompt),
        _ => None,
    }
}

impl Block {
    fn add(&mut self, kind: AttributeKind, attribute: &Attribute, function: &ImplItemFn) -> Result<()> {
        match kind {
            AttributeKind::Resource => {
                let resource: ResourceAttribute = arguments(attribute)?;
                let parsed = Function::of_resource(function, &resource.pattern)?;
                if let Some((_, span)) = resource.cache.filter(|_| parsed.depends_on_caller()) {
                    let message = "a result that depends on the caller cannot be cached for others: remove `cache` \
                                   or the `Identity`";
                    return Err(Error::new(span, message));
                }
                self.resources.push((resource, description(&function.attrs), parsed));
            }
            AttributeKind::Complete => {
                let complete: CompleteAttribute = arguments(attribute)?;
                let parsed = Function::of_completion(function, &complete)?;
                self.completions.push((complete, parsed));
            }
            AttributeKind::List => {
                let pattern: TemplateLiteral = arguments(attribute)?;
                self.lists.push((pattern, Function::of_list(function)?));
            }
            AttributeKind::Changes => {
                let parsed = Function::of_changes(function)?;
                if parsed.is_async || self.changes.is_some() {
                    let message = "a block has at most one `#[changes]` function, which must not be `async`";
                    return Err(Error::new_spanned(&function.sig.ident, message));
                }
                self.changes = Some(parsed);
            }
            AttributeKind::Prompt => {
                let prompt: PromptAttribute = match &attribute.meta {
                    Meta::Path(_) => PromptAttribute::default(),
                    _ => arguments(attribute)?,
                };
                let parsed = Function::of_prompt(function, &prompt)?;
                self.prompts.push((prompt, description(&function.attrs), parsed));
            }
        }
        Ok(())
    }

    /// Checks that the functions are consistent: there are no duplicates, and the templates of `#[complete]` and
    /// `#[list]` belong to a `#[resource]`.
    fn check(&self) -> Result<()> {
        for (at, (resource, _, function)) in self.resources.iter().enumerate() {
            // Functions with a `cfg` attribute are not checked, because only one of them may be compiled.
            let same = |(other, _, parsed): &(ResourceAttribute, _, Function)| {
                parsed.cfg.is_empty() && other.pattern.shape() == resource.pattern.shape()
            };
            if function.cfg.is_empty() && self.resources[..at].iter().any(same) {
                let message = "another function already has this URI";
                return Err(Error::new(resource.pattern.text.span(), message));
            }
        }
        for (at, (complete, function)) in self.completions.iter().enumerate() {
            self.check_template(&complete.pattern)?;
            let variable = complete.variable.unraw().to_string();
            if !complete.pattern.variables().contains(&&*variable) {
                let message = format!("the template has {}", complete.pattern.describe_variables());
                return Err(Error::new(complete.variable.span(), message));
            }
            let same = |(other, parsed): &(CompleteAttribute, Function)| {
                parsed.cfg.is_empty()
                    && other.pattern.template == complete.pattern.template
                    && other.variable.unraw() == variable
            };
            if function.cfg.is_empty() && self.completions[..at].iter().any(same) {
                let message = "another function already completes this variable";
                return Err(Error::new(complete.variable.span(), message));
            }
        }
        for (at, (prompt, _, function)) in self.prompts.iter().enumerate() {
            let name = function.prompt_name(prompt);
            let same = |(other, _, parsed): &(PromptAttribute, _, Function)| {
                parsed.cfg.is_empty() && parsed.prompt_name(other) == name
            };
            if function.cfg.is_empty() && self.prompts[..at].iter().any(same) {
                return Err(Error::new(function.name.span(), format!("another prompt is called `{name}`")));
            }
        }
        for (pattern, _) in &self.lists {
            self.check_template(pattern)?;
            if pattern.variables().is_empty() {
                let message =
                    "a resource without variables is listed anyway; use `#[list]` for templates only";
                return Err(Error::new(pattern.text.span(), message));
            }
        }
        Ok(())
    }

    /// Fails unless a `#[resource]` function of the block has this template.
    fn check_template(&self, pattern: &TemplateLiteral) -> Result<()> {
        let all = || self.resources.iter().map(|(resource, ..)| resource.pattern.template.as_str());
        if all().any(|template| template == pattern.template.as_str()) {
            return Ok(());
        }
        let message = match closest(pattern.template.as_str(), all()) {
            Some(known) => format!("no `#[resource]` here has this template; did you mean `{known}`?"),
            None => "no `#[resource]` here has this template".to_owned(),
        };
        Err(Error::new(pattern.text.span(), message))
    }
}

fn arguments<T: syn::parse::Parse>(attribute: &Attribute) -> Result<T> {
    match &attribute.meta {
        Meta::List(list) => list.parse_args(),
        _ => {
            let name = attribute.path().to_token_stream();
            let message = format!("add the URI, as in `#[{name}(\"docs://documents/{{id}}\")]`");
            Err(Error::new_spanned(attribute, message))
        }
    }
}

/// The doc comment of a function.
fn description(attributes: &[Attribute]) -> Option<String> {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
                let line = text.value();
                Some(line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned())
            }
            _ => None,
        },
        _ => None,
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
