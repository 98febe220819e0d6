//! Parses the functions of a block, and checks their parameters against the template.

use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Error, FnArg, GenericArgument, GenericParam, Ident, ImplItemFn, Pat, PathArguments, Receiver,
    ReceiverKind, Result, ReturnType, Type,
};

use crate::attribute::{CompleteAttribute, PromptAttribute, TemplateLiteral, closest};

/// A function with one of the attributes.
pub(crate) struct Function {
    pub(crate) name: Ident,
    pub(crate) is_async: bool,
    pub(crate) arguments: Vec<FunctionArgument>,
    /// The span of the return type.
    pub(crate) output: Span,
    /// The `cfg` attributes.
    pub(crate) cfg: Vec<Attribute>,
}

/// The value that the generated code passes for a parameter of a function.
pub(crate) enum FunctionArgument {
    Variable {
        name: String,
        ty: Type,
        multiplicity: Multiplicity,
    },
    /// In a completion: the value of another variable, if it is known.
    Known {
        name: String,
        ty: Type,
    },
    /// The value of an argument of a prompt.
    Prompt {
        name: String,
        ty: Type,
        multiplicity: Multiplicity,
    },
    /// In a completion: the typed text.
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

/// How many values a variable of a template, or an argument of a prompt, can have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Multiplicity {
    One,
    Optional,
    List,
}

/// A parameter of a function.
struct FunctionParameter<'a> {
    name: &'a Ident,
    ty: &'a Type,
}

impl Function {
    /// Parses a `#[resource]` function.
    pub(crate) fn of_resource(item: &ImplItemFn, pattern: &TemplateLiteral) -> Result<Self> {
        let parameters = parameters(item)?;
        let template = &pattern.template;
        let mut arguments = Vec::new();
        let mut missing = pattern.variables();
        for parameter in &parameters {
            if let Some(argument) = special_argument(parameter.ty) {
                arguments.push(argument);
                continue;
            }
            let Some(name) = variable_of(parameter.name, pattern) else {
                let unknown = parameter.name.unraw().to_string();
                return Err(Error::new(pattern.text.span(), unknown_parameter(&unknown, item, pattern)));
            };
            let (multiplicity, ty) = multiplicity(parameter.ty);
            let wanted = match (template.explodes(&name), template.is_optional(&name)) {
                (true, _) => Multiplicity::List,
                (false, true) => Multiplicity::Optional,
                (false, false) => Multiplicity::One,
            };
            if multiplicity != wanted {
                return Err(Error::new(parameter.ty.span(), wrong_multiplicity(&name, wanted, ty)));
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

    /// Parses a `#[complete]` function.
    pub(crate) fn of_completion(item: &ImplItemFn, complete: &CompleteAttribute) -> Result<Self> {
        let pattern = &complete.pattern;
        let parameters = parameters(item)?;
        let mut arguments = Vec::new();
        for (at, parameter) in parameters.iter().enumerate() {
            let other =
                variable_of(parameter.name, pattern).is_some_and(|name| complete.variable.unraw() != name);
            if at == 0 && is_str(parameter.ty) && !other {
                arguments.push(FunctionArgument::Typed);
                continue;
            }
            if let Some(argument) = caller_argument(parameter.ty) {
                arguments.push(argument);
                continue;
            }
            let hint = "a `#[complete]` function takes the typed text as `typed: &str`, then other variables of the \
                        template as `Option`s, or a `&Context`";
            let Some(name) = variable_of(parameter.name, pattern) else {
                return Err(Error::new(parameter.name.span(), hint));
            };
            let (Multiplicity::Optional, ty) = multiplicity(parameter.ty) else {
                return Err(Error::new(parameter.ty.span(), hint));
            };
            arguments.push(FunctionArgument::Known { name, ty: ty.clone() });
        }
        Self::new(item, arguments)
    }

    /// Parses a `#[list]` function.
    pub(crate) fn of_list(item: &ImplItemFn) -> Result<Self> {
        let argument = |parameter: &FunctionParameter<'_>| {
            let hint = "`#[list]` functions take `&self`, and a `&Context` or an `Option<&Identity>`";
            caller_argument(parameter.ty).ok_or_else(|| Error::new(parameter.name.span(), hint))
        };
        Self::new(item, parameters(item)?.iter().map(argument).collect::<Result<_>>()?)
    }

    /// Parses a `#[changes]` function.
    pub(crate) fn of_changes(item: &ImplItemFn) -> Result<Self> {
        match parameters(item)?.first() {
            Some(parameter) => {
                let message = "a `#[changes]` function takes nothing but `&self`";
                Err(Error::new(parameter.name.span(), message))
            }
            None => Self::new(item, Vec::new()),
        }
    }

    /// Parses a `#[prompt]` function, whose parameters are the arguments of the prompt.
    pub(crate) fn of_prompt(item: &ImplItemFn, prompt: &PromptAttribute) -> Result<Self> {
        let mut arguments = Vec::new();
        for parameter in &parameters(item)? {
            if let Some(argument) = caller_argument(parameter.ty) {
                arguments.push(argument);
                continue;
            }
            let (multiplicity, ty) = multiplicity(parameter.ty);
            if multiplicity == Multiplicity::List {
                let message = "an argument of a prompt has one value: use `String`, or `Option<String>` if it is optional";
                return Err(Error::new(parameter.ty.span(), message));
            }
            let name = parameter.name.unraw().to_string();
            arguments.push(FunctionArgument::Prompt { name, ty: ty.clone(), multiplicity });
        }
        let has = |variable: &str| {
            let is = |argument: &FunctionArgument| matches!(argument, FunctionArgument::Prompt { name, .. } if name == variable);
            arguments.iter().any(is)
        };
        for resource in &prompt.resources {
            if let Some(variable) = resource.variables().into_iter().find(|variable| !has(variable)) {
                let message = format!(
                    "the template has a variable `{variable}`, but the function `{}` has no parameter of that name",
                    item.sig.ident
                );
                return Err(Error::new(resource.text.span(), message));
            }
        }
        Self::new(item, arguments)
    }

    /// The name of the prompt of this function.
    pub(crate) fn prompt_name(&self, prompt: &PromptAttribute) -> String {
        prompt.name.as_ref().map_or_else(|| self.name.unraw().to_string(), syn::LitStr::value)
    }

    fn new(item: &ImplItemFn, arguments: Vec<FunctionArgument>) -> Result<Self> {
        let output = match &item.sig.output {
            ReturnType::Type(_, ty) => ty.span(),
            ReturnType::Default => {
                let message = format!("`{}` has no return type; return the contents", item.sig.ident);
                return Err(Error::new(item.sig.ident.span(), message));
            }
        };
        let (name, is_async) = (item.sig.ident.clone(), item.sig.asyncness.is_some());
        let cfg = item.attrs.iter().filter(|attribute| attribute.path().is_ident("cfg")).cloned().collect();
        Ok(Self { name, is_async, arguments, output, cfg })
    }

    /// Whether the function takes the identity of the caller as a parameter. A function that takes a `&Context` may use the
    /// identity too; the context records that at run time.
    pub(crate) fn depends_on_caller(&self) -> bool {
        let is_identity = |argument: &FunctionArgument| {
            matches!(argument, FunctionArgument::Identity { .. } | FunctionArgument::OptionalIdentity { .. })
        };
        self.arguments.iter().any(is_identity)
    }

    /// Whether a `#[complete]` function takes the typed text, and so selects the matching values itself.
    pub(crate) fn filters_values(&self) -> bool {
        self.arguments.iter().any(|argument| matches!(argument, FunctionArgument::Typed))
    }
}

/// The parameters after `&self`. Fails if the function is generic or does not take `&self`.
fn parameters(item: &ImplItemFn) -> Result<Vec<FunctionParameter<'_>>> {
    let signature = &item.sig;
    let mut generics = signature.generics.params.iter();
    if let Some(parameter) = generics.find(|parameter| !matches!(parameter, GenericParam::Lifetime(_))) {
        let message = "a resource function cannot be generic; use concrete types";
        return Err(Error::new(parameter.span(), message));
    }
    let mut inputs = signature.inputs.iter();
    let by_reference = |receiver: &Receiver| matches!(receiver.kind, ReceiverKind::Reference(_, _, None));
    match inputs.next() {
        Some(FnArg::Receiver(receiver)) if by_reference(receiver) => {}
        _ => {
            let message = format!("`{}` must take `&self`, because it is called many times", signature.ident);
            return Err(Error::new(signature.ident.span(), message));
        }
    }
    inputs
        .map(|input| match input {
            FnArg::Typed(typed) => match &*typed.pat {
                Pat::Ident(name) => Ok(FunctionParameter { name: &name.ident, ty: &typed.ty }),
                other => Err(Error::new(other.span(), "name the parameter like a variable of the template")),
            },
            FnArg::Receiver(other) => Err(Error::new(other.span(), "`self` must be the first parameter")),
        })
        .collect()
}

/// The variable of the template that a parameter names; `None` if there is none. The name of an unused parameter may begin
/// with `_`.
fn variable_of(parameter: &Ident, pattern: &TemplateLiteral) -> Option<String> {
    let name = parameter.unraw().to_string();
    let variables = pattern.variables();
    let unused = name.trim_start_matches('_');
    [name.as_str(), unused].into_iter().find(|name| variables.contains(name)).map(str::to_owned)
}

fn unknown_parameter(unknown: &str, item: &ImplItemFn, pattern: &TemplateLiteral) -> String {
    let function = &item.sig.ident;
    match closest(unknown, pattern.variables()) {
        Some(known) => format!(
            "the function `{function}` has a parameter `{unknown}`, which is not a variable of this template; did you \
             mean `{known}`?"
        ),
        None => format!(
            "the function `{function}` has a parameter `{unknown}`, but the template has {}",
            pattern.describe_variables()
        ),
    }
}

fn wrong_multiplicity(name: &str, wanted: Multiplicity, ty: &Type) -> String {
    let ty = type_text(ty);
    match wanted {
        Multiplicity::One => format!("`{name}` always has one value: use `{ty}`"),
        Multiplicity::Optional => format!("`{name}` is optional in the template: use `Option<{ty}>`"),
        Multiplicity::List => format!("`{name}` has a `*` and thus any number of values: use `Vec<{ty}>`"),
    }
}

fn type_text(ty: &Type) -> String {
    let text = quote::quote!(#ty).to_string();
    text.replace(" < ", "<")
        .replace(" <", "<")
        .replace("< ", "<")
        .replace(" >", ">")
        .replace(" :: ", "::")
        .replace("& ", "&")
        .replace(" ,", ",")
}

/// The argument for a parameter whose type shows that it is not a variable: `Context`, `Uri` or `Identity`.
fn special_argument(ty: &Type) -> Option<FunctionArgument> {
    match ty {
        Type::Group(group) => special_argument(&group.elem),
        Type::Reference(reference) => match last_segment(&reference.elem)?.0.to_string().as_str() {
            "Context" => Some(FunctionArgument::Context),
            "Uri" => Some(FunctionArgument::Uri),
            "Identity" => Some(FunctionArgument::Identity { borrowed: true }),
            _ => None,
        },
        ty => {
            let (name, inner) = last_segment(ty)?;
            match (name.to_string().as_str(), inner) {
                ("Identity", _) => Some(FunctionArgument::Identity { borrowed: false }),
                ("Option", Some(inner)) => match special_argument(inner)? {
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

/// The argument for a parameter that describes the caller, in a `#[complete]`, `#[list]` or `#[prompt]` function;
/// `None` for other parameters.
fn caller_argument(ty: &Type) -> Option<FunctionArgument> {
    special_argument(ty).filter(|argument| {
        matches!(argument, FunctionArgument::Context | FunctionArgument::OptionalIdentity { .. })
    })
}

/// The multiplicity of a parameter type, and the type of one value.
fn multiplicity(ty: &Type) -> (Multiplicity, &Type) {
    match last_segment(ty) {
        Some((name, Some(inner))) if name == "Option" => (Multiplicity::Optional, inner),
        Some((name, Some(inner))) if name == "Vec" => (Multiplicity::List, inner),
        _ => (Multiplicity::One, ty),
    }
}

/// The last segment of a type path, and its type argument if it has exactly one. `None` if the type is not a path.
fn last_segment(ty: &Type) -> Option<(&Ident, Option<&Type>)> {
    let path = match ty {
        // A type that a `macro_rules!` macro of the user has inserted is in an invisible group.
        Type::Group(group) => return last_segment(&group.elem),
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
        Type::Reference(reference) => last_segment(&reference.elem).is_some_and(|(name, _)| name == "str"),
        _ => false,
    }
}
