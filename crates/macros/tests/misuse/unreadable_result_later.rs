struct Docs;

struct Document;

#[libris::resources]
impl Docs {
    #[resource("docs://document")]
    async fn document(&self) -> Document {
        Document
    }
}

fn main() {}
