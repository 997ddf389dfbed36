#!/usr/bin/env bash
# Fuzzes every parser and the plan checker for a bounded number of executions.
#
#   ci/fuzz.sh [RUNS] [TARGET..]      default: 20,000 runs of each target
#
# Needs the nightly toolchain and cargo-fuzz (`cargo install cargo-fuzz`); says so and skips where they are missing. The
# seed corpus is made from real files found through KILN_DATA, whole, truncated and mutated, and is not committed.
set -eu
cd "$(dirname "$0")/.."

runs=${1:-20000}
shift || true
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(tflite kiln_file plan_records io_json)

if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "skipped: fuzzing needs a nightly toolchain and cargo-fuzz (cargo install cargo-fuzz)"
    exit 0
fi

corpus=target/fuzz-corpus
data="${KILN_DATA:-../shared/data}"
cargo build --quiet
kiln="${CARGO_TARGET_DIR:-target}/debug/kiln"

# Longer plans compute too much for a run a millisecond.
max_plan=8192

seed() { # TARGET FILE
    mkdir -p "$corpus/$1"
    local name size
    [ "$1" = plan_records ] && [ "$(stat -c %s "$2")" -gt $max_plan ] && return
    name=$(cksum <"$2" | cut -d' ' -f1)
    cp "$2" "$corpus/$1/$name"
    size=$(stat -c %s "$2")
    head -c $((size / 2)) "$2" >"$corpus/$1/$name-half"
}

seed kiln_file examples/sine/model/model.kiln
seed io_json examples/sine/model/io.json
seed io_json examples/mnist/model/io.json
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$kiln" compile examples/sine/model/model.kiln --board mps2-an386 --out "$work/sine" >/dev/null
seed plan_records "$work/sine/src/plan.bin"
for model in tflm-hello-world-int8 magic-wand-int8 tflm-micro-speech-int8 mlperf-kws-dscnn-int8; do
    folder="$data/models/$model"
    [ -d "$folder" ] || continue
    seed tflite "$folder/model.tflite"
    seed io_json "$folder/io.json"
    if "$kiln" compile "$folder/model.tflite" --board mps2-an386 --out "$work/$model" >/dev/null 2>&1; then
        seed plan_records "$work/$model/src/plan.bin"
    fi
done

for target in "${targets[@]}"; do
    mkdir -p "$corpus/$target"
    max=65536
    [ "$target" = plan_records ] && max=$max_plan
    echo "== fuzzing $target: $runs runs"
    cargo +nightly fuzz run --fuzz-dir ci/fuzz "$target" "$corpus/$target" -- \
        -runs="$runs" -max_len=$max -timeout=20 -rss_limit_mb=3072 -verbosity=0 -print_final_stats=1
done
