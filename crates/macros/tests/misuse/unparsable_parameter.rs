struct Docs;

struct DocumentId(String);

#[libris::resources]
impl Docs {
    #[resource("docs://{doc_id}")]
    fn document(&self, doc_id: DocumentId) -> String {
        doc_id.0
    }
}

fn main() {}
