#[libris::resources]
struct Docs;

fn main() {}
