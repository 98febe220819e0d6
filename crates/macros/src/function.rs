//! The functions of a block, and whether their parameters are what a template gives.

use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Error, FnArg, GenericArgument, GenericParam, Ident, ImplItemFn, Pat, PathArguments, Receiver,
    ReceiverKind, Result, ReturnType, Type,
};

use crate::attribute::{CompleteAttribute, TemplateLiteral, like};

/// A function that is asked for something.
pub(crate) struct Function {
    pub(crate) name: Ident,
    pub(crate) is_async: bool,
    pub(crate) arguments: Vec<FunctionArgument>,
    /// Where what it returns is said.
    pub(crate) output: Span,
    /// On what it depends whether it is there.
    pub(crate) cfg: Vec<Attribute>,
}

/// What a function is given for a parameter.
pub(crate) enum FunctionArgument {
    Variable {
        name: String,
        ty: Type,
        multiplicity: Multiplicity,
    },
    /// Another variable that may be filled in already, where one is completed.
    Known {
        name: String,
        ty: Type,
    },
    /// What has been typed of a variable.
    Typed,
    Context,
    Uri,
    Identity {
        borrowed: bool,
    },
    OptionalIdentity {
        borrowed: bool,
    },
}

/// How often a variable is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Multiplicity {
    One,
    Optional,
    List,
}

/// A parameter as it is written.
struct FunctionParameter<'a> {
    name: &'a Ident,
    ty: &'a Type,
}

impl Function {
    /// A function that makes the resources of a template.
    pub(crate) fn of_resource(item: &ImplItemFn, pattern: &TemplateLiteral) -> Result<Self> {
        let parameters = parameters(item)?;
        let template = &pattern.template;
        let mut arguments = Vec::new();
        let mut missing = pattern.variables();
        for parameter in &parameters {
            if let Some(argument) = special(parameter.ty) {
                arguments.push(argument);
                continue;
            }
            let Some(name) = variable(parameter.name, pattern) else {
                let unknown = parameter.name.unraw().to_string();
                return Err(Error::new(pattern.text.span(), not_there(&unknown, item, pattern)));
            };
            let (multiplicity, ty) = multiplicity(parameter.ty);
            let wanted = match (template.explodes(&name), template.is_optional(&name)) {
                (true, _) => Multiplicity::List,
                (false, true) => Multiplicity::Optional,
                (false, false) => Multiplicity::One,
            };
            if multiplicity != wanted {
                return Err(Error::new(parameter.ty.span(), misfit(&name, wanted, ty)));
            }
            missing.retain(|variable| *variable != name);
            arguments.push(FunctionArgument::Variable { name, ty: ty.clone(), multiplicity });
        }
        if let Some(variable) = missing.first() {
            let message = match syn::parse_str::<Ident>(variable) {
                Ok(_) => format!(
                    "the template has a variable `{variable}`, but the function `{}` has no parameter of that name",
                    item.sig.ident
                ),
                Err(_) => {
                    format!("`{variable}` cannot be the name of a parameter; give the variable another name")
                }
            };
            return Err(Error::new(pattern.text.span(), message));
        }
        Self::new(item, arguments)
    }

    /// A function that offers values for a variable of a template.
    pub(crate) fn of_completion(item: &ImplItemFn, complete: &CompleteAttribute) -> Result<Self> {
        let pattern = &complete.pattern;
        let parameters = parameters(item)?;
        let mut arguments = Vec::new();
        for (at, parameter) in parameters.iter().enumerate() {
            let other =
                variable(parameter.name, pattern).is_some_and(|name| complete.variable.unraw() != name);
            if at == 0 && is_str(parameter.ty) && !other {
                arguments.push(FunctionArgument::Typed);
                continue;
            }
            if let Some(argument) = of_caller(parameter.ty) {
                arguments.push(argument);
                continue;
            }
            let hint = "a completion takes what was typed, as `typed: &str`, and then other variables of the \
                        template, as `Option`s, or a `&Context`";
            let Some(name) = variable(parameter.name, pattern) else {
                return Err(Error::new(parameter.name.span(), hint));
            };
            let (Multiplicity::Optional, ty) = multiplicity(parameter.ty) else {
                return Err(Error::new(parameter.ty.span(), hint));
            };
            arguments.push(FunctionArgument::Known { name, ty: ty.clone() });
        }
        Self::new(item, arguments)
    }

    /// A function that lists what there is of a template.
    pub(crate) fn of_list(item: &ImplItemFn) -> Result<Self> {
        let argument = |parameter: &FunctionParameter<'_>| {
            let hint = "`#[list]` functions take `&self`, and a `&Context` or an `Option<&Identity>`";
            of_caller(parameter.ty).ok_or_else(|| Error::new(parameter.name.span(), hint))
        };
        Self::new(item, parameters(item)?.iter().map(argument).collect::<Result<_>>()?)
    }

    /// A function that gives what changes are told by.
    pub(crate) fn of_changes(item: &ImplItemFn) -> Result<Self> {
        match parameters(item)?.first() {
            Some(parameter) => {
                let message = "a `#[changes]` function takes nothing but `&self`";
                Err(Error::new(parameter.name.span(), message))
            }
            None => Self::new(item, Vec::new()),
        }
    }

    fn new(item: &ImplItemFn, arguments: Vec<FunctionArgument>) -> Result<Self> {
        let output = match &item.sig.output {
            ReturnType::Type(_, ty) => ty.span(),
            ReturnType::Default => {
                let message =
                    format!("`{}` returns nothing, so there would be nothing to give", item.sig.ident);
                return Err(Error::new(item.sig.ident.span(), message));
            }
        };
        let (name, is_async) = (item.sig.ident.clone(), item.sig.asyncness.is_some());
        let cfg = item.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).cloned().collect();
        Ok(Self { name, is_async, arguments, output, cfg })
    }

    /// Whether what it returns depends on who asks.
    pub(crate) fn depends_on_caller(&self) -> bool {
        let told = |argument: &FunctionArgument| {
            matches!(argument, FunctionArgument::Identity { .. } | FunctionArgument::OptionalIdentity { .. })
        };
        self.arguments.iter().any(told)
    }

    pub(crate) fn filters_values(&self) -> bool {
        self.arguments.iter().any(|argument| matches!(argument, FunctionArgument::Typed))
    }
}

fn parameters(item: &ImplItemFn) -> Result<Vec<FunctionParameter<'_>>> {
    let signature = &item.sig;
    let mut generics = signature.generics.params.iter();
    if let Some(parameter) = generics.find(|parameter| !matches!(parameter, GenericParam::Lifetime(_))) {
        let message = "this function cannot be generic: nobody could say for what";
        return Err(Error::new(parameter.span(), message));
    }
    let mut inputs = signature.inputs.iter();
    let by_reference = |receiver: &Receiver| matches!(receiver.kind, ReceiverKind::Reference(_, _, None));
    match inputs.next() {
        Some(FnArg::Receiver(receiver)) if by_reference(receiver) => {}
        _ => {
            let message =
                format!("`{}` must take `&self`: it is called any number of times", signature.ident);
            return Err(Error::new(signature.ident.span(), message));
        }
    }
    inputs
        .map(|input| match input {
            FnArg::Typed(typed) => match &*typed.pat {
                Pat::Ident(name) => Ok(FunctionParameter { name: &name.ident, ty: &typed.ty }),
                other => Err(Error::new(other.span(), "give the parameter the name of a variable")),
            },
            FnArg::Receiver(other) => Err(Error::new(other.span(), "`self` comes first")),
        })
        .collect()
}

/// The variable that a parameter stands for. One that is not used may begin with `_`.
fn variable(parameter: &Ident, pattern: &TemplateLiteral) -> Option<String> {
    let name = parameter.unraw().to_string();
    let variables = pattern.variables();
    let unused = name.trim_start_matches('_');
    [name.as_str(), unused].into_iter().find(|name| variables.contains(name)).map(str::to_owned)
}

fn not_there(unknown: &str, item: &ImplItemFn, pattern: &TemplateLiteral) -> String {
    let function = &item.sig.ident;
    match like(unknown, pattern.variables()) {
        Some(known) => format!(
            "the function `{function}` has a parameter `{unknown}`, which is no variable of this template; did you \
             mean `{known}`?"
        ),
        None => format!(
            "the function `{function}` has a parameter `{unknown}`, but the template has {}",
            pattern.named()
        ),
    }
}

fn misfit(name: &str, wanted: Multiplicity, ty: &Type) -> String {
    let ty = shown(ty);
    match wanted {
        Multiplicity::One => format!("`{name}` always has one value: write `{ty}`"),
        Multiplicity::Optional => format!("`{name}` may be left out of the URI: write `Option<{ty}>`"),
        Multiplicity::List => format!("`{name}` has a `*` and so any number of values: write `Vec<{ty}>`"),
    }
}

fn shown(ty: &Type) -> String {
    let text = quote::quote!(#ty).to_string();
    text.replace(" < ", "<")
        .replace(" <", "<")
        .replace("< ", "<")
        .replace(" >", ">")
        .replace(" :: ", "::")
        .replace("& ", "&")
        .replace(" ,", ",")
}

/// What a parameter of this type is given that is no variable.
fn special(ty: &Type) -> Option<FunctionArgument> {
    match ty {
        Type::Group(group) => special(&group.elem),
        Type::Reference(reference) => match last(&reference.elem)?.0.to_string().as_str() {
            "Context" => Some(FunctionArgument::Context),
            "Uri" => Some(FunctionArgument::Uri),
            "Identity" => Some(FunctionArgument::Identity { borrowed: true }),
            _ => None,
        },
        ty => {
            let (name, inner) = last(ty)?;
            match (name.to_string().as_str(), inner) {
                ("Identity", _) => Some(FunctionArgument::Identity { borrowed: false }),
                ("Option", Some(inner)) => match special(inner)? {
                    FunctionArgument::Identity { borrowed } => {
                        Some(FunctionArgument::OptionalIdentity { borrowed })
                    }
                    _ => None,
                },
                _ => None,
            }
        }
    }
}

/// What a parameter of this type is given where nothing is read: the caller, who may be anybody.
fn of_caller(ty: &Type) -> Option<FunctionArgument> {
    special(ty).filter(|argument| {
        matches!(argument, FunctionArgument::Context | FunctionArgument::OptionalIdentity { .. })
    })
}

/// How often a parameter of this type is there, and the type of what is there.
fn multiplicity(ty: &Type) -> (Multiplicity, &Type) {
    match last(ty) {
        Some((name, Some(inner))) if name == "Option" => (Multiplicity::Optional, inner),
        Some((name, Some(inner))) if name == "Vec" => (Multiplicity::List, inner),
        _ => (Multiplicity::One, ty),
    }
}

/// The last name of a type's path, and the one type in its angle brackets.
fn last(ty: &Type) -> Option<(&Ident, Option<&Type>)> {
    let path = match ty {
        // What a macro of the user's filled in.
        Type::Group(group) => return last(&group.elem),
        Type::Path(path) => path,
        _ => return None,
    };
    let segment = path.path.segments.last()?;
    let inner = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) if arguments.args.len() == 1 => match &arguments.args[0] {
            GenericArgument::Type(ty) => Some(ty),
            _ => None,
        },
        _ => None,
    };
    Some((&segment.ident, inner))
}

pub(crate) fn is_str(ty: &Type) -> bool {
    match ty {
        Type::Group(group) => is_str(&group.elem),
        Type::Reference(reference) => last(&reference.elem).is_some_and(|(name, _)| name == "str"),
        _ => false,
    }
}
