struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://documents/{doc_id}")]
    fn document(&self, doc_id: String) -> String {
        doc_id
    }

    #[complete("docs://documents/{doc_id}", id)]
    fn ids(&self) -> Vec<String> {
        Vec::new()
    }
}

fn main() {}
