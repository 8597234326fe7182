//! What the macro says to those who hold it wrong. After a change that is meant, `TRYBUILD=overwrite cargo test -p
//! kube-scheduler-sdk-macros --test ui` writes the messages anew.

#[test]
fn ui() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
