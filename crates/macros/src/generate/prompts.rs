//! Generates the methods of `Source` for the `#[prompt]` functions of a block.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::{call, value_ident};
use crate::attribute::PromptAttribute;
use crate::block::Block;
use crate::function::{Function, FunctionArgument, Multiplicity};

/// The methods that list prompts and create their messages; `None` if there are no prompts.
pub(super) fn methods(block: &Block) -> Option<TokenStream> {
    if block.prompts.is_empty() {
        return None;
    }
    let listed = block.prompts.iter().map(|(prompt, description, function)| {
        let listed = prompt_expression(prompt, description.as_deref(), function);
        let cfg = &function.cfg;
        quote!(#(#cfg)* prompts.push(#listed);)
    });
    let arms = block.prompts.iter().map(|(prompt, _, function)| {
        let name = function.prompt_name(prompt);
        let (before, call) = call(function);
        let value = value_ident(function);
        let into = quote_spanned!(function.output=> ::libris::IntoPromptMessages::into_prompt_messages);
        let cfg = &function.cfg;
        quote! {
            #(#cfg)*
            #name => {
                #before
                let #value = #call;
                #into(#value)
            }
        }
    });
    Some(quote! {
        async fn prompts(&self, _: &::libris::Context) -> ::libris::Result<::libris::Prompts> {
            let mut prompts = ::std::vec::Vec::new();
            #(#listed)*
            ::core::result::Result::Ok(::core::convert::From::from(prompts))
        }

        async fn prompt(
            &self,
            name: &str,
            arguments: &::std::collections::BTreeMap<::std::string::String, ::std::string::String>,
            context: &::libris::Context,
        ) -> ::libris::Result<::core::option::Option<::std::vec::Vec<::libris::PromptMessage>>> {
            let _ = (arguments, context);
            match name {
                #(#arms,)*
                _ => ::core::result::Result::Ok(::core::option::Option::None),
            }
        }
    })
}

/// The expression that creates the `Prompt` of a function; `description` is its doc comment.
fn prompt_expression(
    prompt: &PromptAttribute,
    description: Option<&str>,
    function: &Function,
) -> TokenStream {
    let name = function.prompt_name(prompt);
    let mut fields = Vec::new();
    if let Some(title) = &prompt.title {
        fields.push(quote!(prompt.title = ::core::option::Option::Some(#title.to_owned());));
    }
    let explicit = prompt.description.as_ref().map(syn::LitStr::value);
    if let Some(description) = explicit.as_deref().or(description) {
        fields.push(quote!(prompt.description = ::core::option::Option::Some(#description.to_owned());));
    }
    if let Some(icon) = &prompt.icon {
        fields.push(quote!(prompt.icons.push(::libris::__private::icon(#icon));));
    }
    for argument in &function.arguments {
        if let FunctionArgument::Prompt { name, multiplicity, .. } = argument {
            let new = match multiplicity {
                Multiplicity::Optional => quote!(optional),
                Multiplicity::One | Multiplicity::List => quote!(required),
            };
            fields.push(quote!(prompt.arguments.push(::libris::PromptArgument::#new(#name));));
        }
    }
    for resource in &prompt.resources {
        let text = &resource.text;
        fields.push(quote!(prompt.resources.push(::libris::UriTemplate::parse(#text)?);));
    }
    quote! {{
        #[allow(unused_mut)]
        let mut prompt = ::libris::Prompt::new(#name);
        #(#fields)*
        prompt
    }}
}
