struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://a", audience = ["humans"])]
    fn a(&self) -> &str {
        "a"
    }

    #[resource("docs://b", priority = 80)]
    fn b(&self) -> &str {
        "b"
    }

    #[resource("docs://c", cache = "soon")]
    fn c(&self) -> &str {
        "c"
    }

    #[resource("docs://d", mime = "markdown")]
    fn d(&self) -> &str {
        "d"
    }

    #[resource("docs://e", title)]
    fn e(&self) -> &str {
        "e"
    }
}

fn main() {}
