struct Docs;

#[libris::resources]
impl Docs {
    #[prompt]
    fn review(&self, page: String) {
        drop(page);
    }
}

fn main() {}
