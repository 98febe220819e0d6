struct Docs;

#[libris::resources]
impl Docs {
    #[prompt]
    fn compare(&self, pages: Vec<String>) -> String {
        pages.join(" and ")
    }
}

fn main() {}
