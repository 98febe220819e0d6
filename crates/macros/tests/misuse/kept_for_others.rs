use libris::Identity;

struct Docs;

#[libris::resources]
impl Docs {
    #[resource("docs://diary", cache = "300s")]
    fn diary(&self, who: Identity) -> String {
        who.name().to_owned()
    }
}

fn main() {}
