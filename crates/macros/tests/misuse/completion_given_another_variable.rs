struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://{lang}/{doc_id}")]
    fn document(&self, lang: &str, doc_id: &str) -> String {
        format!("{doc_id} in {lang}")
    }

    #[complete("docs://{lang}/{doc_id}", doc_id)]
    fn ids(&self, lang: &str) -> Vec<String> {
        vec![lang.to_owned()]
    }
}

fn main() {}
