struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://{doc_id}")]
    fn document(&self) -> &str {
        "one mistake, told once"
    }
}

fn main() {
    let _ = libris::serve(Docs);
}
