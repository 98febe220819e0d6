struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://{id}")]
    fn document<T: std::fmt::Display>(&self, id: T) -> String {
        id.to_string()
    }
}

fn main() {}
