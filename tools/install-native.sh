#!/usr/bin/env bash
# Builds the compiled part of the hot path (sidecar/native) and installs it beside the sidecar: install-native.sh VENV
# It needs Rust. Without it, the sidecar does the same in Python.
set -euo pipefail
venv=$1 folder=.cache/native

mkdir -p "$folder"
leave() { printf 'setup: the hot path stays in Python: %s\n' "$*" >&2; touch "$folder/.tried"; exit 0; }

command -v cargo >/dev/null || leave "no Rust compiler (cargo) is found"
echo "setup: compiling the hot path"
rm -f "$folder"/*.whl
CARGO_TARGET_DIR="$folder/target" "$venv/bin/maturin" build --quiet --release --interpreter "$venv/bin/python" \
  --manifest-path sidecar/native/Cargo.toml --out "$folder" >"$folder/build.log" 2>&1 ||
  leave "it could not be compiled (see $folder/build.log)"
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --reinstall "$folder"/*.whl
touch "$folder/.tried"
