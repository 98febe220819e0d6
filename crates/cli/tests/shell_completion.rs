//! Completion of URIs by the scripts of `libris completions`, in bash, zsh and fish. `./test quick` skips zsh and fish if they are missing.
#![cfg(unix)]

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LIBRIS: &str = env!("CARGO_BIN_EXE_libris");

/// A folder with a library and a configuration file.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("docs/README.md", "# Read me\n"),
        ("docs/guide/intro.md", "# Intro\n"),
        ("docs/guide/a b.md", "# Spaces\n"),
        ("docs/odd/$(touch pwned)'`\"&;.md", "# Odd\n"),
    ] {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

/// What a shell prints.
fn shell(folder: &Path, program: &str, arguments: &[&str]) -> Vec<String> {
    let bin = Path::new(LIBRIS).parent().unwrap().display();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("PATH", path)
        .env("HOME", folder)
        .env_remove("LIBRIS_LOG")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// What bash inserts for the word at the cursor, which is between the texts.
fn bash(folder: &Path, before: &str, after: &str) -> Vec<String> {
    let script = r#"source <(libris completions bash)
        COMP_LINE=$1$2; COMP_POINT=${#1}; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _libris libris "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}" 2> /dev/null
        printf '%s\n' "${COMPREPLY[@]}""#;
    let found = shell(folder, "bash", &["-c", script, "bash", before, after]);
    found.into_iter().filter(|line| !line.is_empty()).collect()
}

#[test]
fn bash_completes_uris_folder_by_folder() {
    let folder = folder();
    let complete = |before, after| bash(folder.path(), before, after);
    assert_eq!(complete("libris read ", " ./docs"), ["file:///docs/"]);
    assert_eq!(complete("libris read fi", " ./docs"), ["file:///docs/"]);
    // bash replaces only the text after the last `:`.
    let below = ["///docs/README.md", "///docs/guide/", "///docs/odd/"];
    assert_eq!(complete("libris read file:///docs/", " ./docs --json"), below);
    assert_eq!(complete("libris read file:///docs/RE", "ADME.md ./docs"), ["///docs/README.md"]);
    // In quotes, it replaces all of it.
    let quoted = complete("libris read 'file:///docs/g", "' ./docs");
    assert_eq!(quoted, ["file:///docs/guide/"]);
    assert_eq!(complete("libris read file:///none/", " ./docs"), Vec::<String>::new());
    assert_eq!(complete("libris ls ./docs --below file:///docs/gu", ""), ["///docs/guide/"]);
}

#[test]
fn bash_completes_templates_and_their_variables() {
    let folder = folder();
    let complete = |before, after| bash(folder.path(), before, after);
    let templates = complete("libris complete 'fi", "' path ./docs");
    let template = templates.iter().find(|text| text.starts_with("file:///docs/{+path}"));
    let template = template.unwrap_or_else(|| panic!("{templates:?}"));
    let variable = format!("libris complete '{template}' pa");
    assert!(complete(&variable, " ./docs").contains(&"path=".to_owned()));
    let value = format!("libris complete '{template}' path=gui");
    assert_eq!(complete(&value, " ./docs"), ["guide/"]);
}

#[test]
fn other_words_are_completed_as_before() {
    let folder = folder();
    assert_eq!(bash(folder.path(), "libris read --no", ""), ["--no-pager"]);
    assert_eq!(bash(folder.path(), "libris ser", ""), ["serve"]);
}

#[test]
fn names_of_a_target_are_no_code() {
    let folder = folder();
    let [odd] = &bash(folder.path(), "libris read file:///docs/odd/", " ./docs")[..] else { panic!() };
    assert_eq!(odd, r"///docs/odd/\$\(touch%20pwned\)\'%60%22\&\;.md");
    let script = "eval \"set -- file:$1\"; printf '%s\\n' \"$#\" \"$1\"";
    let read_back = shell(folder.path(), "bash", &["-c", script, "bash", odd]);
    assert_eq!(read_back, ["1", "file:///docs/odd/$(touch%20pwned)'%60%22&;.md"]);
    assert!(!folder.path().join("pwned").exists());
}

#[test]
fn the_tab_key_starts_no_program() {
    let folder = folder();
    let config = "[[files]]\npath = \"docs\"\n\n[[command]]\nname = \"touch\"\nuri = \"x://touched\"\nrun = [\"touch\", \"touched\"]\n\n\
                  [[mcp]]\nname = \"run\"\nrun = [\"touch\", \"started\"]\n";
    std::fs::write(folder.path().join("libris.toml"), config).unwrap();
    assert_eq!(bash(folder.path(), "libris read fi", ""), ["file:///docs/"]);
    assert_eq!(bash(folder.path(), "libris read x", " -- touch after"), Vec::<String>::new());
    for name in ["touched", "started", "after"] {
        assert!(!folder.path().join(name).exists(), "{name}");
    }
}

#[test]
fn a_target_that_does_not_answer_costs_little_time() {
    let folder = folder();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(" http://{}/mcp", silent.local_addr().unwrap());
    let began = Instant::now();
    assert_eq!(bash(folder.path(), "libris read fi", &url), Vec::<String>::new());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// The words of a command line after Tab was pressed at its end in an interactive zsh.
fn zsh(folder: &Path, line: &str) -> Vec<String> {
    // After Tab, the line becomes arguments of `print`, which writes each word on a line of its own.
    let script = r#"export TERM=dumb
        zmodload zsh/zpty
        zpty shell 'zsh -f -i'
        zpty -w shell 'PS1= PS2= RPS1=; unsetopt prompt_cr prompt_sp; autoload -Uz compinit; compinit -u -D
            source <(libris completions zsh); print REA''DY'
        while zpty -r shell text; do [[ $text == *READY* && $text != *print* ]] && break; done
        zpty -w -n shell "$1"$'\t\C-aprint -rl -- FOUND \C-e END\n'
        while zpty -r shell text; do
            print -rn -- "$text"
            [[ $text == *END* && $text != *FOUND* ]] && break
        done
        zpty -d shell"#;
    let printed = shell(folder, "zsh", &["-f", "-c", script, "zsh", line]);
    let words = printed.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
    let words = words.skip_while(|word| *word != "FOUND").skip(1).take_while(|word| *word != "END");
    words.map(str::to_owned).collect()
}

#[test]
fn needs_zsh_to_complete_uris() {
    let folder = folder();
    std::fs::write(folder.path().join("libris.toml"), "[[files]]\npath = \"docs\"\n").unwrap();
    let complete = |line: &str| zsh(folder.path(), line);
    assert_eq!(complete("libris read file:///docs/RE"), ["libris", "read", "file:///docs/README.md"]);
    assert_eq!(complete("libris read file:///docs/gui"), ["libris", "read", "file:///docs/guide/"]);
    let odd = complete("libris read file:///docs/odd/");
    assert_eq!(odd, ["libris", "read", "file:///docs/odd/$(touch%20pwned)'%60%22&;.md"]);
    assert!(!folder.path().join("pwned").exists());
    assert_eq!(complete("libris read --no-pa"), ["libris", "read", "--no-pager"]);
}

#[test]
fn needs_fish_to_complete_uris() {
    let folder = folder();
    let complete = |line: &str| {
        let script = "libris completions fish | source; complete -C $argv[1]";
        shell(folder.path(), "fish", &["--no-config", "-c", script, line])
    };
    std::fs::write(folder.path().join("libris.toml"), "[[files]]\npath = \"docs\"\n").unwrap();
    let found = complete("libris read file:///docs/");
    for expected in ["file:///docs/README.md", "file:///docs/guide/"] {
        assert!(found.contains(&expected.to_owned()), "{found:?}");
    }
    assert_eq!(complete("libris read --no-pa")[0].split('\t').next(), Some("--no-pager"));
}
