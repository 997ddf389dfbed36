#!/usr/bin/env bash
# From a model file to an emulated Cortex-M4F, with the output checked: the first thing to try.
#
# Installs the target and the emulator where they are missing (see ci/setup.sh), builds the `kiln` command, shows
# the model's memory map, builds its firmware, runs it under emulation and compares every output.
set -eu
cd "$(dirname "$0")/.."

model=examples/sine/model
board=mps2-an386

ci/setup.sh embedded emulators
echo "building the kiln command; the first time takes a few minutes"
cargo build --release --quiet
kiln="${CARGO_TARGET_DIR:-target}/release/kiln"

"$kiln" plan "$model/model.kiln" --board "$board"
"$kiln" flash "$model/model.kiln" --board "$board"
"$kiln" verify "$model" --board "$board"
