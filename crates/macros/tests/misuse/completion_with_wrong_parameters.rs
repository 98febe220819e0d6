struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://{lang}/{doc_id}")]
    fn document(&self, lang: &str, doc_id: &str) -> String {
        format!("{doc_id} in {lang}")
    }

    #[complete("docs://{lang}/{doc_id}", doc_id)]
    fn ids(&self, typed: &str, lang: String) -> Vec<String> {
        vec![format!("{typed} {lang}")]
    }
}

fn main() {}
