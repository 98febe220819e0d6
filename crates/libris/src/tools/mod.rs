//! The tools of a server: models search, list and read resources with them.
//!
//! A tool is a client of the view: it sees only resources that the caller may see, and everything that it reads counts
//! against the same limits as `resources/read`. Which tools there are depends on the configuration and on the rights of
//! the caller, not on the client. The tools of the picker are an exception: they are listed only to hosts that show
//! apps.

pub(crate) mod app;
mod arguments;
mod bundle;
mod connector;
mod definition;
mod list;
mod nearby;
pub(crate) mod output;
mod read;
mod search;
pub(crate) mod source;
mod template;
pub(crate) mod untrusted;

use libris_core::{Contents, Context, Error, Freshness, Resource, Uri};
use libris_wire::{Call, Failure};

use self::arguments::ToolArguments;
use self::output::{ToolError, ToolOutput};
use crate::rights::Decision;
use crate::server::ServerInner;
use crate::view::ViewSnapshot;

pub(crate) use self::app::AppTool;
pub(crate) use self::definition::{definitions, page};
pub(crate) use self::template::TemplateTool;

/// The longest title or name in a result, in characters.
pub(crate) const MAX_TITLE: usize = 160;

/// The longest description or note in a result, in characters.
pub(crate) const MAX_DESCRIPTION: usize = 300;

/// Which tools a server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolsConfig {
    /// Whether there are tools. Default: true.
    pub enabled: bool,
    /// Whether there is a tool that bundles the passages that answer a question. Default: false.
    pub bundle: bool,
    /// Whether there is a tool for each URI template, with its variables as arguments. Default: false.
    pub templates: bool,
    /// Whether there are `search` and `fetch` in the shape that the connectors of ChatGPT require. Default: false.
    pub connector: bool,
    /// The links for citations in the results of `search` and `fetch`: in this text, `{path}` is replaced with the path
    /// of the resource below its root, and `{uri}` with its URI. If the text has neither, the path is appended.
    /// Default: the URI of the resource.
    pub citation_base: Option<String>,
}

impl Default for ToolsConfig {
    fn default() -> Self {
        Self { enabled: true, bundle: false, templates: false, connector: false, citation_base: None }
    }
}

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Search,
    Read,
    List,
    Bundle,
    ConnectorSearch,
    ConnectorFetch,
}

impl Tool {
    /// The tools that are configured.
    pub(crate) fn configured(config: &ToolsConfig) -> Vec<Self> {
        if !config.enabled {
            return Vec::new();
        }
        let mut tools = vec![Self::Search, Self::Read, Self::List];
        tools.extend(config.bundle.then_some(Self::Bundle));
        if config.connector {
            tools.extend([Self::ConnectorSearch, Self::ConnectorFetch]);
        }
        tools
    }

    /// The name of the tool.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Search => "search_resources",
            Self::Read => "read_resource",
            Self::List => "list_resources",
            Self::Bundle => "bundle_resources",
            Self::ConnectorSearch => "search",
            Self::ConnectorFetch => "fetch",
        }
    }

    /// Whether a built-in tool has this name in any configuration. No tool for a template gets such a name.
    fn is_reserved(name: &str) -> bool {
        let all = ToolsConfig { bundle: true, connector: true, ..ToolsConfig::default() };
        Self::named(name, &all).is_some() || AppTool::named(name).is_some()
    }

    /// The tool of this name, if it is configured.
    pub(crate) fn named(name: &str, config: &ToolsConfig) -> Option<Self> {
        Self::configured(config).into_iter().find(|tool| tool.name() == name)
    }
}

/// The URI by which rules can deny a tool.
pub(crate) fn uri_of(name: &str) -> Option<Uri> {
    Uri::parse(&format!("libris://tools/{}", Uri::encode_segment(name.as_bytes()))).ok()
}

/// The decision of a caller's rights about a tool.
pub(crate) fn decide(view: &ViewSnapshot<'_>, name: &str) -> Decision {
    uri_of(name).map_or(Decision::Deny, |uri| view.rights().decide_feature(&uri))
}

/// A tool call being answered.
pub(crate) struct ToolCall<'a> {
    pub(crate) view: &'a ViewSnapshot<'a>,
    pub(crate) context: &'a Context,
    pub(crate) call: &'a Call,
    pub(crate) inner: &'a ServerInner,
}

/// The result of a tool, its freshness for the cache, and the resource that it is about.
pub(crate) struct ToolReply {
    pub(crate) output: Result<ToolOutput, ToolError>,
    pub(crate) freshness: Freshness,
    /// The URI for the audit log.
    pub(crate) uri: Option<String>,
}

impl ToolCall<'_> {
    /// Calls a tool with arguments as JSON.
    pub(crate) async fn run(&self, tool: Tool, arguments: &str) -> ToolReply {
        let mut freshness = Freshness::unproven();
        let output = match tool {
            Tool::Search => self.search(arguments).await,
            Tool::List => self.list(arguments).await,
            Tool::Bundle => self.bundle(arguments).await,
            Tool::ConnectorSearch => self.connector_search(arguments).await,
            Tool::ConnectorFetch => self.connector_fetch(arguments).await,
            Tool::Read => match self.read(arguments).await {
                Ok((output, proven)) => {
                    freshness = proven;
                    Ok(output)
                }
                Err(error) => Err(error),
            },
        };
        ToolReply { output, freshness, uri: subject(arguments) }
    }

    /// Reads a resource; waits for memory if it is short.
    pub(crate) async fn contents(&self, uri: &Uri) -> Result<Contents, Error> {
        loop {
            match self.view.read(uri, self.context).await {
                // Memory was short: wait until it is free and read again. Meanwhile no permit of the source is held.
                Err(Error::Busy(_)) if self.call.memory_is_free().await => {}
                read => return read,
            }
        }
    }
}

/// The URI in the arguments of a tool, for the audit log.
pub(crate) fn subject(arguments: &str) -> Option<String> {
    ToolArguments::first_text(arguments, &["uri", "parent", "scope", "id"])
}

/// The title of a resource, or else its name.
pub(crate) fn title(resource: &Resource) -> &str {
    resource.title.as_deref().unwrap_or(&resource.name)
}

/// The error for a tool that does not exist, or that the caller may not use. `usable` are the tools that the caller may
/// use.
pub(crate) fn unknown(name: &str, usable: &[Tool]) -> Failure {
    let shown: String = name.chars().take(100).collect();
    let known = usable.iter().map(|tool| tool.name());
    let similar = libris_core::suggest::did_you_mean(&shown, known);
    Failure::invalid(format!("unknown tool `{shown}`{similar}"))
}
