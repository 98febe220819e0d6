struct Docs;

#[libris::resources]
impl Docs {
    #[prompt(resources = ["docs://{page}"])]
    fn review(&self, name: String) -> String {
        format!("Review {name}.")
    }
}

fn main() {}
