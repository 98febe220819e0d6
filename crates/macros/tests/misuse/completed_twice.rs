struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://{id}")]
    fn document(&self, id: String) -> String {
        id
    }

    #[complete("docs://{id}", id)]
    fn one(&self) -> Vec<String> {
        Vec::new()
    }

    #[complete("docs://{id}", id)]
    fn two(&self) -> Vec<String> {
        Vec::new()
    }
}

fn main() {}
