struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://all")]
    fn one(&self) -> &str {
        "one"
    }

    #[resource("docs://all")]
    fn two(&self) -> &str {
        "two"
    }
}

fn main() {}
