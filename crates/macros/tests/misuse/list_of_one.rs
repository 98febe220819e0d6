struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://all")]
    fn all(&self) -> &str {
        "all"
    }

    #[list("docs://all")]
    fn list(&self) -> Vec<String> {
        Vec::new()
    }
}

fn main() {}
