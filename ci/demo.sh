#!/usr/bin/env bash
# From a model file to an emulated Cortex-M4F, with the output checked: the first thing to try.
#
# Installs the target and the emulator where they are missing (see ci/setup.sh), builds the `kiln` command, shows
# the memory map of a network that reads handwritten digits, builds its firmware, reads a picture, and runs the
# firmware under emulation over 50 drawn digits with every output compared.
set -eu
cd "$(dirname "$0")/.."

model=examples/mnist/model
board=mps2-an386

ci/setup.sh embedded emulators
echo "building the kiln command; the first time takes a few minutes"
cargo build --release --quiet
kiln="${CARGO_TARGET_DIR:-target}/release/kiln"

say() { printf '\n== %s\n' "$*"; }

say "What a network that reads digits needs on $board, a Cortex-M4F"
"$kiln" plan "$model/model.kiln" --board "$board"
say "Its firmware"
"$kiln" flash "$model/model.kiln" --board "$board"
say "What it reads in $model/three.png: the most likely digit comes first"
"$kiln" run "$model/model.kiln" --input "$model/three.png" --board "$board"
say "The 50 digits of $model/drawn.png, on the emulated board"
"$kiln" verify "$model" --board "$board"
