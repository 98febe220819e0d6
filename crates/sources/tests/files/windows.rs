//! What only Windows has: names of devices and streams, short forms, other spellings, junctions, and files that are not
//! shared.

use std::fs;
use std::io::Write as _;
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use super::confinement::{CANARY, assert_unreachable, sandbox};
use super::sandbox::{is_not_found, listed, read};

/// Names that Windows resolves to a device, to a stream, or to a file of another name.
const NAMES: [&str; 6] = [
    "NUL nul nul.txt CON con.md PRN AUX COM1 com9.log LPT1 CONIN$ CONOUT$ COM%C2%B9 dir/NUL NUL/in.txt",
    "in.txt. in.txt%20 in.txt... dir./in.txt dir%20/in.txt IN.TXT In.txt DIR/in.txt in~1.txt DIR~1/in.txt",
    "in.txt::$DATA in.txt%3A%3A$DATA in.txt:stream dir::$INDEX_ALLOCATION/in.txt",
    "C: C:/ C%3A%5CWindows %5CWindows %5C%5Cserver%5Cshare %5C%5C.%5CNUL %5C%5C%3F%5CC:%5C",
    "dir%5Cin.txt ..%5Csecret.txt dir%5C..%5C..%5Csecret.txt",
    "in.tx%3F in.* %3Cin.txt in.txt%7C",
];

#[tokio::test]
async fn names_of_devices_and_streams_and_other_spellings_are_not_served() {
    let sandbox = sandbox();
    for files in [sandbox.files(), sandbox.files_with(|config| config.symlinks = true)] {
        for name in NAMES.into_iter().flat_map(str::split_whitespace) {
            assert_unreachable(&files, &format!("file:///root/{name}")).await;
        }
        assert!(read(&files, "in.txt").await.is_ok());
    }
}

/// Creates a junction; `false` if the system has none, such as wine.
fn junction(link: &Path, target: &Path) -> bool {
    let made = Command::new("cmd").args(["/c", "mklink", "/J"]).arg(link).arg(target).output();
    made.is_ok_and(|made| made.status.success())
        && fs::symlink_metadata(link).is_ok_and(|metadata| metadata.file_type().is_symlink())
}

/// Says what was not tested, in the output of a test that passes too: the macros for printing are captured.
fn not_tested(what: &str) {
    // A line of its own among the dots of `--quiet`.
    let _ = writeln!(std::io::stderr(), "\nnot tested: {what}");
}

#[tokio::test]
async fn a_file_that_another_program_does_not_share_is_listed_and_a_read_says_why() {
    let sandbox = sandbox();
    let files = sandbox.files();
    let open = fs::OpenOptions::new().read(true).share_mode(0).open(sandbox.path("in.txt")).unwrap();
    assert_eq!(listed(&files).await, ["", "dir/", "dir/in.txt", "in.txt"]);
    let error = read(&files, "in.txt").await.unwrap_err();
    assert!(error.to_string().contains("is open in another program that does not share it"), "{error:?}");
    drop(open);
    assert!(read(&files, "in.txt").await.is_ok());
}

#[tokio::test]
async fn a_junction_does_not_lead_out_of_the_folder() {
    let sandbox = sandbox();
    let link = sandbox.path("link");
    if !junction(&link, &sandbox.outside().join("outside")) {
        return not_tested("a junction does not lead out of the folder: this system has no junctions");
    }
    assert_eq!(fs::read_to_string(link.join("in.txt")).unwrap(), CANARY, "the junction works");
    for files in [sandbox.files(), sandbox.files_with(|config| config.symlinks = true)] {
        assert!(is_not_found(&read(&files, "link/in.txt").await));
        assert!(is_not_found(&read(&files, "link/").await));
        assert!(!listed(&files).await.iter().any(|key| key.starts_with("link")), "it is not listed");
    }
}

#[tokio::test]
async fn a_root_replaced_by_a_junction_is_not_served() {
    let sandbox = sandbox();
    let files = sandbox.files();
    assert!(read(&files, "in.txt").await.is_ok());
    // The open folder cannot be renamed, or the one that is served instead must not be the target of the junction.
    if fs::rename(sandbox.path(""), sandbox.outside().join("moved")).is_err() {
        return not_tested("a root replaced by a junction is not served: the open folder cannot be renamed");
    }
    if !junction(&sandbox.outside().join("root"), &sandbox.outside().join("outside")) {
        return not_tested("a root replaced by a junction is not served: this system has no junctions");
    }
    assert!(!format!("{:?}", read(&files, "in.txt").await).contains(CANARY));
}
