//! `libris read`: prints the contents of a resource.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use libris::{Content, ContentBody, Contents, Context, Error, Uri};

use crate::highlight::highlighted;
use crate::sources::SourceArguments;
use crate::target::{EXIT_CODES, OpenedTarget, content_json, json_line};
use crate::terminal::{HEADING, advice, bytes, print, shown, styled, write_bytes};
use crate::{pager, terminal_image};

/// Print the contents of a resource
///
/// Text is printed as it is. On a terminal, it has colours, control characters are escaped, and what does not fit is shown
/// in a pager: the command in `LIBRIS_PAGER` or `PAGER`, otherwise `less`. Images are shown on terminals that can show
/// them; other binary contents are not printed to a terminal.
#[derive(Debug, Args)]
#[command(after_help = format!("Examples:
  libris read file:///docs/intro.md ./docs              a file of a folder
  libris read 'file:///docs/intro.md?lines=1-20' ./docs its first lines
  libris read --as text file:///docs/report.pdf ./docs  the text of a document
  libris read demo://logo https://mcp.example/mcp -o logo.png

{EXIT_CODES}"))]
pub(crate) struct ReadOptions {
    /// The URI of the resource
    pub(crate) uri: String,
    #[command(flatten)]
    pub(crate) sources: SourceArguments,
    /// Write the contents to a file, as they are
    #[arg(long, short, value_name = "FILE", conflicts_with = "json")]
    output: Option<PathBuf>,
    /// Print JSON: one object per part
    #[arg(long)]
    json: bool,
    /// Do not show long texts in a pager
    #[arg(long)]
    no_pager: bool,
    /// Read a document as text, or pages of a PDF as images: adds `as=text` or `as=image` to the URI. Documents of servers
    /// that do not support this are converted by this program
    #[arg(long = "as", value_name = "FORM")]
    form: Option<ContentForm>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ContentForm {
    /// The text of a document, such as a PDF file
    Text,
    /// The first page of a PDF file as a PNG image; `pages` in the URI selects others
    Image,
}

impl ContentForm {
    /// Whether contents have this form.
    fn describes(self, content: &Content) -> bool {
        match self {
            Self::Text => matches!(content.body, ContentBody::Text(_)),
            Self::Image => content.mime.as_deref().is_some_and(|mime| mime.starts_with("image/")),
        }
    }
}

/// Reads a resource and prints it.
pub(crate) async fn run(options: ReadOptions) -> Result<ExitCode> {
    let uri = match options.form {
        None => Uri::parse(&options.uri)?,
        Some(form) => {
            let separator = if options.uri.contains('?') { '&' } else { '?' };
            let form = match form {
                ContentForm::Text => "text",
                ContentForm::Image => "image",
            };
            Uri::parse(&format!("{}{separator}as={form}", options.uri))?
        }
    };
    let target = OpenedTarget::open(&options.sources)?;
    let contents = read(&target, &uri, options.form).await;
    target.close().await;
    let parts = contents.with_context(|| format!("could not read `{uri}`"))?.parts;
    if options.json {
        let lines: String = parts.iter().map(|part| json_line(&content_json(part))).collect();
        print(&lines).context("could not print")?;
    } else if let Some(path) = &options.output {
        let data: Vec<u8> = parts.iter().flat_map(|part| data(part).iter().copied()).collect();
        std::fs::write(path, data).with_context(|| format!("could not write `{}`", path.display()))?;
    } else if std::io::stdout().is_terminal() {
        match image(&parts) {
            Some(sequences) => std::io::stdout().write_all(sequences.as_bytes()),
            None => show(&for_terminal(&parts)?, options.no_pager),
        }
        .context("could not print")?;
    } else {
        write_bytes(parts.iter().map(data)).context("could not print")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a resource. If a server does not convert documents to this form itself, this program does.
async fn read(target: &OpenedTarget, uri: &Uri, form: Option<ContentForm>) -> libris::Result<Contents> {
    let contents = target.view.snapshot().read(uri, &Context::default()).await;
    let is_refused = match (&contents, form) {
        (_, None) => false,
        (Ok(contents), Some(form)) => !contents.parts.iter().all(|part| form.describes(part)),
        (Err(error), Some(_)) => error.is_not_found() || matches!(error, Error::Invalid(_)),
    };
    match target.converting_view().filter(|_| is_refused) {
        Some(view) => view.snapshot().read(uri, &Context::default()).await,
        None => contents,
    }
}

fn show(text: &str, no_pager: bool) -> std::io::Result<()> {
    if no_pager { print(text) } else { pager::show(text) }
}

/// The escape sequences for contents that are one image, if the terminal can show it.
fn image(parts: &[Content]) -> Option<String> {
    let [Content { body: ContentBody::Bytes(bytes), mime, .. }] = parts else { return None };
    terminal_image::sequences(mime.as_deref()?, bytes)
}

fn data(part: &Content) -> &[u8] {
    match &part.body {
        ContentBody::Text(text) => text.as_bytes(),
        ContentBody::Bytes(bytes) => bytes,
    }
}

/// The contents for a terminal: text with escaped control characters, each part below its URI if there are several.
fn for_terminal(parts: &[Content]) -> Result<String> {
    let mut text = String::new();
    for part in parts {
        let ContentBody::Text(body) = &part.body else {
            let mime = part.mime.as_deref().unwrap_or("application/octet-stream");
            return Err(advice(
                format!("`{}` is binary: {}, {}", part.uri, shown(mime), bytes(part.body.len() as u64)),
                "write it to a file with `--output FILE`, or pipe it into a program",
            ));
        };
        if parts.len() > 1 {
            text.push_str(&styled(HEADING, format_args!("==> {} <==", shown(part.uri.as_str()))));
            text.push('\n');
        }
        text.push_str(&highlighted(&shown(body), part.mime.as_deref(), part.uri.as_str()));
        if !body.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use libris::{Content, Uri};

    use super::for_terminal;

    #[test]
    fn a_terminal_gets_no_escape_sequences_and_no_binary() {
        let uri = || Uri::parse("a:1").unwrap();
        let text = |text: &str| Content::text(uri(), "text/plain", text);
        assert_eq!(for_terminal(&[text("a\u{1b}]0;x\u{7}")]).unwrap(), "a\\u{1b}]0;x\\u{7}\n");
        let two = for_terminal(&[text("a\n"), text("b")]).unwrap();
        assert_eq!(anstream::adapter::strip_str(&two).to_string(), "==> a:1 <==\na\n==> a:1 <==\nb\n");
        let error = for_terminal(&[Content::bytes(uri(), "image/png", &b"\x89PNG"[..])]).unwrap_err();
        assert_eq!(error.to_string(), "`a:1` is binary: image/png, 4 B");
    }
}
