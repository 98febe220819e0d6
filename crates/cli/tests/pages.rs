//! Man pages and completion scripts have every command and option that the help texts have.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

fn libris(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_libris")).args(arguments).output().unwrap()
}

fn printed(arguments: &[&str]) -> String {
    let output = libris(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The subcommands in a help text, without `help`.
fn commands(help: &str) -> Vec<&str> {
    let list = help.split("Commands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    // What wraps begins further to the right.
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

/// The long options in a help text.
fn options(help: &str) -> BTreeSet<&str> {
    let options = help.split("Options:\n").nth(1).unwrap_or_default();
    let words =
        options.lines().filter(|line| line.trim_start().starts_with('-')).flat_map(str::split_whitespace);
    words.filter(|word| word.starts_with("--")).map(|word| word.trim_end_matches("...")).collect()
}

/// The text of a man page without its escapes.
fn page(folder: &Path, name: &str) -> String {
    let path = folder.join(format!("{name}.1"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
    text.replace("\\-", "-").replace("\\fR", "").replace("\\fB", "").replace("\\fI", "")
}

/// Compares the man page of a command with its help text, and those of its subcommands.
fn compare(folder: &Path, command: &[&str], seen: &mut BTreeSet<String>) {
    let help = printed(&[command, &["--help"]].concat());
    let name = [&["libris"], command].concat().join("-");
    let page = page(folder, &name);
    assert!(page.contains(&format!(".TH {name} 1")), "{name}: {page}");
    assert!(page.contains(concat!("libris ", env!("CARGO_PKG_VERSION"))), "{name}: {page}");
    for option in options(&help) {
        assert!(page.contains(option), "{name}: the page has no `{option}`:\n{page}");
    }
    seen.insert(format!("{name}.1"));
    for subcommand in commands(&help) {
        compare(folder, &[command, &[subcommand]].concat(), seen);
    }
}

#[test]
fn each_command_has_a_man_page_with_its_options() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("share/man1");
    printed(&["man", folder.to_str().unwrap()]);
    let mut seen = BTreeSet::new();
    compare(&folder, &[], &mut seen);
    assert!(seen.contains("libris-key-add.1"), "{seen:?}");
    assert!(seen.len() > 15, "{seen:?}");
    let files = std::fs::read_dir(&folder).unwrap();
    let written: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(written, seen, "pages of no command");
    assert_eq!(printed(&["man"]), std::fs::read_to_string(folder.join("libris.1")).unwrap());
}

#[test]
fn a_folder_that_cannot_be_created_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let output = libris(&["man", file.path().join("man1").to_str().unwrap()]);
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("error: could not create the folder `"), "{said}");
}

#[test]
fn each_shell_has_a_script_with_all_commands() {
    let help = printed(&["--help"]);
    let commands = commands(&help);
    assert!(commands.len() > 10, "{commands:?}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["completions", shell]);
        for command in &commands {
            assert!(script.contains(command), "{shell}: no `{command}`");
        }
    }
    assert_eq!(libris(&["completions", "tcsh"]).status.code(), Some(2));
}

/// What bash completes the last of these words with.
#[cfg(unix)]
fn completed(words: &str) -> BTreeSet<String> {
    let script = "source <(\"$0\" completions bash); COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _libris libris \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output =
        Command::new("bash").args(["-c", script, env!("CARGO_BIN_EXE_libris"), words]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[cfg(unix)]
#[test]
fn bash_completes_commands_options_and_values() {
    assert_eq!(completed("libris ser"), ["serve".to_owned()].into());
    assert_eq!(completed("libris serve --st"), ["--stdio".to_owned()].into());
    assert_eq!(completed("libris completions f"), ["fish".to_owned()].into());
    // Where the script has nothing, bash completes paths.
    assert_eq!(completed("libris serve ./do"), [String::new()].into());
    assert!(printed(&["completions", "bash"]).contains("-o default libris"));
}
