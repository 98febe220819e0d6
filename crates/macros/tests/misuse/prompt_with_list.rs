struct Docs;

#[libris::resources]
impl Docs {
    #[prompt]
    fn all(&self, words: Vec<String>) -> String {
        words.join(" ")
    }
}

fn main() {}
