//! Configured queries as resources.

use std::collections::BTreeMap;

use libris_core::uri_template::{VariableValue, Variables};
use libris_core::{Annotations, Error, Resource, Result, Template, Uri, UriTemplate};

use super::config;
use super::contents::ContentsColumns;
use super::dialect::Dialect;
use super::driver::{QueryLimits, Statement};
use super::lexer::{SqlPiece, SqlPieces, pieces};
use super::output::{RowFormat, RowShape};
use super::rows::wrong_type;
use super::value::{BindValue, ValueType, parse};

/// The parameter of a completion query that is bound to the typed text.
const TYPED_PARAMETER: &str = "typed";

/// A validated configured query.
pub(super) struct CheckedQuery {
    config: config::QueryConfig,
    /// The template of the query's URIs, with the parameter `format` if the result is rows.
    pub(super) template: UriTemplate,
    /// The URI of the query, if it has no variables.
    pub(super) fixed: Option<Uri>,
    pub(super) format: RowFormat,
    /// The columns of the contents; `None` if the result is rows.
    pub(super) contents: Option<ContentsColumns>,
    pieces: SqlPieces,
    completions: BTreeMap<String, SqlPieces>,
}

impl CheckedQuery {
    pub(super) fn new(config: config::QueryConfig, dialect: Dialect, format: RowFormat) -> Result<Self> {
        let uri = config.uri.clone();
        let wrong = |why: String| Error::invalid(format!("the query `{uri}` is wrong: {why}"));
        let known: Vec<_> = uri.variables().map(str::to_owned).collect();
        let all = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let check = |pieces: &SqlPieces, extra: &str| {
            let unknown = pieces.pieces.iter().find_map(|piece| match piece {
                SqlPiece::Variable(name) if name != extra && !known.contains(name) => Some(name),
                _ => None,
            });
            match unknown {
                Some(unknown) => Err(format!("its URI has no variable `{unknown}`, only {all}")),
                None => Ok(()),
            }
        };
        let sql = pieces(&config.sql, dialect).map_err(wrong)?;
        check(&sql, "").map_err(wrong)?;
        let mut completions = BTreeMap::new();
        for (variable, sql) in &config.complete {
            let pieces =
                pieces(sql, dialect).map_err(|why| wrong(format!("to complete `{variable}`, {why}")))?;
            check(&pieces, TYPED_PARAMETER).map_err(wrong)?;
            completions.insert(variable.clone(), pieces);
        }
        let named = config.parameters.keys().chain(config.complete.keys());
        if let Some(unknown) = named.into_iter().find(|name| !known.contains(name)) {
            return Err(wrong(format!("its URI has no variable `{unknown}`, only {all}")));
        }
        if config.priority.is_some_and(|priority| !(0.0..=1.0).contains(&priority)) {
            return Err(wrong("its `priority` must be between 0 and 1".to_owned()));
        }
        let fixed = match known.is_empty() {
            true => Some(Uri::parse(uri.as_str())?),
            false => None,
        };
        let contents = ContentsColumns::of(&config).map_err(wrong)?;
        let template = if contents.is_some() { uri.clone() } else { with_format(&uri)? };
        let format = config.format.unwrap_or(format);
        Ok(Self { config, template, fixed, format, contents, pieces: sql, completions })
    }

    /// The configured URI.
    pub(super) fn uri(&self) -> &UriTemplate {
        &self.config.uri
    }

    /// The variables with a completion query.
    pub(super) fn completed(&self) -> impl Iterator<Item = &str> {
        self.completions.keys().map(String::as_str)
    }

    pub(super) fn shape(&self) -> RowShape {
        if self.config.one { RowShape::One } else { RowShape::Many }
    }

    /// The statement of the query, with the values of these variables and with these limits.
    pub(super) fn statement(
        &self,
        dialect: Dialect,
        variables: &Variables,
        bounds: QueryLimits,
    ) -> Result<Statement> {
        let value = |name: &str| match variables.value(name) {
            None => Ok(BindValue::Null),
            Some(VariableValue::Text(text)) => self.value(name, text),
            Some(VariableValue::List(list)) => self.value(name, &list.join(",")),
            Some(VariableValue::Map(_)) => Err(Error::invalid(format!("`{name}` must be one value"))),
        };
        self.fill(&self.pieces, dialect, bounds, value)
    }

    /// The statement for completions of a variable, if one is configured.
    pub(super) fn completion(
        &self,
        dialect: Dialect,
        variable: &str,
        typed: &str,
        known: &BTreeMap<String, String>,
        bounds: QueryLimits,
    ) -> Option<Result<Statement>> {
        let pieces = self.completions.get(variable)?;
        let value = |name: &str| match known.get(name) {
            _ if name == TYPED_PARAMETER => {
                parse(ValueType::Text, typed).map_err(|wanted| wrong_type(variable, wanted, typed))
            }
            Some(text) => self.value(name, text),
            None => Ok(BindValue::Null),
        };
        Some(self.fill(pieces, dialect, bounds, value))
    }

    fn value(&self, name: &str, text: &str) -> Result<BindValue> {
        parse(self.kind(name), text).map_err(|wanted| wrong_type(name, wanted, text))
    }

    fn kind(&self, name: &str) -> ValueType {
        self.config.parameters.get(name).copied().unwrap_or_default()
    }

    /// The statement with a placeholder for each parameter, and the values to bind.
    fn fill(
        &self,
        pieces: &SqlPieces,
        dialect: Dialect,
        bounds: QueryLimits,
        value: impl Fn(&str) -> Result<BindValue>,
    ) -> Result<Statement> {
        let mut sql = String::new();
        let mut binds = Vec::new();
        for piece in &pieces.pieces {
            match piece {
                SqlPiece::Text(text) => sql.push_str(text),
                SqlPiece::Variable(name) => {
                    binds.push(value(name)?);
                    sql.push_str(&dialect.parameter(binds.len(), self.kind(name)));
                }
            }
        }
        let bounds = QueryLimits { ordered: pieces.ordered, ..bounds };
        Ok(Statement { query_limits: Some(bounds), ..Statement::new(sql, binds) })
    }

    fn name(&self) -> String {
        self.config.name.clone().unwrap_or_else(|| self.config.uri.as_str().to_owned())
    }

    fn annotations(&self) -> Annotations {
        Annotations {
            audience: self.config.audience.clone(),
            priority: self.config.priority,
            last_modified: None,
        }
    }

    /// The media type of the result; `None` if it is only known after a read.
    fn mime(&self) -> Option<String> {
        match &self.contents {
            Some(columns) => columns.mime().map(str::to_owned),
            None => Some(self.format.mime().to_owned()),
        }
    }

    /// The listed resource; `None` if the URI of the query has variables.
    pub(super) fn resource(&self) -> Option<Resource> {
        Some(Resource {
            title: self.config.title.clone(),
            description: self.config.description.clone(),
            mime: self.mime(),
            annotations: self.annotations(),
            ..Resource::new(self.fixed.clone()?, self.name())
        })
    }

    pub(super) fn template(&self) -> Template {
        Template {
            title: self.config.title.clone(),
            description: self.config.description.clone(),
            // The caller chooses the format of rows.
            mime: self.mime().filter(|_| self.contents.is_some()),
            annotations: self.annotations(),
            ..Template::new(self.template.clone(), self.name())
        }
    }
}

/// Adds the parameter `format` to a template, unless the template has a variable of this name or a fragment.
fn with_format(uri: &UriTemplate) -> Result<UriTemplate> {
    let text = uri.as_str();
    // After a `#`, a query parameter would be part of the fragment.
    if uri.variables().any(|name| name == "format") || text.contains('#') {
        return Ok(uri.clone());
    }
    let last = text.strip_suffix('}').and_then(|text| text.rfind('{').map(|at| (text, &text[at..])));
    let text = match last {
        Some((head, last)) if last.starts_with("{?") || last.starts_with("{&") => format!("{head},format}}"),
        _ if text.contains('?') => format!("{text}{{&format}}"),
        _ => format!("{text}{{?format}}"),
    };
    UriTemplate::parse(&text)
}
