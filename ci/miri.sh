#!/bin/sh
# Runs the core, the plain kernels and whole sessions under Miri: undefined behaviour that tests on a
# CPU can't see (aliasing, alignment, reads outside an allocation). Says so and skips where there is no Miri.
set -eu
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "ci/miri.sh: skipped, Miri is not installed (rustup +nightly component add miri)"
    exit 0
fi

# A day's nightly may print lints that stable does not know.
export RUSTFLAGS="${RUSTFLAGS:-} --cap-lints warn"
cargo +nightly miri test --quiet -p kiln-core
cargo +nightly miri test --quiet -p kiln-target-host --test all
cargo +nightly miri test --quiet -p kiln-kernels --features host
