//! The example of the README: a whole MCP server.

struct Notes(Vec<String>);

#[libris::resources]
impl Notes {
    /// One note, by its number.
    #[resource("notes://{number}", title = "Note", mime = "text/markdown")]
    async fn note(&self, number: usize) -> Option<String> {
        self.0.get(number).cloned()
    }
}

#[tokio::main]
async fn main() -> libris::Result<()> {
    libris::serve(Notes(vec!["# Milk".into()])).await // over stdio; or .http("127.0.0.1:0")
}
