struct Docs;

#[libris::resources]
impl Docs {
    #[prompt(resources = ["docs://{id}"])]
    fn all(&self) -> String {
        String::new()
    }
}

fn main() {}
