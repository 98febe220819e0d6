struct Docs;

#[libris::resources]
impl Docs {
    #[prompt]
    fn all(&self) -> String {
        String::new()
    }

    #[prompt(name = "all")]
    fn other(&self) -> String {
        String::new()
    }
}

fn main() {}
