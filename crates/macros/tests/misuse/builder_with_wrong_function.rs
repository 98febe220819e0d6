use libris::Libris;

fn main() {
    let _ = Libris::new().resource("docs://number", || 7);
}
