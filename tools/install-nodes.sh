#!/usr/bin/env bash
# Installs the versions of Node.js that the Node client is tested with into .cache/nodes.
# The packages are for Linux on x64; elsewhere the tests run with the Node.js that is there.
set -euo pipefail

folder=.cache/nodes
leave() { printf 'setup: only the Node.js that is there: %s\n' "$*" >&2; exit 0; }

[ "$(uname -sm)" = "Linux x86_64" ] || leave "there are packages of others for Linux on x64 alone"
echo "setup: installing five versions of Node.js into $folder"
rm -rf "$folder"
mkdir -p "$folder"
cp tools/nodes/package.json tools/nodes/package-lock.json "$folder"
npm ci --prefix "$folder" --ignore-scripts --no-audit --no-fund >"$folder/npm.log" 2>&1 ||
  leave "others could not be installed (see $folder/npm.log)"
# Only the program is needed.
find "$folder/node_modules" -mindepth 2 -maxdepth 2 ! -name bin ! -name package.json -exec rm -rf {} +
touch "$folder/.ready"
