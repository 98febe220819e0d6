//! A child process ends with all its descendants. This test program is itself the child and the grandchild.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use libris_process::{GroupedChild, executable};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

const ROLE: &str = "LIBRIS_TEST_ROLE";
const FILE: &str = "LIBRIS_TEST_FILE";

/// How long a process lives that nobody kills, and how long tests wait.
const DEADLINE: Duration = Duration::from_secs(60);

/// This program in a role: `parent` starts a `grandchild`, which writes to the file as long as it lives.
fn program(role: &str, file: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "play_the_role", "--ignored", "--nocapture"]).env(ROLE, role).env(FILE, file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
#[ignore = "only as a child of the other tests"]
fn play_the_role() {
    let (Ok(role), Some(file)) = (std::env::var(ROLE), std::env::var_os(FILE)) else { return };
    let file = PathBuf::from(file);
    let began = std::time::Instant::now();
    if role == "parent" || role == "short-lived parent" {
        #[expect(
            clippy::zombie_processes,
            reason = "it outlives this process, until it is killed with the group"
        )]
        program("grandchild", &file).into_std().spawn().unwrap();
    }
    while role != "short-lived parent" && began.elapsed() < DEADLINE {
        if role == "grandchild" {
            std::fs::write(&file, format!("{:?}", began.elapsed())).unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the file changes.
async fn changed(file: &Path) {
    let before = std::fs::read(file).ok();
    let change = async {
        while std::fs::read(file).ok().is_none_or(|now| now.is_empty() || before.as_ref() == Some(&now)) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DEADLINE / 2, change).await.expect("the grandchild writes");
}

/// Asserts that nobody writes to the file any more.
async fn ended(file: &Path) {
    let began = Instant::now();
    loop {
        let before = std::fs::read(file).unwrap();
        // Far longer than the pause of the grandchild between two writes.
        sleep(Duration::from_millis(500)).await;
        if std::fs::read(file).unwrap() == before {
            return;
        }
        assert!(began.elapsed() < DEADLINE / 2, "the grandchild goes on");
    }
}

#[tokio::test]
async fn descendants_are_killed_with_the_child() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alive");
    let mut child = GroupedChild::spawn(program("parent", &file)).unwrap();
    changed(&file).await;
    child.kill();
    assert!(!timeout(DEADLINE / 2, child.wait()).await.unwrap().unwrap().success());
    ended(&file).await;
}

#[tokio::test]
async fn descendants_are_killed_on_drop() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alive");
    let child = GroupedChild::spawn(program("parent", &file)).unwrap();
    changed(&file).await;
    drop(child);
    ended(&file).await;
}

#[tokio::test]
async fn waiting_ends_with_the_child_although_a_descendant_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alive");
    let mut child = GroupedChild::spawn(program("short-lived parent", &file)).unwrap();
    assert!(timeout(DEADLINE / 2, child.wait()).await.unwrap().unwrap().success());
    changed(&file).await;
    child.kill();
    ended(&file).await;
}

#[tokio::test]
async fn pipes_are_those_of_the_child() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--list").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = GroupedChild::spawn(command).unwrap();
    let pipes = child.pipes();
    assert!(pipes.stdin.is_none() && pipes.stderr.is_none());
    let mut text = String::new();
    pipes.stdout.unwrap().read_to_string(&mut text).await.unwrap();
    assert!(text.contains("pipes_are_those_of_the_child: test"), "{text}");
    assert!(child.wait().await.unwrap().success());
}

#[test]
fn a_program_is_found_by_its_path_or_in_path() {
    let folder = tempfile::tempdir().unwrap();
    let name = if cfg!(windows) { "libris-script.cmd" } else { "libris-script" };
    std::fs::write(folder.path().join(name), "").unwrap();
    std::fs::write(folder.path().join("text"), "").unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path().join(name), executable).unwrap();
    }
    let found = |program: &str| executable(program.as_ref(), folder.path());
    // On Windows, without the extension.
    let script = found("./libris-script").expect("relative to the folder");
    assert_eq!(script.file_name().unwrap(), name);
    assert_eq!(found("./text"), None, "it is not executable");
    assert_eq!(found("./missing"), None);
    assert_eq!(found("libris-script"), None, "the folder is not in `PATH`");
    let shell = found(if cfg!(windows) { "cmd" } else { "sh" }).expect("in `PATH`");
    assert!(shell.is_absolute() && shell.is_file(), "{shell:?}");
}
