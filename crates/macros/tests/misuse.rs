//! Compile errors of the attributes (trybuild).
//!
//! Each file of `misuse/` contains one mistake; the `.stderr` file beside it contains the expected error.
//! `TRYBUILD=overwrite` rewrites these files: check that the errors help a reader who does not know this library.

#[test]
fn mistakes_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
