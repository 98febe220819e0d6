//! `libris search`: finds resources by their text, names and descriptions.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anstyle::{AnsiColor, Style};
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use libris::{
    Audience, Catalog, ContentBody, Context, SearchAnswer, SearchConfig, SearchHit, SearchQuery, Server,
    SnippetLine, Uri, View, catalog,
};
use serde_json::{Value, json};

use crate::config::Config;
use crate::pager;
use crate::sources::{OpenedConfig, SourceArguments};
use crate::target::{EXIT_CODES, SOURCE_TIMEOUT, json_line, width};
use crate::terminal::{
    DETAIL, HEADING, ProgressLine, advice, counted, cut, grouped, note, print, report, shown, styled,
};

/// The style of matches in snippets.
const MATCH: Style = AnsiColor::Red.on_default().bold();

/// The style of line numbers.
const NUMBER: Style = AnsiColor::Green.on_default();

/// Search the resources of sources
///
/// Finds resources by their text, names, titles and paths; similar words match if a word is misspelt. In QUERY, "quoted
/// words" are a phrase; if no resource contains it, its words are searched one by one. `-word` excludes resources with
/// this word. Sources that cannot be opened are reported and left out. The exit code is 1 if nothing was found.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  libris search 'rotate the keys' ./docs            the best ten hits, with the lines to read
  libris search '\"exit code\" -windows' ./docs       a phrase, without resources that contain a word
  libris search parse_uri ./src --limit 3 --json    JSON for scripts
  libris search retention ./docs --since 7d         resources that changed in the last seven days
  libris search backup ./docs --open                read the best hit in the pager

{EXIT_CODES}"))]
pub(crate) struct SearchOptions {
    /// The words to search for
    query: String,
    #[command(flatten)]
    sources: SourceArguments,
    /// Print JSON: one object with the hits
    #[arg(long)]
    json: bool,
    /// The maximum number of hits
    #[arg(long, default_value_t = 10, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Only resources of this media type, such as `text/markdown` or `image/*`; may be given several times
    #[arg(long, value_name = "TYPE")]
    mime: Vec<String>,
    /// Only resources of this source, such as `files docs`; may be given several times
    #[arg(long = "source", value_name = "NAME")]
    names: Vec<String>,
    /// Only resources whose URI begins with this text
    #[arg(long, value_name = "URI")]
    below: Option<String>,
    /// Only resources for this audience, and resources without an audience
    #[arg(long, value_enum)]
    audience: Option<AudienceName>,
    /// Only resources that were modified since this date, time or age, such as `2026-01-31` or `7d`
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<Timestamp>,
    /// Read the best hit in the pager, at the line that matches
    #[arg(long, conflicts_with = "json")]
    open: bool,
}

/// An audience on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum AudienceName {
    User,
    Assistant,
}

impl From<AudienceName> for Audience {
    fn from(name: AudienceName) -> Self {
        match name {
            AudienceName::User => Self::User,
            AudienceName::Assistant => Self::Assistant,
        }
    }
}

/// Parses a date, a time, or an age.
fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    if let Ok(date) = text.parse::<jiff::civil::Date>() {
        let midnight = date.to_zoned(jiff::tz::TimeZone::system()).map_err(|error| error.to_string())?;
        return Ok(midnight.timestamp());
    }
    let age = humantime::parse_duration(text).map_err(
        |_| "expected a date such as 2026-01-31, a time such as 2026-01-31T12:00:00Z, or an age such as 7d",
    )?;
    let time =
        SystemTime::now().checked_sub(age).ok_or("this is too long ago: use a later time, such as 365d")?;
    Timestamp::try_from(time).map_err(|error| error.to_string())
}

/// Indexes the sources, searches them and prints the hits.
pub(crate) async fn run(options: SearchOptions) -> Result<ExitCode> {
    let view = open_indexed(&options.sources).await?;
    let query = SearchQuery {
        sources: options.names.clone(),
        mimes: options.mime.clone(),
        uri_prefix: options.below.clone(),
        audience: options.audience.map(Audience::from),
        modified_since: options.since.map(Timestamp::as_second),
        ..SearchQuery::new(&*options.query, usize::from(options.limit))
    };
    let answer = view.search(&query, &Context::default()).await.context("could not search")?;
    for name in &answer.left_out {
        note(format_args!("`{}` did not answer in time and is left out", shown(name)));
    }
    if options.json {
        print(&json_line(&to_json(&options.query, &answer))).context("could not print")?;
    } else if let (true, Some(best)) = (options.open, answer.hits.first()) {
        open(&view, best).await?;
    } else {
        pager::show(&to_text(&answer, width().unwrap_or(usize::MAX))).context("could not print")?;
    }
    Ok(if answer.hits.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Opens the sources and indexes them, and returns the view of a caller who may see everything. Shows the progress.
pub(crate) async fn open_indexed(arguments: &SourceArguments) -> Result<View> {
    let OpenedConfig { config, sources, errors } = arguments.open(&[])?;
    errors.iter().for_each(|error| report(error));
    if errors.len() == sources.len() {
        return Err(advice(
            "none of the sources can be searched",
            "correct them, and see what `libris check` reports",
        ));
    }
    let opened = sources.iter().map(|opened| opened.source.clone()).collect();
    let source_timeout = config.server.source_timeout.max(SOURCE_TIMEOUT);
    let catalog_config = catalog::Config { source_timeout, strict: config.server.strict };
    let catalog = Arc::new(Catalog::with_config(opened, catalog_config));
    let settings = SearchConfig { is_awaited: true, ..settings(&config, arguments) };
    catalog.start_search(settings)?;
    wait(&catalog).await.map_err(|error| {
        advice(format!("could not list the sources: {error}"), "see what `libris check` reports")
    })?;
    if let Some(remark) = catalog.search_index_remark() {
        note(format_args!("the search index: {remark}"));
    }
    Ok(Server::new(catalog, libris::Config::default()).view_for(None))
}

/// How the sources are indexed: in a folder of their own below the cache folder, or in memory if the configuration has
/// no cache folder.
pub(crate) fn settings(config: &Config, sources: &SourceArguments) -> SearchConfig {
    let folder = config.cache_folder.as_ref().map(|folder| {
        let mut hasher = DefaultHasher::new();
        sources.absolute().hash(&mut hasher);
        remove_outdated(folder);
        folder.join(format!("search-{}-{:016x}", libris::SEARCH_INDEX_FORMAT, hasher.finish()))
    });
    let table = config.search.clone().unwrap_or_default();
    SearchConfig {
        folder: folder.map(|folder: PathBuf| std::path::absolute(&folder).unwrap_or(folder)),
        notes: table.notes(),
        memory: table.memory_bytes,
        model: table.model,
        ..SearchConfig::default()
    }
}

/// The age at which the index of an earlier version is deleted. A younger one may still be used by that version.
const OUTDATED: Duration = Duration::from_secs(7 * 86_400);

/// Deletes the indexes that earlier versions wrote into the cache folder, and that were not changed for a week.
fn remove_outdated(cache: &Path) {
    for entry in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let format =
            name.to_str().and_then(|name| name.strip_prefix("search-")?.split('-').next()?.parse().ok());
        let is_old = format.is_some_and(|format: u32| format < libris::SEARCH_INDEX_FORMAT);
        let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|time| time.elapsed().ok());
        if is_old
            && age.is_some_and(|age| age > OUTDATED)
            && let Err(cause) = std::fs::remove_dir_all(entry.path())
        {
            tracing::debug!(%cause, "could not delete the search index of an earlier version");
        }
    }
}

/// Waits until the index is complete, and shows the progress on a terminal.
async fn wait(catalog: &Catalog) -> libris::Result<()> {
    let mut progress = ProgressLine::new();
    let mut completed = std::pin::pin!(catalog.search_index_completed());
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    let outcome = loop {
        tokio::select! {
            outcome = &mut completed => break outcome,
            _ = ticks.tick() => {
                if let Some(indexing) = catalog.search_progress() {
                    let (indexed, listed) = (grouped(indexing.indexed as u64), counted(indexing.listed as u64, "resource"));
                    progress.update(format_args!("indexing: {indexed} of {listed} …"));
                }
            }
        }
    };
    progress.clear();
    outcome
}

/// Shows the contents of a hit in the pager, or prints them if standard output is not a terminal.
async fn open(view: &View, hit: &SearchHit) -> Result<()> {
    let uri = Uri::parse(hit.text_uri.as_deref().unwrap_or(&hit.uri))?;
    let contents = view
        .snapshot()
        .read(&uri, &Context::default())
        .await
        .with_context(|| format!("could not read `{uri}`"))?;
    let texts = contents.parts.iter().filter_map(|part| match &part.body {
        ContentBody::Text(text) => Some(shown(text)),
        ContentBody::Bytes(_) => None,
    });
    let text: String = texts.collect();
    if text.is_empty() {
        return Err(advice(format!("`{uri}` has no text"), "read it with an MCP client, or open its file"));
    }
    if !std::io::stdout().is_terminal() {
        return print(&text).context("could not print");
    }
    let line = hit.snippet.first().map_or(1, |line| line.number);
    let pager =
        std::env::var("PAGER").ok().filter(|pager| !pager.is_empty()).unwrap_or_else(|| "less".to_owned());
    let mut words = pager.split_whitespace();
    let program = words.next().unwrap_or("less");
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped());
    if program.ends_with("less") {
        command.arg(format!("+{line}g"));
    }
    let mut pager = command.spawn().map_err(|cause| {
        advice(format!("could not start `{program}`: {cause}"), "set PAGER to an installed pager")
    })?;
    if let Some(mut input) = pager.stdin.take() {
        // Fails if the user quits the pager before it has read everything.
        _ = input.write_all(text.as_bytes());
    }
    pager.wait().context("could not wait for the pager")?;
    Ok(())
}

/// The hits as text for a terminal. Lines of snippets and headings are cut to this many columns.
fn to_text(answer: &SearchAnswer, columns: usize) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    if let Some(correction) = &answer.correction {
        line(styled(DETAIL, format_args!("showing results for: {}", shown(correction))));
    }
    for hit in &answer.hits {
        let title = hit.title.as_deref().filter(|title| *title != hit.name);
        let title = title.map(|title| format!("  {}", shown(title))).unwrap_or_default();
        line(format!("{}{title}", styled(HEADING, shown(&hit.uri))));
        if let Some(section) = &hit.section {
            let heading = if section.heading.is_empty() {
                String::new()
            } else {
                format!("  {}", shown(&section.heading))
            };
            // The lines of a document are those of its extracted text.
            let of = hit.text_uri.as_deref().map(|uri| format!(" of {}", shown(uri))).unwrap_or_default();
            let place = format!("  lines {}-{}{of}{heading}", section.first_line, section.last_line);
            line(styled(DETAIL, cut(&place, columns)));
        }
        // A hit of a source's own search has no snippet.
        if let (true, Some(description)) = (hit.snippet.is_empty(), hit.description.as_deref()) {
            line(format!("  {}", cut(&shown(description), columns.saturating_sub(2))));
        }
        if let Some(remark) = hit.note.as_deref() {
            line(styled(DETAIL, format_args!("  note: {}", shown(remark))));
        }
        for snippet in &hit.snippet {
            line(format!(
                "  {} {}",
                styled(NUMBER, format_args!("{:>5}", snippet.number)),
                highlighted(&narrowed(snippet, columns.saturating_sub(8)))
            ));
        }
        if !hit.duplicates.is_empty() {
            let count = counted(hit.duplicates.len() as u64, "similar resource");
            line(styled(DETAIL, format_args!("  and {count}, such as {}", shown(&hit.duplicates[0]))));
        }
    }
    let rest = answer.total.saturating_sub(answer.hits.len());
    match (answer.hits.is_empty(), rest) {
        (true, _) => line("nothing found".to_owned()),
        (false, 0) => {}
        (false, rest) => line(styled(DETAIL, format_args!("… and {} more", grouped(rest as u64)))),
    }
    text
}

/// A line of a snippet that fits into this many columns and shows its first match.
fn narrowed(line: &SnippetLine, columns: usize) -> SnippetLine {
    let SnippetLine { number, text, matches } = line;
    let offsets: Vec<_> = text.char_indices().map(|(offset, _)| offset).chain([text.len()]).collect();
    let length = offsets.len() - 1;
    if length <= columns {
        return line.clone();
    }
    let column = |offset: usize| offsets.partition_point(|known| *known < offset);
    let first = matches.first().map_or(0, |range| column(range.start));
    let last = matches.first().map_or(0, |range| column(range.end));
    // Keeps the beginning of the line if the first match is within it. Otherwise a quarter of the columns precedes the
    // match, or less if the match and the two ellipses would not fit.
    let lead = (columns / 4).min(columns.saturating_sub(last - first + 2));
    let start = if last < columns { 0 } else { first.saturating_sub(lead) };
    let start = start.min(length - columns.min(length));
    let (before, after) = (usize::from(start > 0), usize::from(start + columns < length));
    let from = offsets[start + before];
    let to = offsets[(start + columns - after).min(length)];
    let prefix = if before > 0 { "…" } else { "" };
    let suffix = if after > 0 { "…" } else { "" };
    let shift = |offset: usize| offset - from + prefix.len();
    let inside = matches.iter().filter(|range| range.start >= from && range.end <= to);
    SnippetLine {
        number: *number,
        text: format!("{prefix}{}{suffix}", &text[from..to]),
        matches: inside.map(|range| shift(range.start)..shift(range.end)).collect(),
    }
}

/// A line of a snippet with its matches in colour.
fn highlighted(line: &SnippetLine) -> String {
    let mut text = String::new();
    let mut end = 0;
    for range in &line.matches {
        if let (Some(before), Some(found)) = (line.text.get(end..range.start), line.text.get(range.clone())) {
            text.push_str(&shown(before));
            text.push_str(&styled(MATCH, shown(found)));
            end = range.end;
        }
    }
    text + &shown(&line.text[end..])
}

fn to_json(query: &str, answer: &SearchAnswer) -> Value {
    let hits = answer.hits.iter().map(|hit| {
        let snippet = hit.snippet.iter().map(|line| json!({ "line": line.number, "text": line.text }));
        let section = hit.section.as_ref().map(|section| {
            json!({ "heading": section.heading, "firstLine": section.first_line, "lastLine": section.last_line })
        });
        json!({
            "uri": hit.uri,
            "name": hit.name,
            "title": hit.title,
            "description": hit.description,
            "mimeType": hit.mime,
            "source": hit.source,
            "note": hit.note,
            "score": hit.score,
            "section": section,
            "textUri": hit.text_uri,
            "snippet": snippet.collect::<Vec<_>>(),
            "duplicates": hit.duplicates,
        })
    });
    json!({
        "query": query,
        "total": answer.total,
        "correction": answer.correction,
        "leftOut": answer.left_out,
        "hits": hits.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::{narrowed, since};
    use libris::SnippetLine;

    #[test]
    fn lines_fit_into_the_terminal_and_show_the_match() {
        let text = format!("{}übereinstimmung{}", "ä".repeat(100), "z".repeat(100));
        let start = text.find('ü').unwrap();
        let matched = start..start + "übereinstimmung".len();
        let line = SnippetLine { number: 3, text, matches: vec![matched] };
        for columns in [20, 40, 72, 150, 214, 215, 300] {
            let narrow = narrowed(&line, columns);
            assert!(narrow.text.chars().count() <= columns, "{columns}: {}", narrow.text);
            assert_eq!(&narrow.text[narrow.matches[0].clone()], "übereinstimmung", "{columns}");
        }
        assert_eq!(narrowed(&line, 215), line);
    }

    #[test]
    fn a_time_is_a_date_a_time_or_an_age() {
        assert_eq!(since("2026-01-31T12:00:00Z").unwrap().as_second(), 1_769_860_800);
        assert!(since("2026-01-31").is_ok() && since("7d").is_ok());
        let (week, day) = (since("7d").unwrap(), since("1d").unwrap());
        assert!(week < day, "{week} {day}");
        for wrong in ["", "soon", "2026-13-01", "-3d"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
