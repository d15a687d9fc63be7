#!/usr/bin/env bash
# Compiles what `make bench-peers` compares the sidecar with, of Go modules with pinned versions: build-peers.sh FOLDER
# The first time takes minutes. What cannot be built is left out: a line says so, and the comparison goes on.
set -euo pipefail
folder=$1
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

command -v go >/dev/null || { echo "bench-peers: there is no Go, so nothing that needs it is compared" >&2; rm -f "$folder"/{raw,dapr,connect}; exit 0; }
for name in raw connect dapr; do
  echo "bench-peers: compiling tests/bench/$name" >&2
  if ! (cd "tests/bench/$name" && nice go build -mod=readonly -o "$folder/$name" .) >"$folder/$name.log" 2>&1; then
    rm -f "$folder/$name"
    echo "bench-peers: $name cannot be built (see ${folder#"$PWD"/}/$name.log), and is left out" >&2
  fi
done
