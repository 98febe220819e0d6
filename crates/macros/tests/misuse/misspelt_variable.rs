struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://{doc_id}{?version}")]
    fn document(&self, doc_id: String, versoin: Option<u32>) -> String {
        format!("{doc_id} {versoin:?}")
    }
}

fn main() {}
