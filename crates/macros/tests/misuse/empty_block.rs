struct Docs;

#[libris::resources]
impl Docs {
    fn all(&self) -> &str {
        "all"
    }
}

fn main() {
    Docs.all();
}
