struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://documents/{doc_id}")]
    fn document(&self, doc_id: String) -> String {
        doc_id
    }

    #[complete("docs://document/{doc_id}", doc_id)]
    fn ids(&self) -> Vec<String> {
        Vec::new()
    }
}

fn main() {}
