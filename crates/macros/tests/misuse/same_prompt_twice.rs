struct Docs;

#[libris::resources]
impl Docs {
    #[prompt]
    fn review(&self, page: String) -> String {
        format!("Review {page}.")
    }

    #[prompt(name = "review")]
    fn review_all(&self) -> &'static str {
        "Review all pages."
    }
}

fn main() {}
