//! Environment variables as resources, such as `env://process/LANG`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;

use async_trait::async_trait;
use libris_core::uri_template::Specificity;
use libris_core::{Content, Contents, Context, Error, Page, Resource, Result, Source, Uri};
use serde::Deserialize;

use crate::registry::{ConfigFile, Definition, OpenedSource, SourceConfig};

/// Environment variables whose values are resources.
///
/// ```toml
/// [environment]
/// variables = ["LANG", "TZ"]
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The names of the variables that are visible.
    pub variables: Vec<String>,
}

impl SourceConfig for Config {
    fn definition(self, _file: &ConfigFile) -> Box<dyn Definition> {
        Box::new(self)
    }
}

impl Definition for Config {
    fn label(&self) -> String {
        "environment".to_owned()
    }

    fn open(&self) -> Result<OpenedSource> {
        Ok(OpenedSource::new(Environment::new(self)?))
    }
}

/// Environment variables as a source.
pub struct Environment {
    resources: BTreeMap<Uri, Resource>,
}

impl Environment {
    /// Checks the names of the variables.
    pub fn new(config: &Config) -> Result<Self> {
        let resource = |name: &String| {
            let uri = Uri::parse(&format!("env://process/{name}"))?;
            Ok((uri.clone(), Resource::new(uri, name)))
        };
        Ok(Self { resources: config.variables.iter().map(resource).collect::<Result<_>>()? })
    }
}

#[async_trait]
impl Source for Environment {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        self.resources.contains_key(uri).then_some(Specificity::EXACT)
    }

    fn name(&self) -> Cow<'_, str> {
        "environment".into()
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, _context: &Context) -> Result<Page> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.resources.range::<Uri, _>((start, Bound::Unbounded));
        let resources = rest.by_ref().take(limit).map(|(_, resource)| resource.clone()).collect();
        Ok(Page { resources, more: rest.next().is_some(), ..Page::default() })
    }

    async fn read(&self, uri: &Uri, _context: &Context) -> Result<Contents> {
        let resource = self.resources.get(uri).ok_or_else(|| Error::NotFound(uri.clone()))?;
        let value = std::env::var(&resource.name).unwrap_or_default();
        Ok(Content::text(uri.clone(), "text/plain", value).into())
    }
}
