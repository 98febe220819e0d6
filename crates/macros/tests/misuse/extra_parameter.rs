struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://all")]
    fn all(&self, limit: u32) -> String {
        limit.to_string()
    }
}

fn main() {}
