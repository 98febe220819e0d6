struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://{doc_id")]
    fn document(&self, doc_id: String) -> String {
        doc_id
    }
}

fn main() {}
