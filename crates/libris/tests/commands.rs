//! A command behind a catalog: run once for all who ask.
#![cfg(unix)]

use std::sync::Arc;

use futures_util::future::join_all;
use libris::{Catalog, ContentBody, Context, Source as _, Uri};
use libris_sources::{Commands, command};

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_reads_of_a_kept_command_run_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = serde_json::json!([{
        "uri": "counted://{name}",
        "run": ["sh", "-c", "echo $0 >> runs; sleep 0.2; wc -l < runs", "{{name}}"],
        "cache": "1h",
    }]);
    let config: Vec<command::Config> = serde_json::from_value(config).unwrap();
    let commands = Commands::new(config, dir.path()).unwrap();
    let catalog = Arc::new(Catalog::new(vec![Arc::new(commands)]));
    let reads = (0..100).map(|_| {
        let catalog = catalog.clone();
        tokio::spawn(async move {
            let uri = Uri::parse("counted://all").unwrap();
            catalog.read(&uri, &Context::default()).await.unwrap()
        })
    });
    for read in join_all(reads).await {
        assert_eq!(read.unwrap().parts[0].body, ContentBody::Text("1\n".into()));
    }
    assert_eq!(std::fs::read_to_string(dir.path().join("runs")).unwrap(), "all\n");
}
