#!/usr/bin/env bash
# Every test and check of the project, fast ones first. Stops at the first that fails.
#
#   ci/test.sh            everything
#   ci/test.sh quick      formatting, lints and unit tests only
#
# Models and conformance vectors are found through KILN_DATA (default ../shared/data); what needs them says so and skips
# where they are missing. With CI=true, a missing emulator or target fails instead of being skipped.
set -eu
cd "$(dirname "$0")/.."

stage() { printf '\n== %s\n' "$*"; }

stage "set up"
ci/setup.sh || {
    [ "${CI:-}" = true ] && exit 1
    echo "going on without; what needs it will say so"
}
[ "${CI:-}" = true ] && export KILN_REQUIRE_EMULATION=1 KILN_REQUIRE_GPU=1

stage "format"
cargo fmt --all --check

stage "lint"
cargo clippy --workspace --all-targets --all-features --locked -- -D warnings

stage "test"
# No snapshot is accepted or written by a test run.
INSTA_UPDATE=no cargo test --workspace --all-features --locked

stage "kernels over narrower vectors"
for widest in avx2 plain; do
    KILN_WIDEST=$widest cargo test -p kiln-kernels --all-features --locked --test all
done

[ "${1:-}" = quick ] && exit 0

stage "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --all-features --locked --quiet

ci_check() { cargo run --quiet --locked -p kiln-ci -- "$1"; }

stage "what firmware may depend on"
ci_check dependencies

stage "bare metal without alloc"
ci_check bare-metal

stage "models, on the host and emulated"
cargo build --quiet --locked
kiln="${CARGO_TARGET_DIR:-target}/debug/kiln"
for example in sine mnist; do
    "$kiln" verify "examples/$example/model"
    "$kiln" verify "examples/$example/model" --board mps2-an386
done
data="${KILN_DATA:-../shared/data}"
boards="mps2-an385 mps2-an386 mps2-an500 mps2-an505 mps3-an547 qemu-riscv32"
# Processes of another CPU are emulated on Linux only.
[ "$(uname -s)" = Linux ] && boards="$boards qemu-aarch64"
if [ -d "$data/models" ]; then
    for model in tflm-hello-world-int8 mlperf-kws-dscnn-int8 mlperf-ic-resnet8-int8; do
        "$kiln" verify "$data/models/$model"
        for board in $boards; do
            "$kiln" verify "$data/models/$model" --board "$board"
        done
    done
else
    echo "skipped: no models at KILN_DATA ($data)"
fi

stage "firmware: no heap, no panic, no unused kernel, within budget"
ci_check firmware

stage "code sizes as estimated"
ci_check code-sizes

stage "instructions as estimated"
ci_check instructions

stage "random layers on every CPU family"
ci_check sweep

stage "firmware of real boards, with their HALs"
ci_check boards

stage "Miri"
ci/miri.sh

stage "fuzz, for a short while"
ci/fuzz.sh 5000

stage "CubeCL on the CPU's Vulkan driver"
# A workspace of its own, whose hundreds of crates nothing else builds: 13 minutes of processor time the first time.
(
    cd targets/cube
    cargo fmt --check
    cargo clippy --all-targets --locked -- -D warnings
    # The CPU's driver also where there is a GPU: what is tested is the same everywhere.
    CUBECL_WGPU_DEFAULT_DEVICE=Cpu cargo test --locked
)

printf '\nall checks passed\n'
