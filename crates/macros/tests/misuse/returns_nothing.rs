struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://nothing")]
    async fn nothing(&self) {}
}

fn main() {}
