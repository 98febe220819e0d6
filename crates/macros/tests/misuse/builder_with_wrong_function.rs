use libris::FunctionSource;

fn main() {
    let _ = FunctionSource::new().resource("docs://number", || 7);
}
