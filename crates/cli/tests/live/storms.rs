//! Many simultaneous changes with many subscribers.

use std::path::Path;
use std::process::Command;

use crate::client::{Client, Era, Program, eventually};

pub(crate) fn git(folder: &Path, arguments: &[&str]) {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn fill(folder: &Path, round: u32) {
    for n in 0..5_000 {
        let path = folder.join(format!("d{}/f{n}.txt", n % 50));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{round} {n}")).unwrap();
    }
    // Some files exist in one of the commits only.
    for n in 0..100 {
        std::fs::write(folder.join(format!("d{}/only{round}-{n}.txt", n % 50)), "").unwrap();
        let _ = std::fs::remove_file(folder.join(format!("d{}/only{}-{n}.txt", n % 50, 3 - round)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_is_told_in_a_handful_of_notifications() {
    let folder = tempfile::Builder::new().prefix("checkout").tempdir().unwrap();
    git(folder.path(), &["init", "-q"]);
    for round in [1, 2] {
        fill(folder.path(), round);
        git(folder.path(), &["add", "-A"]);
        git(folder.path(), &["commit", "-q", "-m", "round"]);
    }
    let program = Program::folder(folder.path());
    let mount = format!("file:///{}/", folder.path().file_name().unwrap().to_str().unwrap());
    let uris: Vec<_> = (0..5_000).step_by(25).map(|n| format!("{mount}d{}/f{n}.txt", n % 50)).collect();
    let clients = [
        Client::connect(&program, Era::Legacy, &uris).await,
        Client::connect(&program, Era::Modern, &uris).await,
    ];
    let began = std::time::Instant::now();
    git(folder.path(), &["checkout", "-q", "HEAD~1"]);
    for client in &clients {
        eventually("every subscribed file is told", async || {
            client.heard.lock().unwrap().updates.len() == uris.len()
        })
        .await;
        // Two seconds without a notification of the list mean that all changes were notified.
        let mut before = usize::MAX;
        eventually("the list settles", async || {
            let lists = client.heard.lock().unwrap().lists;
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
            std::mem::replace(&mut before, lists) == lists
        })
        .await;
        let lists = client.heard.lock().unwrap().lists;
        // On a loaded machine the checkout spans more debounce windows.
        let most = 8 + began.elapsed().as_secs() as usize;
        assert!((1..=most).contains(&lists), "the list was told {lists} times");
    }
}
