//! Keeps the servers that the tests of one run share; see `distlock_tests::server`.

fn main() -> anyhow::Result<()> {
    distlock_tests::server::keep(std::env::args().skip(1))
}
