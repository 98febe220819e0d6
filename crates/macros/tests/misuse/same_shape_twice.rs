struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://{id}")]
    fn one(&self, id: String) -> String {
        id
    }

    #[resource("DOCS://{name}")]
    fn two(&self, name: String) -> String {
        name
    }
}

fn main() {}
