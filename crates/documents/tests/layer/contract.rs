//! The contract suite, on a folder of documents under the layer.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use libris_core::contract::{Fixture, check};
use libris_core::{Source, Uri};
use libris_documents::{Documents, PlainRead};
use tempfile::TempDir;

use crate::samples::{letter, numbered_pdf, package, xlsx};
use crate::{folder, reader, uri};

struct FolderOfDocuments {
    dir: TempDir,
    documents: Documents,
}

impl FolderOfDocuments {
    fn new(plain: PlainRead) -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        let write = |name: &str, data: &[u8]| fs::write(dir.path().join(name), data).unwrap();
        write("a.txt", b"plain");
        write("b.pdf", &numbered_pdf(3));
        write("sub/c.docx", &letter("Dear reader"));
        write("d.csv", b"a,b\n1,2\n");
        write("e.zip", &package(&[("inner.txt", "text")]));
        write("f.xlsx", &xlsx(&[("One", &[&["a", "b"], &["1", "2"]])]));
        let documents = Documents::new(folder(dir.path()), reader(|_| {}), plain);
        Self { dir, documents }
    }

    fn path(&self, uri: &Uri) -> PathBuf {
        self.dir.path().join(uri.path().strip_prefix("/docs/").unwrap())
    }
}

#[async_trait]
impl Fixture for FolderOfDocuments {
    fn source(&self) -> &dyn Source {
        &self.documents
    }

    fn unknown(&self) -> Uri {
        uri("file:///docs/no/such.pdf?as=text")
    }

    fn invalid(&self) -> Vec<Uri> {
        ["b.pdf?as=words", "b.pdf?as=text&pages=0", "b.pdf?as=text&sheet=1", "e.zip/../../x", "e.zip/none"]
            .map(|path| uri(&format!("file:///docs/{path}")))
            .into()
    }

    async fn add(&self, number: usize) -> Option<Uri> {
        let uri = uri(&format!("file:///docs/sub/{number}.csv"));
        fs::write(self.path(&uri), "a\n1\n").unwrap();
        Some(uri)
    }

    async fn change(&self, uri: &Uri) -> bool {
        fs::write(self.path(uri), "a,b\n1,2\nlonger,than before\n").is_ok()
    }

    async fn remove(&self, uri: &Uri) -> bool {
        fs::remove_file(self.path(uri)).is_ok()
    }

    async fn deadline(&self) {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_whose_bytes_are_the_default_keep_the_contract() {
    check(&FolderOfDocuments::new(PlainRead::Original)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_whose_text_is_the_default_keep_the_contract() {
    check(&FolderOfDocuments::new(PlainRead::Text)).await;
}
