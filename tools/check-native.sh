#!/usr/bin/env bash
# Format and lint of the compiled part (sidecar/native), where there is Rust.
set -euo pipefail

command -v cargo >/dev/null || { echo "sidecar/native is not checked: no Rust compiler (cargo) is found" >&2; exit 0; }
export CARGO_TARGET_DIR="$PWD/.cache/native/target"
cargo fmt --manifest-path sidecar/native/Cargo.toml --check
cargo clippy --quiet --locked --manifest-path sidecar/native/Cargo.toml
