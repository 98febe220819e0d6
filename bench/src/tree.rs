//! Generates folders with a given number of resources, and removes them at the end.

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The number of resources per directory, including the directory itself.
const WIDTH: usize = 1000;

/// The name of the folders, and so the first segment of their URIs.
const NAME: &str = "tree";

/// The number of the file in the first directory that benchmarks read. All other files are empty.
const READ: usize = 500;

/// The content of that file.
pub(crate) const TEXT: &str = "a line\n";

/// The parent of the generated folders.
pub(crate) struct Trees {
    root: PathBuf,
    keep: bool,
}

impl Trees {
    /// Folders will be created in the target directory. With `keep`, they are not removed, and the next run reuses them.
    pub(crate) fn new(keep: bool) -> Result<Self> {
        let bench = std::env::current_exe().context("could not tell where this program is")?;
        let target = bench.ancestors().nth(2).context("this program is nowhere")?;
        Ok(Self { root: target.join("bench-trees"), keep })
    }

    /// A folder with exactly this many resources: files, directories of a thousand, and itself.
    pub(crate) fn make(&self, resources: usize) -> Result<PathBuf> {
        let home = self.root.join(resources.to_string());
        let (folder, made) = (home.join(NAME), home.join("made"));
        if !made.is_file() {
            eprintln!("making {resources} resources …");
            fill(&folder, resources).context("could not make a folder of many files")?;
            std::fs::write(made, "")?;
        }
        Ok(folder)
    }
}

impl Drop for Trees {
    fn drop(&mut self) {
        if !self.keep && self.root.exists() {
            eprintln!("removing what was made …");
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }
}

fn fill(folder: &Path, resources: usize) -> Result<()> {
    let directories = resources.div_ceil(WIDTH);
    let mut left = resources.saturating_sub(directories + 1);
    std::fs::create_dir_all(folder)?;
    let mut path = String::new();
    for directory in 0..directories {
        let directory = folder.join(directory_name(directory));
        std::fs::create_dir_all(&directory)?;
        let directory = directory.to_str().context("the folder has an odd name")?;
        for file in 0..left.min(WIDTH - 1) {
            path.clear();
            write!(path, "{directory}/{}", file_name(file))?;
            // Empty files occupy no disk blocks; a million blocks would be four gigabytes.
            File::create(&path)?;
        }
        left -= left.min(WIDTH - 1);
    }
    Ok(std::fs::write(folder.join(directory_name(0)).join(file_name(READ)), TEXT)?)
}

fn directory_name(directory: usize) -> String {
    format!("d{directory:04}")
}

fn file_name(file: usize) -> String {
    format!("f{file:04}.txt")
}

/// The URI of a file that every folder has.
pub(crate) fn uri() -> String {
    format!("file:///{NAME}/{}/{}", directory_name(0), file_name(READ))
}

/// The template of all files.
pub(crate) fn template() -> String {
    format!("file:///{NAME}/{{+path}}{{?lines,bytes}}")
}

/// A path prefix that a hundred files share.
pub(crate) fn typed() -> String {
    format!("{}/f05", directory_name(0))
}
