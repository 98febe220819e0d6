//! Errors in the configuration of a command are reported when it is loaded.

use super::commands;
use tempfile::TempDir;

#[track_caller]
fn said(config: &str) -> String {
    match commands(config, &TempDir::new().unwrap()) {
        Ok(_) => panic!("it was accepted:\n{config}"),
        Err(error) => error.to_string(),
    }
}

fn of(rest: &str) -> String {
    said(&format!("[[command]]\nuri = \"a://{{b}}{{?c}}\"\n{rest}"))
}

#[test]
fn mistakes_are_explained() {
    use insta::assert_snapshot;
    assert_snapshot!(of("run = []"), @r#"the command `a://{b}{?c}`: its `run` names no program; hint: write `run = ["PROGRAM", "ARGUMENT"]`"#);
    assert_snapshot!(of("run = [\"{{b}}\"]"), @"the command `a://{b}{?c}`: its program cannot be a variable; hint: name the program, and use variables as arguments");
    assert_snapshot!(of("run = [\"no-such-program\"]"), @"the command `a://{b}{?c}`: there is no program `no-such-program`; hint: install it, or write its whole path in `run`");
    assert_snapshot!(of("run = [\"./missing\"]"), @"the command `a://{b}{?c}`: there is no program `./missing`; hint: install it, or write its whole path in `run`");
    assert_snapshot!(of("run = [\"echo\", \"{{d}}\"]"), @"the command `a://{b}{?c}`: it has no variable `d`, only `b`, `c`");
    assert_snapshot!(of("run = [\"echo\", \"{{b}}\"]"), @"the command `a://{b}{?c}`: its variable `c` does not occur in `run`; hint: write `{{c}}` as an argument");
    assert_snapshot!(of("run = [\"echo\", \"{{b}}{{c}}\"]"), @"the command `a://{b}{?c}`: its variable `c` may be left out and so needs a `default`");
    let whole = "run = [\"echo\", \"{{b}}{{c}}\"]\ndefault = { c = \"1\" }\n";
    let with = |rest: &str| of(&format!("{whole}{rest}"));
    assert_snapshot!(with("pattern = { b = \"(\" }"), @"the command `a://{b}{?c}`: the pattern `(` cannot be read: found open group without closing ')'");
    assert_snapshot!(with("pattern = { c = \"[a-z]\" }"), @"the command `a://{b}{?c}`: `1` is not allowed as the value of its variable `c`; hint: correct `default`, `complete` or `pattern`");
    assert_snapshot!(with("complete = { b = [\"-x\"] }"), @"the command `a://{b}{?c}`: `-x` is not allowed as the value of its variable `b`; hint: correct `default`, `complete` or `pattern`");
    assert_snapshot!(with("complete = { b = { run = [\"echo\", \"{{c}}\"] } }"), @"the command `a://{b}{?c}`: the command that completes cannot use `{{c}}`; hint: write it without variables");
    assert_snapshot!(with("complete = { b = 7 }"), @"expected a list of values, or a command as in `{ run = [\"ls\"] }`");
    assert_snapshot!(with("folder = \"nowhere\""), @"the command `a://{b}{?c}`: its folder `nowhere` does not exist; hint: create it, or correct `folder`");
    assert_snapshot!(with("inherit = [\"A=B\"]"), @"the command `a://{b}{?c}`: `A=B` is not a valid name of an environment variable; hint: use letters, digits and `_`");
    assert_snapshot!(with("timeout = \"0s\""), @"the command `a://{b}{?c}`: its `timeout` must be longer than 0");
    assert_snapshot!(with("concurrent = 0"), @"`0` is out of range; hint: use a number from 1 to 256");
    assert_snapshot!(with("poll = \"5ms\""), @"the command `a://{b}{?c}`: its `poll` must be at least `1s`");
    assert_snapshot!(with("exit = { 256 = \"ok\" }"), @"`256` is not an exit code; hint: use a number from 0 to 255");
    assert_snapshot!(with("exit = { 1 = \"fine\" }"), @"unknown variant `fine`, expected one of `ok`, `not-found`, `denied`, `invalid`, `unavailable`");
    assert_snapshot!(with("priority = 2.0"), @"the command `a://{b}{?c}`: its `priority` must be from 0 to 1, not `2`");
    assert_snapshot!(said("[[command]]\nuri = \"a://{b*}\"\nrun = [\"echo\", \"{{b}}\"]"), @"the command `a://{b*}`: its `uri` must not contain the modifier `*`, as in `{name*}`: each variable has one value");
    assert_snapshot!(said("[[command]]\nuri = \"a://b{?lines}\"\nrun = [\"echo\"]\npattern = { lines = \"1\" }"), @"the command `a://b{?lines}`: its `lines` selects a range of the output and cannot have a pattern; hint: remove it");
    assert_snapshot!(said("[[command]]\nuri = \"a://b{?lines}\"\nrun = [\"echo\"]\ndefault = { lines = \"0\" }"), @"the command `a://b{?lines}`: its `default`: `lines=0` begins too early: lines count from 1");
    assert_snapshot!(said("[[command]]\nuri = \"a://b\"\nrun = [\"echo\"]\n[[command]]\nuri = \"a://b\"\nrun = [\"echo\"]"), @"the command `a://b`: it is declared twice; hint: remove one, or give it another `uri`");
    assert_snapshot!(said("[[command]]\nuri = \"a://b\"\nrun = \"echo hi\""), @"invalid type: string \"echo hi\", expected a sequence");
}
