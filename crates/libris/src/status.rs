//! `libris://status`: whether each source of a catalog is available.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use libris_core::uri_template::Specificity;
use libris_core::{
    Change, Completion, CompletionRequest, Content, Contents, Context, Error, Freshness, Page, Proof,
    Resource, Result, Source, Template, Templates, Uri, UriSpan, UriTemplate,
};
use serde_json::{Value, json};

use crate::health::{ClusterState, Health, SearchIndexState, SourceHealth, rfc3339};

/// The URI of the status resource.
pub(crate) const URI: &str = "libris://status";

/// [`URI`], parsed.
pub(crate) fn uri() -> Uri {
    Uri::parse(URI).expect("the URI is well-formed")
}

/// The output formats; the first is the default.
const FORMATS: [&str; 2] = ["markdown", "json"];

/// The source of `libris://status`.
pub(crate) struct StatusSource {
    health: Arc<Health>,
    uri: Uri,
    template: UriTemplate,
}

/// An output format of the status.
#[derive(Clone, Copy)]
enum StatusFormat {
    Markdown,
    Json,
}

impl StatusSource {
    pub(crate) fn new(health: Arc<Health>) -> Self {
        let uri = uri();
        let template = UriTemplate::parse(&format!("{URI}{{?as}}")).expect("the template is well-formed");
        Self { health, uri, template }
    }

    fn format(&self, uri: &Uri) -> Result<StatusFormat> {
        let variables = self.template.matches(uri).ok_or_else(|| Error::NotFound(uri.clone()))?;
        match variables.text("as") {
            None | Some("" | "markdown") => Ok(StatusFormat::Markdown),
            Some("json") => Ok(StatusFormat::Json),
            Some(_) => Err(Error::invalid("`as` must be `markdown` or `json`")),
        }
    }
}

#[async_trait]
impl Source for StatusSource {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        if !uri.as_str().starts_with(URI) {
            return None;
        }
        if *uri == self.uri {
            return Some(Specificity::EXACT);
        }
        self.template.matches(uri).map(|_| self.template.specificity())
    }

    fn name(&self) -> Cow<'_, str> {
        "status".into()
    }

    fn span(&self) -> Option<UriSpan> {
        Some(UriSpan::of(&self.uri))
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, _: &Context) -> Result<Page> {
        let is_listed = limit > 0 && after.is_none_or(|after| *after < self.uri);
        let resource = is_listed.then(|| Resource {
            title: Some("Status of the sources".to_owned()),
            description: Some(
                "Whether each source of this server is available, and since when not.".to_owned(),
            ),
            mime: Some("text/markdown".to_owned()),
            ..Resource::new(self.uri.clone(), "status")
        });
        let resources = resource.into_iter().collect();
        Ok(Page { resources, freshness: Freshness::proven(Proof::always()), ..Page::default() })
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let format = self.format(uri)?;
        let seen = self.health.transitions();
        // Numbers of resources include hidden resources, so only callers who see everything get them.
        let counts = context.sees_everything();
        let states: Vec<_> =
            self.health.sources().iter().map(|source| SourceStatus::of(source, counts)).collect();
        let content = match format {
            StatusFormat::Markdown => {
                let lines = search_line(self.health.search(), counts) + &cluster_line(self.health.cluster());
                let text = markdown(&states) + &lines;
                Content::text(uri.clone(), "text/markdown", text)
            }
            StatusFormat::Json => {
                let mut status = json(&states);
                if let Some(search) = self.health.search() {
                    status["search"] = search_json(&search, counts);
                }
                if let Some(cluster) = self.health.cluster() {
                    status["cluster"] = cluster_json(&cluster);
                }
                Content::text(uri.clone(), "application/json", format!("{status:#}\n"))
            }
        };
        let proof = Proof::new(move || seen.has_changed().is_ok_and(|changed| !changed));
        Ok(Contents { freshness: Freshness::proven(proof), ..Contents::from(content) })
    }

    async fn templates(&self, _: &Context) -> Result<Templates> {
        let template = Template {
            title: Some("Status of the sources in another form".to_owned()),
            description: Some("`as` is `markdown` or `json`.".to_owned()),
            ..Template::new(self.template.clone(), "status")
        };
        Ok(Templates { freshness: Freshness::proven(Proof::always()), ..Templates::from(vec![template]) })
    }

    async fn complete(&self, partial: CompletionRequest<'_>, _: &Context) -> Result<Completion> {
        match partial.variable {
            "as" => Ok(Completion::of(FORMATS, partial.typed, partial.limit)),
            _ => Ok(Completion::default()),
        }
    }

    fn subject(&self, uri: &Uri) -> Uri {
        uri.without_query()
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        let uri = self.uri.clone();
        let changes = stream::unfold(self.health.transitions(), move |mut transitions| {
            let uri = uri.clone();
            async move {
                transitions.changed().await.ok()?;
                Some((Change::Updated(uri), transitions))
            }
        });
        Ok(Some(changes.boxed()))
    }
}

/// The status of one source.
struct SourceStatus {
    name: String,
    /// The start and the reason of the current outage.
    outage: Option<(SystemTime, Arc<str>)>,
    /// During an outage, the last known listing: its number of resources (`None` if hidden), and whether it is
    /// complete.
    last_known: Option<(Option<usize>, bool)>,
    /// Since when its watch fails.
    unwatched: Option<SystemTime>,
}

impl SourceStatus {
    /// The status of a source. `counts`: whether it includes numbers of resources.
    fn of(source: &SourceHealth, counts: bool) -> Self {
        let outage = source.outage();
        let stored_size = outage.as_ref().and_then(|_| source.last_known().stored_size());
        Self {
            name: source.name().to_owned(),
            outage: outage.map(|outage| (outage.since, outage.reason)),
            last_known: stored_size.map(|size| (counts.then_some(size.resources), size.complete)),
            unwatched: source.unwatched(),
        }
    }
}

fn markdown(states: &[SourceStatus]) -> String {
    let mut text = String::from("# Status of the sources\n\n");
    let unavailable = states.iter().filter(|state| state.outage.is_some()).count();
    match (unavailable, states.len()) {
        (_, 0) => text.push_str("There are no sources.\n"),
        (0, 1) => text.push_str("The source is available.\n"),
        (0, all) => _ = writeln!(text, "All {all} sources are available."),
        (1, 1) => text.push_str("The source is unavailable.\n"),
        (1, all) => _ = writeln!(text, "1 of {all} sources is unavailable."),
        (some, all) => _ = writeln!(text, "{some} of {all} sources are unavailable."),
    }
    if states.is_empty() {
        return text;
    }
    text.push_str("\n| Source | State | Remarks |\n|---|---|---|\n");
    for state in states {
        let mut remarks = Vec::new();
        let shown = match &state.outage {
            None => "available".to_owned(),
            Some((since, reason)) => {
                remarks.push(reason.to_string());
                remarks.push(match state.last_known {
                    None => "its resources are not listed".to_owned(),
                    Some((None, _)) => "its resources are listed as last known".to_owned(),
                    Some((Some(count), true)) => format!("listed as last known: {count} resources"),
                    Some((Some(count), false)) => {
                        format!("listed as last known: the first {count} resources")
                    }
                });
                format!("unavailable since {}", rfc3339(*since))
            }
        };
        if let Some(since) = state.unwatched {
            remarks.push(format!("changes are not reported since {}", rfc3339(since)));
        }
        _ = writeln!(text, "| {} | {shown} | {} |", cell(&state.name), cell(&remarks.join("; ")));
    }
    text
}

/// A sentence about the search index; empty if there is none. `counts`: whether it includes numbers of resources.
fn search_line(state: Option<SearchIndexState>, counts: bool) -> String {
    let Some(state) = state else { return String::new() };
    let remark = state.remark(counts).map(|remark| format!("; {remark}")).unwrap_or_default();
    let SearchIndexState { indexed, listed, is_complete, .. } = state;
    let state = match (is_complete, counts) {
        (true, true) => format!("the index has {indexed} resources"),
        (false, true) => format!("the index is being built: {indexed} of {listed} resources so far"),
        (true, false) => "the index is complete".to_owned(),
        (false, false) => "the index is being built".to_owned(),
    };
    format!("\nSearch: {state}{remark}.\n")
}

fn search_json(state: &SearchIndexState, counts: bool) -> Value {
    let SearchIndexState { indexed, listed, is_complete, .. } = state;
    let remark = state.remark(counts);
    match counts {
        true => json!({ "complete": is_complete, "indexed": indexed, "listed": listed, "remark": remark }),
        false => json!({ "complete": is_complete, "remark": remark }),
    }
}

/// A sentence about the connection to the other replicas; empty if there are none.
fn cluster_line(state: Option<ClusterState>) -> String {
    let Some(ClusterState { is_connected, since, reason }) = state else { return String::new() };
    let since = rfc3339(since);
    match is_connected {
        true => format!("\nCluster: connected since {since}.\n"),
        false => {
            let reason = reason.map(|reason| format!(": {}", cell(&reason))).unwrap_or_default();
            format!(
                "\nCluster: degraded since {since}{reason}. Changes at other replicas are reported when the connection \
                 is back.\n"
            )
        }
    }
}

fn cluster_json(state: &ClusterState) -> Value {
    let ClusterState { is_connected, since, reason } = state;
    let mut object = json!({ "connected": is_connected, "since": rfc3339(*since) });
    if let Some(reason) = reason {
        object["reason"] = (**reason).into();
    }
    object
}

/// Escapes text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\r', '\n'], " ")
}

fn json(states: &[SourceStatus]) -> Value {
    let sources = states.iter().map(|state| {
        let mut object = json!({ "source": state.name, "available": state.outage.is_none() });
        if let Some((since, reason)) = &state.outage {
            object["since"] = rfc3339(*since).into();
            object["reason"] = (**reason).into();
        }
        if let Some((resources, complete)) = state.last_known {
            object["lastKnown"] = json!({ "complete": complete });
            if let Some(resources) = resources {
                object["lastKnown"]["resources"] = resources.into();
            }
        }
        if let Some(since) = state.unwatched {
            object["unwatchedSince"] = rfc3339(since).into();
        }
        object
    });
    let unavailable = states.iter().filter(|state| state.outage.is_some()).count();
    json!({ "unavailable": unavailable, "sources": sources.collect::<Vec<_>>() })
}
