//! `libris check`: lists what would be served, without serving it.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use libris::rules::RuleSet;
use libris::{Annotations, Context, Prompt, Resource, Skill, SkillResources, Source, Template, Uri};
use serde_json::{Value, json};

use crate::auth::AuthArguments;
use crate::explain::rule_warnings;
use crate::log::{take_left_out, take_warnings};
use crate::sources::{ConfiguredSource, SourceArguments, SourceLayers, check_roots};
use crate::terminal::{
    DETAIL, Explanation, HEADING, ProgressLine, SUCCESS, advice, bytes, counted, grouped, hint_label, print,
    report, shown, styled, warning,
};

/// The number of resources per page of a listing.
const PAGE_SIZE: usize = 1000;

/// Check a configuration and show what it would serve
///
/// Every source is opened and listed completely; one that fails does not stop the others. The exit code is 1 if a source
/// fails, or if two sources have the same root URI.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  libris check ./docs                    what `libris serve ./docs` would serve
  libris check --config libris.toml      validate a configuration file
  libris check ./docs --json             JSON for scripts, with every resource")]
pub(crate) struct CheckOptions {
    #[command(flatten)]
    sources: SourceArguments,
    /// Print JSON, with every resource
    #[arg(long)]
    json: bool,
    /// The number of resources, templates, skills, prompts and warnings to show of each source
    #[arg(long, default_value_t = 10, value_name = "COUNT", conflicts_with = "json")]
    show: usize,
}

/// The listing of one source.
#[derive(Default)]
struct SourceListing {
    /// The first resources.
    resources: Vec<Resource>,
    /// The number of all resources, and their size in bytes.
    count: u64,
    size: u64,
    templates: Vec<Template>,
    /// The first skills, and the number of all.
    skills: Vec<Skill>,
    skill_count: u64,
    prompts: Vec<Prompt>,
    /// The errors in the configuration of the source, such as a query that the database rejects.
    faults: Vec<anyhow::Error>,
    /// The URIs of a source without templates, up to a limit.
    uris: Vec<String>,
}

/// How many URIs of a source without templates are compared with the rules.
const MAX_URIS: usize = 10_000;

/// The result of checking one source.
struct SourceReport {
    name: String,
    outcome: Result<SourceListing, Arc<anyhow::Error>>,
    /// What the source left out, and other warnings.
    warnings: Vec<String>,
    /// The entries of a folder that are not served on purpose, such as hidden files, with the reason of each.
    left_out: BTreeMap<String, String>,
    /// A hint if another kind of source would serve more: see [`ConfiguredSource::tip`].
    tip: Option<String>,
}

/// Opens all sources, lists each completely and prints the result. The exit code is 0 if no source failed, the
/// configuration of no source is wrong, and no two sources have the same root URI.
pub(crate) async fn run(options: CheckOptions) -> Result<ExitCode> {
    let (config, definitions) = options.sources.definitions()?;
    AuthArguments::default().open(&config, options.sources.file().as_deref())?;
    #[cfg(feature = "cluster")]
    crate::cluster::check(config.cluster.as_ref())?;
    let layers = SourceLayers::new(&config);
    let rules = RuleSet::new(config.rules);
    let (mut reports, mut sources) = (Vec::new(), Vec::new());
    // Starts the collection of warnings, so that the first source has only its own.
    take_warnings();
    take_left_out();
    for definition in definitions {
        let source = ConfiguredSource::open(definition, &layers);
        let keep = if options.json { usize::MAX } else { options.show };
        let outcome = match source.failure.clone() {
            Some(error) => Err(error),
            None => list(&source.label, source.source.as_ref(), keep).await.map_err(Arc::new),
        };
        let (name, warnings, tip) = (source.label.clone(), take_warnings(), source.tip());
        let report = SourceReport { name, outcome, warnings, left_out: take_left_out(), tip };
        if !options.json {
            report.print(options.show).context("could not print")?;
        }
        reports.push(report);
        sources.push(source);
    }
    let conflict = check_roots(&sources).err();
    let prompt_warnings = prompt_warnings(&reports, &sources);
    // It is unknown what a failed source would serve, so rules for it would cause wrong warnings.
    let all_served = reports.iter().all(|report| report.outcome.is_ok());
    let rule_warnings = match all_served {
        true => rule_warnings(&rules, &served(&reports)),
        false => Vec::new(),
    };
    let failed = reports.iter().filter(|report| report.outcome.is_err()).count();
    let faulty = reports.iter().filter(|report| report.has_faults()).count();
    let ok = failed + faulty == 0 && conflict.is_none();
    if options.json {
        let mut object = json(&reports, conflict.as_ref());
        if !rules.rules().is_empty() {
            object["rules"] = json!({ "count": rules.rules().len(), "warnings": rule_warnings });
        }
        if !prompt_warnings.is_empty() {
            object["prompts"] = json!({ "warnings": prompt_warnings });
        }
        let text = format!("{object:#}\n");
        print(&text).context("could not print")?;
        return Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    print_rules(&rules, &rule_warnings).context("could not print")?;
    let lines: String = prompt_warnings.iter().map(|text| warning(shown(text)) + "\n").collect();
    print(&lines).context("could not print")?;
    if let Some(conflict) = &conflict {
        report(conflict);
    } else if ok {
        print(&(styled(SUCCESS, "ok") + "\n")).context("could not print")?;
    } else if reports.len() > 1 && failed > 0 {
        report(&advice(
            format!("{failed} of {} sources failed", reports.len()),
            "`libris serve` would serve the other sources and retry the failed ones",
        ));
    } else if reports.len() > 1 {
        report(&advice(
            format!("the configuration of {faulty} of {} sources is wrong", reports.len()),
            "`libris serve` would serve all sources, but reads of what is wrong would fail",
        ));
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the sources serve, as prefixes of URIs: the literal beginnings of their templates, and the URIs of sources
/// without templates.
fn served(reports: &[SourceReport]) -> Vec<String> {
    let listings = reports.iter().filter_map(|report| report.outcome.as_ref().ok());
    let templates = listings.clone().flat_map(|listing| &listing.templates);
    let literals =
        templates.map(|template| template.uri.as_str().split('{').next().unwrap_or_default().to_owned());
    let uris = listings.flat_map(|listing| &listing.uris).cloned();
    literals.chain(uris).chain(["libris://status".to_owned()]).collect()
}

/// Warnings about prompts that embed a resource that no source covers.
fn prompt_warnings(reports: &[SourceReport], sources: &[ConfiguredSource]) -> Vec<String> {
    let listings = reports.iter().filter_map(|report| report.outcome.as_ref().ok());
    let mut warnings = Vec::new();
    for prompt in listings.flat_map(|listing| &listing.prompts) {
        let fixed = prompt.resources.iter().filter(|template| template.variables().next().is_none());
        for uri in fixed.filter_map(|template| Uri::parse(template.as_str()).ok()) {
            let is_own = uri.scheme() == "libris";
            if !is_own && !sources.iter().any(|source| source.source.covers(&uri).is_some()) {
                warnings.push(format!("the prompt `{}` embeds `{uri}`, which no source has", prompt.name));
            }
        }
    }
    warnings
}

/// Prints how many rules there are, and their warnings.
fn print_rules(rules: &RuleSet, warnings: &[String]) -> std::io::Result<()> {
    if rules.rules().is_empty() {
        return Ok(());
    }
    let mut lines =
        vec![format!("{}: {}", styled(HEADING, "rules"), counted(rules.rules().len() as u64, "rule"))];
    lines.extend(warnings.iter().map(|text| format!("  {}", warning(shown(text)))));
    print(&(lines.join("\n") + "\n"))
}

/// Lists a source completely, and collects up to `keep` resources and up to `keep` skills.
async fn list(label: &str, source: &dyn Source, keep: usize) -> Result<SourceListing> {
    let mut progress = ProgressLine::new();
    let mut listing = SourceListing::default();
    let listed = async {
        listing.templates = source.templates(&Context::default()).await?.templates;
        // `verify` comes before the list, so that an invalid query is reported once, and not logged as well.
        let wrong =
            |error| anyhow::Error::new(error).context(format!("the configuration of `{label}` is wrong"));
        listing.faults = source.verify().await?.into_iter().map(wrong).collect();
        let mut after = None;
        loop {
            let page = source.list(after.as_ref(), PAGE_SIZE, &Context::default()).await?;
            after = page.resources.last().map(|last| last.uri.clone());
            for resource in page.resources {
                listing.count += 1;
                listing.size += resource.size.unwrap_or_default();
                if listing.templates.is_empty() && listing.uris.len() < MAX_URIS {
                    listing.uris.push(resource.uri.to_string());
                }
                if listing.resources.len() < keep {
                    listing.resources.push(resource);
                }
            }
            if !page.more {
                break;
            }
            progress.update(format_args!("{}: {} …", shown(label), counted(listing.count, "resource")));
        }
        listing.prompts = source.prompts(&Context::default()).await?.prompts;
        after = None;
        loop {
            let page = source.skills(after.as_ref(), PAGE_SIZE, &Context::default()).await?;
            after = page.skills.last().map(|last| last.uri.clone());
            listing.skill_count += page.skills.len() as u64;
            let rest = keep.saturating_sub(listing.skills.len());
            listing.skills.extend(page.skills.into_iter().take(rest));
            if !page.more {
                return Ok::<_, libris::Error>(());
            }
        }
    };
    let listed = listed.await;
    progress.clear();
    listed.with_context(|| format!("could not list `{label}`"))?;
    Ok(listing)
}

impl SourceReport {
    /// Prints the listing to standard output, or the error to standard error.
    fn print(&self, show: usize) -> std::io::Result<()> {
        let listing = match &self.outcome {
            Ok(listing) => listing,
            Err(error) => {
                report(error);
                return Ok(());
            }
        };
        // Tables and commands have no sizes.
        let size = if listing.size > 0 { format!("{}, ", bytes(listing.size)) } else { String::new() };
        let few = |count: u64, noun: &str| match count {
            0 => String::new(),
            count => format!(", {}", counted(count, noun)),
        };
        let mut lines = vec![format!(
            "{}: {}, {size}{}{}{}",
            styled(HEADING, shown(&self.name)),
            counted(listing.count, "resource"),
            counted(listing.templates.len() as u64, "template"),
            few(listing.skill_count, "skill"),
            few(listing.prompts.len() as u64, "prompt"),
        )];
        for resource in &listing.resources {
            let mime = resource.mime.as_deref().unwrap_or("?");
            let title = resource.title.as_deref().map(|title| format!("  {title}")).unwrap_or_default();
            lines.push(format!("  {}  {}{}", resource.uri, styled(DETAIL, shown(mime)), shown(&title)));
        }
        let more = |count: u64, noun: &str| {
            let plural = if count == 1 { "" } else { "s" };
            (count > 0).then(|| format!("  … and {} more {noun}{plural}", grouped(count)))
        };
        lines.extend(more(listing.count - listing.resources.len() as u64, "resource"));
        for template in listing.templates.iter().take(show) {
            lines.push(format!("  {} {}", styled(DETAIL, "template"), shown(template.uri.as_str())));
        }
        lines.extend(more(listing.templates.len().saturating_sub(show) as u64, "template"));
        for skill in &listing.skills {
            lines.push(format!("  {} {}", styled(DETAIL, "skill"), shown(skill.uri.as_str())));
        }
        lines.extend(more(listing.skill_count - listing.skills.len() as u64, "skill"));
        for prompt in listing.prompts.iter().take(show) {
            let names: Vec<_> = prompt.arguments.iter().map(|argument| &*argument.name).collect();
            let arguments = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
            lines.push(format!(
                "  {} {}{}",
                styled(DETAIL, "prompt"),
                shown(&prompt.name),
                shown(&arguments)
            ));
        }
        lines.extend(more(listing.prompts.len().saturating_sub(show) as u64, "prompt"));
        for (path, why) in self.left_out.iter().take(show) {
            lines.push(format!("  {} {}  {why}", styled(DETAIL, "left out"), shown(path)));
        }
        let rest = self.left_out.len().saturating_sub(show);
        lines.extend((rest > 0).then(|| format!("  … and {} more left out", grouped(rest as u64))));
        for text in self.warnings.iter().take(show) {
            lines.push(format!("  {}", warning(shown(text))));
        }
        lines.extend(more(self.warnings.len().saturating_sub(show) as u64, "warning"));
        lines.extend(self.tip.as_ref().map(|tip| format!("  {} {tip}", hint_label())));
        print(&(lines.join("\n") + "\n"))?;
        listing.faults.iter().for_each(report);
        Ok(())
    }

    /// Whether the source could be listed although parts of its configuration are wrong.
    fn has_faults(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|listing| !listing.faults.is_empty())
    }

    fn json(&self) -> Value {
        let mut object = match &self.outcome {
            Ok(listing) => listing.json(),
            Err(error) => json!({ "error": error_json(error) }),
        };
        object["source"] = self.name.clone().into();
        object["warnings"] = self.warnings.clone().into();
        if !self.left_out.is_empty() {
            object["leftOut"] = json!(self.left_out);
        }
        object
    }
}

impl SourceListing {
    fn json(&self) -> Value {
        let resources = self.resources.iter().map(|resource| {
            json!({
                "uri": resource.uri,
                "name": resource.name,
                "title": resource.title,
                "description": resource.description,
                "mimeType": resource.mime,
                "size": resource.size,
                "annotations": annotations(&resource.annotations),
            })
        });
        let templates = self.templates.iter().map(|template| {
            json!({
                "uriTemplate": template.uri,
                "name": template.name,
                "title": template.title,
                "description": template.description,
                "mimeType": template.mime,
                "annotations": annotations(&template.annotations),
            })
        });
        let mut object = json!({
            "count": self.count,
            "size": self.size,
            "resources": resources.collect::<Vec<_>>(),
            "templates": templates.collect::<Vec<_>>(),
        });
        if !self.faults.is_empty() {
            object["errors"] = self.faults.iter().map(error_json).collect();
        }
        if !self.skills.is_empty() {
            object["skills"] = self.skills.iter().map(skill_json).collect();
        }
        if !self.prompts.is_empty() {
            object["prompts"] = self.prompts.iter().map(prompt_json).collect();
        }
        object
    }
}

fn skill_json(skill: &Skill) -> Value {
    let files = match &skill.resources {
        SkillResources::Dynamic => json!("dynamic"),
        SkillResources::Files(files) => files
            .iter()
            .map(|file| json!({ "uri": file.uri, "digest": file.digest.to_string(), "size": file.size }))
            .collect(),
    };
    json!({ "uri": skill.uri, "frontmatter": skill.frontmatter, "resources": files })
}

fn prompt_json(prompt: &Prompt) -> Value {
    let argument =
        |argument: &libris::PromptArgument| json!({ "name": argument.name, "required": argument.required });
    json!({
        "name": prompt.name,
        "title": prompt.title,
        "description": prompt.description,
        "arguments": prompt.arguments.iter().map(argument).collect::<Vec<_>>(),
        "resources": prompt.resources.iter().map(|template| template.as_str()).collect::<Vec<_>>(),
    })
}

/// The annotations as in the protocol; `null` if there are none.
fn annotations(annotations: &Annotations) -> Value {
    if annotations.is_empty() {
        return Value::Null;
    }
    json!({
        "audience": annotations.audience,
        "priority": annotations.priority,
        "lastModified": annotations.last_modified.map(|time| time.to_string()),
    })
}

fn json(reports: &[SourceReport], conflict: Option<&anyhow::Error>) -> Value {
    let ok =
        conflict.is_none() && reports.iter().all(|report| report.outcome.is_ok() && !report.has_faults());
    let mut object =
        json!({ "ok": ok, "sources": reports.iter().map(SourceReport::json).collect::<Vec<_>>() });
    if let Some(conflict) = conflict {
        object["error"] = error_json(conflict);
    }
    object
}

fn error_json(error: &anyhow::Error) -> Value {
    let Explanation { message, causes, hint } = Explanation::of(error);
    json!({ "message": message, "causes": causes, "hint": hint })
}
