//! Keyset pagination while files are created and deleted.

use std::collections::HashMap;
use std::fs;

use libris_core::{Context, Source, Uri};

use super::sandbox::{BackgroundLoop, Sandbox};

#[tokio::test]
async fn pages_are_complete_while_files_come_and_go() {
    let sandbox = Sandbox::large();
    let folders: Vec<_> = (0..100).map(|folder| sandbox.path(format!("folder {folder:02}"))).collect();
    for folder in &folders {
        fs::create_dir(folder).unwrap();
        for file in 0..1000 {
            fs::File::create(folder.join(format!("{file}.txt"))).unwrap();
        }
    }
    let files = sandbox.files();
    let _others = BackgroundLoop::each(move |round| {
        let folder = &folders[round % folders.len()];
        let (file, directory) =
            (folder.join(format!("{round}-passing.txt")), folder.join(format!("{round}!")));
        fs::File::create(&file).unwrap();
        fs::create_dir_all(directory.join("deep")).unwrap();
        fs::remove_file(&file).unwrap();
        fs::remove_dir_all(&directory).unwrap();
    });
    let mut seen: HashMap<Uri, u32> = HashMap::new();
    let mut after: Option<Uri> = None;
    loop {
        let page = files.list(after.as_ref(), 500, &Context::default()).await.unwrap();
        for resource in &page.resources {
            assert!(after.as_ref().is_none_or(|after| *after < resource.uri));
            *seen.entry(resource.uri.clone()).or_default() += 1;
            after = Some(resource.uri.clone());
        }
        if !page.more {
            break;
        }
    }
    for folder in 0..100 {
        for file in 0..1000 {
            let uri = Uri::parse(&format!("file:///root/folder%20{folder:02}/{file}.txt")).unwrap();
            assert_eq!(seen.get(&uri), Some(&1), "{uri}");
        }
    }
}
