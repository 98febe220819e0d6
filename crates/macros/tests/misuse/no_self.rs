struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://one")]
    fn one() -> &'static str {
        "one"
    }

    #[resource("docs://two")]
    fn two(&mut self) -> &'static str {
        "two"
    }
}

fn main() {}
