//! Templates compiled for matching: literals in normal form, and for each variable the characters that it may match.

use super::parse::{Expression, Modifier, Operator, TemplatePart};
use crate::uri::{authority, path, percent};

/// A compiled template.
pub(super) struct Pattern {
    pub(super) parts: Vec<PatternPart>,
}

pub(super) enum PatternPart {
    Literal(String),
    Expression(ExpressionSlots),
}

/// The variables of one expression.
pub(super) struct ExpressionSlots {
    pub(super) operator: Operator,
    pub(super) slots: Vec<VariableSlot>,
}

/// One occurrence of a variable.
pub(super) struct VariableSlot {
    pub(super) name: String,
    /// The name as it appears in a URI in normal form.
    pub(super) key: String,
    /// The maximum number of characters (prefix modifier).
    pub(super) limit: Option<usize>,
    pub(super) explode: bool,
    pub(super) allowed: AllowedBytes,
}

/// The unescaped ASCII characters that a value may contain, as a bit set of the excluded ones.
#[derive(Clone, Copy)]
pub(super) struct AllowedBytes(u128);

impl AllowedBytes {
    fn without(bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(0, |bits, byte| bits | 1 << byte))
    }

    pub(super) fn allows(self, byte: u8) -> bool {
        byte.is_ascii() && self.0 >> byte & 1 == 0
    }
}

impl Pattern {
    /// Compiles a template. All literals are normalised together, because dot segments and the authority may span several
    /// of them. For this, they are joined into a skeleton, which has a placeholder for each expression.
    pub(super) fn new(parts: &[TemplatePart]) -> Self {
        let expressions: Vec<_> = parts
            .iter()
            .filter_map(|part| match part {
                TemplatePart::Literal(_) => None,
                TemplatePart::Expression(expression) => Some(expression),
            })
            .collect();
        let skeleton: String = parts
            .iter()
            .map(|part| match part {
                TemplatePart::Literal(literal) => literal.as_str(),
                TemplatePart::Expression(_) => EXPRESSION_PLACEHOLDER,
            })
            .collect();
        let operators: Vec<_> = expressions.iter().map(|expression| expression.operator).collect();
        let skeleton = normalise(&skeleton, &operators);

        let mut parts = Vec::new();
        let mut expressions = expressions.into_iter();
        let mut rest = skeleton.as_str();
        let mut queried = false;
        while !rest.is_empty() {
            let end = rest.find(EXPRESSION_PLACEHOLDER).unwrap_or(rest.len());
            let (literal, after) = rest.split_at(end);
            if !literal.is_empty() {
                queried |= literal.contains('?');
                parts.push(PatternPart::Literal(literal.into()));
            }
            if let Some(expression) = expressions.next().filter(|_| !after.is_empty()) {
                let later = LaterParts {
                    query: after.contains('?') || has(expressions.as_slice(), Operator::Query),
                    fragment: after.contains('#') || has(expressions.as_slice(), Operator::Fragment),
                };
                parts.push(PatternPart::Expression(compile_expression(expression, queried, later)));
                queried |= expression.operator == Operator::Query;
            }
            rest = after.strip_prefix(EXPRESSION_PLACEHOLDER).unwrap_or(after);
        }
        Self { parts }
    }
}

fn has(expressions: &[&Expression], operator: Operator) -> bool {
    expressions.iter().any(|expression| expression.operator == operator)
}

/// Whether the rest of the template has a query or a fragment.
struct LaterParts {
    query: bool,
    fragment: bool,
}

/// Compiles an expression. `queried` is true if a query begins before the expression.
fn compile_expression(expression: &Expression, queried: bool, later: LaterParts) -> ExpressionSlots {
    let operator = expression.operator;
    let slots = expression
        .variables
        .iter()
        .map(|variable| {
            let explode = variable.modifier == Modifier::Explode;
            let stops: &[u8] = match operator {
                Operator::Reserved | Operator::Fragment => match later {
                    LaterParts { query: true, fragment: true } => b"?#",
                    LaterParts { query: true, fragment: false } => b"?",
                    LaterParts { query: false, fragment: true } => b"#",
                    LaterParts { query: false, fragment: false } => b"",
                },
                Operator::Path if explode => b"?#",
                Operator::Simple | Operator::Label if queried => b"/?#&",
                Operator::Simple | Operator::Label | Operator::Path => b"/?#",
                Operator::Parameter => b"/?#;",
                Operator::Query | Operator::Continuation => b"#&",
            };
            VariableSlot {
                name: variable.name.clone(),
                key: percent::normalise(&variable.name, false),
                limit: match variable.modifier {
                    Modifier::Prefix(length) => Some(length),
                    Modifier::None | Modifier::Explode => None,
                },
                explode,
                allowed: AllowedBytes::without(stops),
            }
        })
        .collect();
    ExpressionSlots { operator, slots }
}

/// The placeholder of an expression in the skeleton of a template. The parser rejects this character in literals.
const EXPRESSION_PLACEHOLDER: &str = "\0";

/// Normalises the literals of a template like [`Uri`](crate::Uri), as far as possible without the values of the
/// expressions.
fn normalise(skeleton: &str, operators: &[Operator]) -> String {
    let Some(colon) = skeleton.find([':', '/', '?', '#', '\0']).filter(|&at| skeleton[at..].starts_with(':'))
    else {
        return percent::normalise(skeleton, false);
    };
    let scheme = skeleton[..colon].to_ascii_lowercase();
    let mut out = format!("{scheme}:");
    let mut path = colon + 1;
    let mut web = false;
    if skeleton[path..].starts_with("//") {
        let start = path + 2;
        path = find_end(skeleton, start, operators, |byte, operator| {
            matches!(byte, b'/' | b'?' | b'#')
                || matches!(
                    operator,
                    Some(Operator::Reserved | Operator::Path | Operator::Query | Operator::Fragment)
                )
        });
        web = authority::is_web(&scheme) && ends_at(skeleton, path, operators);
        let slash = operator_at(skeleton, path, operators) == Some(Operator::Path);
        let open = !slash && !ends_at(skeleton, path, operators);
        out.push_str("//");
        out.push_str(&normal_authority(&scheme, &skeleton[start..path], open));
    }
    let tail = find_end(skeleton, path, operators, |byte, operator| {
        matches!(byte, b'?' | b'#') || matches!(operator, Some(Operator::Query | Operator::Fragment))
    });
    let segments = percent::normalise(&skeleton[path..tail], false);
    if segments.is_empty() && web {
        out.push('/');
    }
    // Dot segments are resolved only before the first expression: a later dot segment might remove the value of the
    // expression. A later dot segment stays in the pattern, so that the pattern matches no URI: URIs have no dot
    // segments.
    let fixed = match segments.find(EXPRESSION_PLACEHOLDER) {
        Some(expression) => segments[..expression].rfind('/').map_or(0, |slash| slash + 1),
        // The value of a `{&var}` without a query before it is a part of the last segment.
        None if ends_at(skeleton, tail, operators) && !operators.contains(&Operator::Continuation) => {
            segments.len()
        }
        None => segments.rfind('/').map_or(0, |slash| slash + 1),
    };
    out.push_str(&path::remove_dots(&segments[..fixed]));
    out.push_str(&segments[fixed..]);
    out.push_str(&percent::normalise(&skeleton[tail..], false));
    out
}

/// Whether the component before `at` ends there, whatever the values of the following expressions.
fn ends_at(skeleton: &str, at: usize, operators: &[Operator]) -> bool {
    let rest = &skeleton[at..];
    let before = skeleton[..at].matches(EXPRESSION_PLACEHOLDER).count();
    let tail = |operator: &Operator| {
        matches!(operator, Operator::Query | Operator::Continuation | Operator::Fragment)
    };
    rest.starts_with(['/', '?', '#'])
        || rest.chars().all(|character| character == '\0') && operators[before..].iter().all(tail)
}

/// Normalises an authority. `open` is true if an expression follows whose value may belong to the authority.
fn normal_authority(scheme: &str, text: &str, open: bool) -> String {
    let (user, host) = text.rsplit_once('@').map_or(("", text), |(user, _)| text.split_at(user.len() + 1));
    let host = match host.rsplit_once(':') {
        Some((name, port)) if !open && authority::is_default_port(scheme, port) => name,
        _ => host,
    };
    percent::normalise(user, false) + &percent::normalise(host, authority::has_host(scheme))
}

/// The position of the first byte or expression from `start` on for which `stops` returns `true`; the length of the
/// skeleton if there is none.
fn find_end(
    skeleton: &str,
    start: usize,
    operators: &[Operator],
    stops: impl Fn(u8, Option<Operator>) -> bool,
) -> usize {
    let bytes = skeleton.as_bytes();
    (start..bytes.len())
        .find(|&at| stops(bytes[at], operator_at(skeleton, at, operators)))
        .unwrap_or(bytes.len())
}

/// The operator of the expression at `at`; `None` if there is no expression.
fn operator_at(skeleton: &str, at: usize, operators: &[Operator]) -> Option<Operator> {
    if !skeleton[at..].starts_with(EXPRESSION_PLACEHOLDER) {
        return None;
    }
    operators.get(skeleton[..at].matches(EXPRESSION_PLACEHOLDER).count()).copied()
}
