struct Docs;

#[libris::resources]
impl Docs {
    #[prompt(titel = "All")]
    fn all(&self) -> String {
        String::new()
    }

    #[prompt]
    fn count(&self) -> u32 {
        7
    }
}

fn main() {}
