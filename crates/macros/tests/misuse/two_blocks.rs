struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://one")]
    fn one(&self) -> &str {
        "one"
    }
}

#[libris::resources]
impl Docs {
    #[resource("docs://two")]
    fn two(&self) -> &str {
        "two"
    }
}

fn main() {}
