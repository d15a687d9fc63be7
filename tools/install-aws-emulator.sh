#!/usr/bin/env bash
# Installs the pinned AWS emulator into .cache/aws-emulator: it asks for another botocore than the sidecar's.
set -euo pipefail

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

echo "setup: installing the AWS emulator into .cache/aws-emulator"
uv venv --quiet --clear --python .venv/bin/python .cache/aws-emulator
uv pip install --quiet --compile-bytecode --python .cache/aws-emulator --require-hashes -r requirements/aws-emulator.txt ||
  fail "the AWS emulator could not be installed. The first set-up needs the package index that pip is configured for."
