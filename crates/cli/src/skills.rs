//! `libris skills`: lists the skills of a target, and loads one.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use libris::{ContentBody, Context, Error, Meta, Skill, SkillResources, Uri};
use libris_sources::skills::{check_entry, relative_path, verify};
use serde_json::{Value, json};

use crate::pager;
use crate::sources::SourceArguments;
use crate::target::{EXIT_CODES, OpenedTarget, clipped, json_line, one_line, width};
use crate::terminal::{DETAIL, advice, columns, note, print, shown, styled, write_bytes};

/// The number of skills per page.
const PAGE_SIZE: usize = 100;

/// The maximum number of skills that are listed.
const MAX_SKILLS: usize = 100_000;

/// List the skills of a target, or load one
///
/// Skills are folders with a SKILL.md that tell a model how to do something. Listing the skills of another server reads
/// none of their files. Each file that is loaded is compared with the size and digest in the list, and the front matter
/// of SKILL.md with that in the list; if anything differs, nothing is printed or written.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  libris skills https://mcp.example/mcp                          names and descriptions
  libris skills --load pdf-forms https://mcp.example/mcp         print its SKILL.md
  libris skills --load pdf-forms -o ~/.claude/skills https://mcp.example/mcp

{EXIT_CODES}"))]
pub(crate) struct SkillsOptions {
    #[command(flatten)]
    sources: SourceArguments,
    /// Load the skill with this name, or whose SKILL.md has this URI
    #[arg(long, value_name = "NAME")]
    load: Option<String>,
    /// Write all files of the skill to FOLDER/NAME, which must not exist; NAME is the name of the skill
    #[arg(long, short, value_name = "FOLDER", requires = "load", conflicts_with = "json")]
    output: Option<PathBuf>,
    /// Print JSON: one object per skill, as the Skills extension describes it
    #[arg(long)]
    json: bool,
}

/// A file of a skill that was verified: its path below the folder of the skill, and its bytes.
type VerifiedFile = (Vec<String>, Vec<u8>);

/// Lists the skills, or loads one.
pub(crate) async fn run(options: SkillsOptions) -> Result<ExitCode> {
    let target = OpenedTarget::open(&options.sources)?;
    let outcome = match &options.load {
        None => list(&target, options.json).await,
        Some(name) => load(&target, name, &options).await,
    };
    target.close().await;
    outcome
}

async fn list(target: &OpenedTarget, as_json: bool) -> Result<ExitCode> {
    let skills = all(target).await.context("could not list the skills")?;
    let lines = skills.iter().map(|skill| match as_json {
        true => json_line(&skill_json(skill)),
        false => line(skill, width()),
    });
    let text: String = lines.collect();
    if as_json { print(&text) } else { pager::show(&text) }.context("could not print")?;
    if skills.is_empty() {
        note("the target has no skills");
    }
    Ok(if skills.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// All skills of the target, page by page; no further page is requested after [`MAX_SKILLS`].
async fn all(target: &OpenedTarget) -> libris::Result<Vec<Skill>> {
    let view = target.view.snapshot();
    let mut skills: Vec<Skill> = Vec::new();
    loop {
        let after = skills.last().map(|skill| skill.uri.clone());
        let page = view.skills(after.as_ref(), PAGE_SIZE, &Context::default()).await?;
        let is_last = !page.more || page.skills.is_empty();
        skills.extend(page.skills);
        if is_last || skills.len() >= MAX_SKILLS {
            return Ok(skills);
        }
    }
}

async fn load(target: &OpenedTarget, name: &str, options: &SkillsOptions) -> Result<ExitCode> {
    let skill = find(target, name).await?;
    let refused = |why: String| {
        advice(format!("the skill `{name}` cannot be trusted: {why}"), "report this to the server's operator")
    };
    check_entry(&skill).map_err(refused)?;
    if options.json {
        print(&json_line(&skill_json(&skill))).context("could not print")?;
        return Ok(ExitCode::SUCCESS);
    }
    // SKILL.md first: nothing else is read if it was tampered with.
    let body = read_verified(target, &skill, &skill.uri).await?.map_err(refused)?;
    let Some(folder) = &options.output else {
        // If standard output is not a terminal, it gets exactly the bytes whose digest was verified.
        match std::io::stdout().is_terminal() {
            true => pager::show(&shown(&String::from_utf8_lossy(&body))),
            false => write_bytes([&*body]),
        }
        .context("could not print")?;
        return Ok(ExitCode::SUCCESS);
    };
    let path = |uri: &Uri| relative_path(&skill, uri).unwrap_or_default();
    let mut files: Vec<VerifiedFile> = vec![(path(&skill.uri), body)];
    if let SkillResources::Files(listed) = &skill.resources {
        for file in listed.iter().filter(|file| file.uri != skill.uri) {
            files.push((path(&file.uri), read_verified(target, &skill, &file.uri).await?.map_err(refused)?));
        }
    }
    let written = write(folder, text(&skill.frontmatter, "name"), &files)?;
    let note = match skill.resources {
        SkillResources::Dynamic => "; its other files have no digests in the list, and were not written",
        SkillResources::Files(_) => "",
    };
    print(&format!("wrote {} files to {}{note}\n", files.len(), shown(&written.display().to_string())))
        .context("could not print")?;
    Ok(ExitCode::SUCCESS)
}

/// The skill with this name or URI. A skill that is not listed can be named by its URI only.
async fn find(target: &OpenedTarget, name: &str) -> Result<Skill> {
    let skills = all(target).await.context("could not list the skills")?;
    let mut found = skills
        .into_iter()
        .filter(|skill| skill.uri.as_str() == name || text(&skill.frontmatter, "name") == name);
    match (found.next(), found.next()) {
        (Some(one), Some(other)) => Err(advice(
            format!("there are several skills with the name `{name}`"),
            format!("name one by its URI: `{}` or `{}`", shown(one.uri.as_str()), shown(other.uri.as_str())),
        )),
        (Some(skill), None) => Ok(skill),
        (None, _) => {
            let unlisted = async {
                let uri = Uri::parse(name).ok()?;
                Some(target.view.snapshot().skill(&uri, &Context::default()).await)
            };
            let missing = || format!("there is no skill `{name}`; hint: `libris skills` lists the skills");
            match unlisted.await {
                Some(Ok((skill, _))) => Ok(skill),
                Some(Err(error)) if error.is_not_found() => Err(anyhow::Error::new(error).context(missing())),
                Some(Err(error)) => {
                    Err(anyhow::Error::new(error).context(format!("could not look up the skill `{name}`")))
                }
                None => Err(Error::invalid(missing()).into()),
            }
        }
    }
}

/// Reads a file of a skill. The inner error says how it differs from the size, the digest or the front matter in the list.
async fn read_verified(target: &OpenedTarget, skill: &Skill, uri: &Uri) -> Result<Result<Vec<u8>, String>> {
    let contents = target.view.snapshot().read(uri, &Context::default()).await;
    let mut parts = contents.with_context(|| format!("could not read `{uri}`"))?.parts.into_iter();
    let (Some(part), None) = (parts.next(), parts.next()) else {
        return Ok(Err(format!("a read of `{uri}` returned no content, or several")));
    };
    let bytes = match part.body {
        ContentBody::Text(text) => text.into_bytes(),
        ContentBody::Bytes(bytes) => bytes.to_vec(),
    };
    Ok(verify(skill, uri, &bytes).map(|()| bytes))
}

/// Writes the files to a new folder.
fn write(folder: &Path, name: &str, files: &[VerifiedFile]) -> Result<PathBuf> {
    let skill = folder.join(name);
    let writing = |path: &Path| format!("could not write `{}`", path.display());
    std::fs::create_dir_all(folder).with_context(|| writing(folder))?;
    match std::fs::create_dir(&skill) {
        Err(cause) if cause.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(advice(
                format!("`{}` already exists", skill.display()),
                "remove it first, or write to another folder",
            ));
        }
        created => created.with_context(|| writing(&skill))?,
    }
    for (path, bytes) in files {
        let path = path.iter().fold(skill.clone(), |path, segment| path.join(segment));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| writing(parent))?;
        }
        std::fs::write(&path, bytes).with_context(|| writing(&path))?;
    }
    Ok(skill)
}

fn text<'a>(frontmatter: &'a Meta, key: &str) -> &'a str {
    frontmatter.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn line(skill: &Skill, width: Option<usize>) -> String {
    let name = match text(&skill.frontmatter, "name") {
        "" => shown(skill.uri.as_str()),
        name => one_line(name),
    };
    let left = width.map(|width| width.saturating_sub(columns(&name) + 2));
    let description = clipped(text(&skill.frontmatter, "description"), left);
    format!("{name}  {}\n", styled(DETAIL, description))
}

fn skill_json(skill: &Skill) -> Value {
    let resources = match &skill.resources {
        SkillResources::Dynamic => json!("dynamic"),
        SkillResources::Files(files) => files
            .iter()
            .map(|file| {
                json!({ "uri": file.uri.as_str(), "digest": file.digest.to_string(), "size": file.size })
            })
            .collect(),
    };
    json!({ "uri": skill.uri.as_str(), "frontmatter": skill.frontmatter, "resources": resources })
}
