//! Generates a large repository with `git fast-import`.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The number of files.
pub(super) const FILES: usize = 100_000;

/// The number of commits.
pub(super) const COMMITS: usize = 2_000;

/// The number of files per folder, and of such folders per parent folder.
const WIDTH: usize = 100;

/// The name of the repository, and so the authority of its URIs.
const NAME: &str = "many";

/// Creates the repository in a folder.
pub(super) fn make(folder: &Path) -> Result<PathBuf> {
    eprintln!("making {FILES} files in {COMMITS} commits …");
    let repository = folder.join(NAME);
    git(folder, &["init", "--quiet", "--bare", NAME])?;
    let mut import = Command::new("git")
        .args(["fast-import", "--quiet"])
        .current_dir(&repository)
        .stdin(Stdio::piped())
        .spawn()
        .context("could not run `git`")?;
    let mut out = BufWriter::new(import.stdin.take().context("no standard input")?);
    for commit in 0..COMMITS {
        let time = 1_600_000_000 + 60 * commit;
        writeln!(out, "commit refs/heads/main\ncommitter A <a@example.com> {time} +0000\ndata 7\nchange\n")?;
        // The first commit contains all files; each later one changes a single file.
        let files = if commit == 0 { 0..FILES } else { place(commit)..place(commit) + 1 };
        for file in files {
            let text = format!("file {file} of commit {commit}\n{}", "a line of text\n".repeat(20));
            writeln!(out, "M 100644 inline {}\ndata {}\n{text}", path(file), text.len())?;
        }
    }
    drop(out);
    ensure!(import.wait()?.success(), "`git fast-import` failed");
    git(&repository, &["symbolic-ref", "HEAD", "refs/heads/main"])?;
    git(&repository, &["repack", "-a", "-d", "--quiet"])?;
    Ok(repository)
}

/// The number of the file that a commit changes; those of consecutive commits are far apart.
fn place(commit: usize) -> usize {
    commit * 7_919 % FILES
}

/// The path of a file.
pub(super) fn path(file: usize) -> String {
    let folder = file / WIDTH;
    format!("d{:02}/s{:02}/f{:02}.txt", folder / WIDTH, folder % WIDTH, file % WIDTH)
}

/// The URI of a path at a revision.
pub(super) fn uri(rev: &str, path: &str) -> String {
    format!("git://{NAME}/blob/{rev}/{path}")
}

/// Runs `git` and returns its output.
pub(super) fn git(folder: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new("git").args(arguments).current_dir(folder).stderr(Stdio::inherit()).output();
    let output = output.context("could not run `git`")?;
    ensure!(output.status.success(), "`git {}` failed", arguments.join(" "));
    Ok(output.stdout)
}
