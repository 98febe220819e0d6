//! What the compiler says to those who make a mistake.
//!
//! Each file of `misuse/` has one, and beside it what is said. `TRYBUILD=overwrite` renews that; look at it as
//! somebody who has never seen this library.

#[test]
fn mistakes_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
