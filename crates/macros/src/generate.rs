//! Generates the `Source` implementation of a block.

mod prompts;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{ItemImpl, Result, Type};

use crate::attribute::ResourceAttribute;
use crate::block::Block;
use crate::function::{Function, FunctionArgument, Multiplicity, is_str};

/// A stub implementation of `Source`, generated after an error, so that uses of the type do not cause more errors.
pub(crate) fn stub(implementation: &ItemImpl) -> TokenStream {
    let (generics, _, bounds) = implementation.generics.split_for_impl();
    let this = &implementation.self_ty;
    quote! {
        #[::libris::__private::async_trait]
        impl #generics ::libris::Source for #this #bounds {
            fn covers(&self, _: &::libris::Uri) -> ::core::option::Option<::libris::uri_template::Specificity> {
                ::core::option::Option::None
            }

            async fn list(
                &self,
                _: ::core::option::Option<&::libris::Uri>,
                _: usize,
                _: &::libris::Context,
            ) -> ::libris::Result<::libris::Page> {
                ::core::unreachable!()
            }

            async fn read(
                &self,
                _: &::libris::Uri,
                _: &::libris::Context,
            ) -> ::libris::Result<::libris::Contents> {
                ::core::unreachable!()
            }
        }
    }
}

/// The implementation of `Source` for the type of a block.
pub(crate) fn source(implementation: &ItemImpl, block: &Block) -> Result<TokenStream> {
    let routes = block.resources.iter().enumerate().map(|(at, (resource, description, function))| {
        let spec = resource_spec(resource, description.as_deref(), function);
        let cfg = &function.cfg;
        quote!(#(#cfg)* (#spec, #at))
    });
    let reads = block.resources.iter().enumerate().map(|(at, (_, _, function))| {
        let (before, call) = call(function);
        let value = value_ident(function);
        let into = quote_spanned!(function.output=> ::libris::IntoContents::into_contents);
        let cfg = &function.cfg;
        quote! {
            #(#cfg)*
            #at => {
                #before
                let #value = #call;
                #into(#value, request.uri(), mime.as_deref())?
            }
        }
    });
    let completions = block.completions.iter().map(|(complete, function)| {
        let at = route_index(block, complete.pattern.template.as_str());
        let variable = complete.variable.unraw().to_string();
        let (before, call) = call(function);
        let value = value_ident(function);
        let into = quote_spanned!(function.output=> ::libris::IntoCompletion::into_completion);
        let typed = match function.filters_values() {
            true => quote!(::core::option::Option::None),
            false => quote!(::core::option::Option::Some(partial.typed)),
        };
        let cfg = &function.cfg;
        quote!(#(#cfg)* (::core::option::Option::Some(#at), #variable) => { #before
                let #value = #call; #into(#value, #typed, partial.limit) })
    });
    let lists = block.lists.iter().map(|(pattern, function)| {
        let text = &pattern.text;
        let (before, call) = call(function);
        let value = value_ident(function);
        let into = quote_spanned!(function.output=> ::libris::IntoInstances::into_instances);
        let cfg = &function.cfg;
        quote! {
            #(#cfg)*
            {
                let template = ::libris::UriTemplate::parse(#text)?;
                #before
                let #value = #call;
                listed.extend(routes().instances(&template, #into(#value)?));
            }
        }
    });
    let listed = block.lists.iter().map(|(pattern, function)| {
        let text = &pattern.text;
        let cfg = &function.cfg;
        quote!(#(#cfg)* #text)
    });
    // The results of `#[list]` functions can change at any time, so pages with them have no proof.
    let proof = match block.lists.is_empty() {
        true => quote!(page.freshness = ::libris::Freshness::proven(::libris::Proof::always());),
        false => quote!(),
    };
    let (before, after) = cache_statements(block);
    let whole_list = whole_list(block);
    let watch = watch(block);
    let prompts = prompts::methods(block);
    let (generics, _, bounds) = implementation.generics.split_for_impl();
    let this = &implementation.self_ty;
    Ok(quote! {
        const _: () = {
            fn routes() -> &'static ::libris::__private::Routes<usize> {
                static ROUTES: ::std::sync::LazyLock<::libris::__private::Routes<usize>> =
                    ::std::sync::LazyLock::new(|| {
                        ::libris::__private::Routes::of([#(#routes),*]).expect("the macro has checked the templates")
                    });
                &ROUTES
            }

            #[::libris::__private::async_trait]
            impl #generics ::libris::Source for #this #bounds {
                fn covers(&self, uri: &::libris::Uri)
                    -> ::core::option::Option<::libris::uri_template::Specificity>
                {
                    routes().covers(uri)
                }

                fn name(&self) -> ::std::borrow::Cow<'_, str> {
                    ::std::borrow::Cow::Borrowed(::core::stringify!(#this))
                }

                async fn list(
                    &self,
                    after: ::core::option::Option<&::libris::Uri>,
                    limit: usize,
                    context: &::libris::Context,
                ) -> ::libris::Result<::libris::Page> {
                    let _ = context;
                    #[allow(unused_mut)]
                    let mut listed = ::std::vec::Vec::new();
                    #(#lists)*
                    #[allow(unused_mut)]
                    let mut page = routes().page(listed, after, limit);
                    #proof
                    ::core::result::Result::Ok(page)
                }

                fn span(&self) -> ::core::option::Option<::libris::UriSpan> {
                    routes().span(&[#(#listed),*])
                }

                #whole_list

                fn package(&self) -> ::core::option::Option<::libris::Package> {
                    ::libris::__private::package(
                        ::core::option_env!("CARGO_BIN_NAME"),
                        ::core::option_env!("CARGO_PKG_NAME"),
                        ::core::option_env!("CARGO_PKG_VERSION"),
                    )
                }

                async fn read(
                    &self,
                    uri: &::libris::Uri,
                    context: &::libris::Context,
                ) -> ::libris::Result<::libris::Contents> {
                    #before
                    let (route, request, mime) = routes().request(uri, context)?;
                    #[allow(unused_mut)]
                    let mut contents = match route {
                        #(#reads,)*
                        _ => return ::core::result::Result::Err(::libris::Error::NotFound(uri.clone())),
                    };
                    #after
                    ::core::result::Result::Ok(contents)
                }

                async fn templates(&self, _: &::libris::Context) -> ::libris::Result<::libris::Templates> {
                    ::core::result::Result::Ok(::libris::Templates {
                        templates: routes().templates(),
                        freshness: ::libris::Freshness::proven(::libris::Proof::always()),
                        ..::core::default::Default::default()
                    })
                }

                async fn complete(
                    &self,
                    partial: ::libris::CompletionRequest<'_>,
                    context: &::libris::Context,
                ) -> ::libris::Result<::libris::Completion> {
                    let _ = context;
                    match (routes().template(partial.template), partial.variable) {
                        #(#completions,)*
                        _ => ::core::result::Result::Ok(::core::default::Default::default()),
                    }
                }

                fn is_shared(&self, uri: &::libris::Uri) -> bool {
                    routes().cache_ttl(uri).is_some()
                }

                #prompts

                #watch
            }
        };
    })
}

/// The index of the resource with this template.
fn route_index(block: &Block, template: &str) -> usize {
    let mut all = block.resources.iter();
    all.position(|(resource, ..)| resource.pattern.template.as_str() == template).unwrap_or(usize::MAX)
}

/// The code that sets the TTL and the proof of cached contents: the statements before the call of the function, and those
/// after it. Contents expire after the TTL, or at the next reported change. The proof is created before the call, so that a
/// change during the call invalidates the contents.
fn cache_statements(block: &Block) -> (TokenStream, TokenStream) {
    if block.resources.iter().all(|(resource, ..)| resource.cache.is_none()) {
        return (quote!(), quote!());
    }
    let (before, proof) = match &block.changes {
        Some(function) => {
            let name = &function.name;
            let prove = quote!(contents.freshness.proof = ::core::option::Option::Some(proof););
            (quote!(let proof = Self::#name(self).proof();), prove)
        }
        None => (quote!(), quote!()),
    };
    let after = quote! {
        if let ::core::option::Option::Some(time) = routes().cache_ttl(uri) {
            contents.freshness.ttl = time;
            #proof
        }
    };
    (before, after)
}

/// The method `whole_list`, which lets a catalog cache the results of `#[list]` functions; `None` if there are none. These
/// functions return the whole list for every page.
fn whole_list(block: &Block) -> Option<TokenStream> {
    if block.lists.is_empty() {
        return None;
    }
    let depends_on_caller =
        block.lists.iter().flat_map(|(_, function)| &function.arguments).any(|argument| {
            matches!(
                argument,
                FunctionArgument::Context
                    | FunctionArgument::Identity { .. }
                    | FunctionArgument::OptionalIdentity { .. }
            )
        });
    let scope = match depends_on_caller {
        true => quote!(::libris::CacheScope::Private),
        false => quote!(::libris::CacheScope::Public),
    };
    let proof = match &block.changes {
        Some(function) => {
            let name = &function.name;
            quote!(Self::#name(self).list_proof())
        }
        None => quote!(::libris::Proof::always()),
    };
    Some(quote! {
        fn whole_list(&self) -> ::core::option::Option<::libris::Freshness> {
            let freshness = ::libris::Freshness::proven(#proof);
            ::core::option::Option::Some(freshness.with_ttl(::libris::__private::LIST_TTL).with_scope(#scope))
        }
    })
}

/// The method `watch`; `None` if the block has no `#[changes]` function.
fn watch(block: &Block) -> Option<TokenStream> {
    let function = block.changes.as_ref()?;
    let name = &function.name;
    let notifier = quote_spanned!(function.output=> let notifier: &::libris::Notifier = Self::#name(self););
    Some(quote! {
        async fn watch(&self) -> ::libris::Result<
            ::core::option::Option<::libris::__private::BoxStream<'static, ::libris::Change>>
        > {
            #notifier
            ::core::result::Result::Ok(::core::option::Option::Some(notifier.watch()))
        }
    })
}

/// The expression that creates the `ResourceSpec` of a function; `description` is its doc comment.
fn resource_spec(
    resource: &ResourceAttribute,
    description: Option<&str>,
    function: &Function,
) -> TokenStream {
    let uri = &resource.pattern.text;
    let function = function.name.to_string();
    let function = function.strip_prefix("r#").unwrap_or(&function);
    let mut spec = quote!(::libris::ResourceSpec::new(#uri));
    spec = match &resource.name {
        Some(name) => quote!(#spec.name(#name)),
        None => quote!(#spec.name(#function)),
    };
    if let Some(title) = &resource.title {
        spec = quote!(#spec.title(#title));
    }
    if let Some(explicit) = &resource.description {
        spec = quote!(#spec.description(#explicit));
    } else if let Some(description) = description {
        spec = quote!(#spec.description(#description));
    }
    if let Some(mime) = &resource.mime {
        spec = quote!(#spec.mime(#mime));
    }
    if let Some(icon) = &resource.icon {
        spec = quote!(#spec.icon(#icon));
    }
    if !resource.audience.is_empty() {
        let audience = &resource.audience;
        spec = quote!(#spec.audience([#(::libris::Audience::#audience),*]));
    }
    if let Some(priority) = resource.priority {
        spec = quote!(#spec.priority(#priority));
    }
    if let Some((time, _)) = resource.cache {
        let (seconds, nanoseconds) = (time.as_secs(), time.subsec_nanos());
        spec = quote!(#spec.cache(::core::time::Duration::new(#seconds, #nanoseconds)));
    }
    spec
}

/// The name of the variable for a result. It has the span of the return type, so that type errors point there.
fn value_ident(function: &Function) -> Ident {
    Ident::new("value", function.output.resolved_at(Span::call_site()))
}

/// The statements that parse the arguments of a function, and the expression that calls it.
fn call(function: &Function) -> (TokenStream, TokenStream) {
    let name = &function.name;
    let mut before = Vec::new();
    let mut given = Vec::new();
    for (at, argument) in function.arguments.iter().enumerate() {
        let place = format_ident!("argument_{at}", span = Span::mixed_site());
        given.push(match argument {
            FunctionArgument::Typed => quote!(partial.typed),
            FunctionArgument::Context => quote!(context),
            FunctionArgument::Uri => quote!(request.uri()),
            FunctionArgument::Identity { borrowed: true } => quote!(request.identity()?),
            FunctionArgument::Identity { borrowed: false } => quote!(request.identity()?.clone()),
            FunctionArgument::OptionalIdentity { borrowed: true } => quote!(context.identity()),
            FunctionArgument::OptionalIdentity { borrowed: false } => quote!(context.identity().cloned()),
            FunctionArgument::Known { name, ty } => {
                let read = parsed_type(ty);
                before.push(quote_spanned! {ty.span()=>
                    let #place = ::libris::__private::known::<#read>(partial.known, #name);
                });
                pass(&place, ty, Multiplicity::Optional)
            }
            FunctionArgument::Prompt { name, ty, multiplicity } => {
                let read = parsed_type(ty);
                let method = match multiplicity {
                    Multiplicity::Optional => quote_spanned!(ty.span()=> optional_argument),
                    Multiplicity::One | Multiplicity::List => quote_spanned!(ty.span()=> argument),
                };
                before.push(quote_spanned! {ty.span()=>
                    let #place = ::libris::__private::#method::<#read>(arguments, #name)?;
                });
                pass(&place, ty, *multiplicity)
            }
            FunctionArgument::Variable { name, ty, multiplicity } => {
                let read = parsed_type(ty);
                let method = match multiplicity {
                    Multiplicity::One => quote_spanned!(ty.span()=> variable),
                    Multiplicity::Optional => quote_spanned!(ty.span()=> optional),
                    Multiplicity::List => quote_spanned!(ty.span()=> list),
                };
                // The span makes type errors point at the parameter type.
                before.push(quote_spanned!(ty.span()=> let #place = request.#method::<#read>(#name)?;));
                pass(&place, ty, *multiplicity)
            }
        });
    }
    let wait = function.is_async.then(|| quote!(.await));
    (quote!(#(#before)*), quote!(Self::#name(self #(, #given)*)#wait))
}

/// The type to parse a variable as: `String` for `&str`, otherwise the type itself.
fn parsed_type(ty: &Type) -> TokenStream {
    match is_str(ty) {
        true => quote!(::std::string::String),
        false => quote!(#ty),
    }
}

/// The expression that passes a parsed value to the function.
fn pass(place: &Ident, ty: &Type, multiplicity: Multiplicity) -> TokenStream {
    match (is_str(ty), multiplicity) {
        (false, _) => quote!(#place),
        (true, Multiplicity::One) => quote!(&*#place),
        (true, Multiplicity::Optional) => quote!(#place.as_deref()),
        (true, Multiplicity::List) => quote!(#place.iter().map(|text| &**text).collect()),
    }
}
