//! `libris completions`: prints the completion script of a shell.

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::terminal::print;

/// Print the completion script of a shell
///
/// The script completes commands, options and their values, and file names. Those for bash, fish and zsh also complete URIs
/// and templates, which they request from the target: after `libris read`, `libris complete`, `--uri` and `--below`. The
/// packages for Debian, Homebrew and Nix install the scripts for bash, fish and zsh.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  source <(libris completions bash)                                        for this shell
  libris completions bash > ~/.local/share/bash-completion/completions/libris
  libris completions fish > ~/.config/fish/completions/libris.fish
  libris completions zsh > \"${fpath[1]}/_libris\"
  libris completions powershell >> $PROFILE")]
pub(crate) struct CompletionsOptions {
    /// The shell
    shell: Shell,
}

/// The new name of the completion function in clap's scripts for bash and zsh. A function with its original name,
/// `_libris`, completes URIs, and calls it for other words.
const STATIC: &str = "_libris_static";

/// Completes URIs in bash. This program prints escaped words, so `compopt -o filenames` is not needed.
const BASH: &str = r#"
_libris() {
    local found line
    if found=$("$1" complete-words bash "$COMP_WORDBREAKS" "${COMP_LINE:0:COMP_POINT}" "${COMP_LINE:COMP_POINT}" 2> /dev/null); then
        COMPREPLY=()
        while IFS= read -r line; do
            [[ -n $line ]] && COMPREPLY+=("$line")
        done <<< "$found"
        compopt +o default +o bashdefault 2> /dev/null
        [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=/:] ]] && compopt -o nospace
        return 0
    fi
    _libris_static "$@"
}
"#;

/// Completes URIs in zsh, which escapes them.
const ZSH: &str = r#"
_libris() {
    local found
    local -a candidates prefixes
    if found=$("${(Q)words[1]}" complete-words words $((CURRENT - 1)) "${(Q)PREFIX}" "${(@Q)words}" 2> /dev/null); then
        candidates=(${(f)found})
        prefixes=(${(M)candidates:#*[=/:]})
        candidates=(${candidates:#*[=/:]})
        compadd -S '' -a prefixes
        compadd -a candidates
        return 0
    fi
    _libris_static "$@"
}
"#;

/// Completes URIs in fish, which escapes them.
const FISH: &str = r#"
function __libris_live
    set -l before (commandline -opc)
    $before[1] complete-words words (count $before) (commandline -ct | string unescape) (commandline -op) 2> /dev/null
end
complete -c libris -n "__fish_seen_subcommand_from read complete watch bench ls" -a "(__libris_live)"
"#;

/// Prints the script.
pub(crate) fn run(options: &CompletionsOptions) -> Result<()> {
    print(&script(options.shell)?).context("could not print")
}

fn script(shell: Shell) -> Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::Arguments::command(), "libris", &mut script);
    let script = String::from_utf8(script).context("the script is not text")?;
    let renamed = || script.replacen("_libris() {", &format!("{STATIC}() {{"), 1);
    Ok(match shell {
        Shell::Bash => renamed() + BASH,
        // The last lines call the function, so it must be defined in front of them.
        Shell::Zsh => match renamed().rsplit_once("\nif [ \"$funcstack[1]\"") {
            Some((functions, call)) => format!("{functions}{ZSH}\nif [ \"$funcstack[1]\"{call}"),
            None => script,
        },
        Shell::Fish => script + FISH,
        _ => script,
    })
}
