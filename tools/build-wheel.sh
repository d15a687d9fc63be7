#!/usr/bin/env bash
# Builds the wheel of the compiled part of the hot path: build-wheel.sh VENV FOLDER
# It is linked with Zig, so that it runs with glibc from 2.17 on and with any Python from 3.11 on. maturin refuses to
# write a wheel that needs more than its name says.
set -euo pipefail
venv=$1 output=$2 folder=.cache/wheel

command -v cargo >/dev/null || { echo "wheel: no Rust compiler (cargo) is found" >&2; exit 1; }
mkdir -p "$folder"
"$venv/bin/uv" pip install --quiet --target "$folder/zig" --require-hashes -r requirements/wheel.txt
PYTHONPATH="$folder/zig" CARGO_TARGET_DIR="$folder/target" "$venv/bin/maturin" build --quiet --release --zig \
  --compatibility manylinux_2_17 --interpreter "$venv/bin/python" \
  --manifest-path sidecar/native/Cargo.toml --out "$output" >"$folder/build.log" 2>&1 ||
  { echo "wheel: it could not be built (see $folder/build.log)" >&2; exit 1; }
rm -rf "$folder/tried"
"$venv/bin/uv" pip install --quiet --target "$folder/tried" --no-deps --no-index --find-links "$output" bronze-sidecar-native
PYTHONPATH="$folder/tried" "$venv/bin/python" -c 'import bronze_sidecar_native as made; assert made.INTERFACE'
ls "$output"/bronze_sidecar_native-*.whl
