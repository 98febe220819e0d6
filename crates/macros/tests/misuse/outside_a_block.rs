struct Docs;

impl Docs {
    #[libris::resource("docs://all")]
    fn all(&self) -> &str {
        "all"
    }
}

fn main() {
    Docs.all();
}
