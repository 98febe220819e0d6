struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://all", mimetype = "text/plain")]
    fn all(&self) -> &str {
        "all"
    }
}

fn main() {}
