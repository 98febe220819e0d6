struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://search{?tag*}")]
    fn search(&self, tag: String) -> String {
        tag
    }
}

fn main() {}
