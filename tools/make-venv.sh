#!/usr/bin/env bash
# Makes the virtual environment with the pinned packages: make-venv.sh PYTHON FOLDER
set -euo pipefail
python=$1 venv=$2

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null ||
  fail "'$python' is not found. Install Python 3.11 or newer, or name one: make setup PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "'$python' is $("$python" --version 2>&1), but 3.11 or newer is needed. Name another: make setup PYTHON=python3.11"
if [ ! -x "$venv/bin/python" ]; then
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "'$python' cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv"
  echo "setup: making $venv with $("$python" --version)"
  "$python" -m venv "$venv"
fi
echo "setup: installing the pinned packages"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt ||
  fail "the installer 'uv' could not be installed. The first set-up needs the package index that pip is configured for."
# Compiled at once: where Python may not write beside its sources, each process would compile them again.
"$venv/bin/uv" pip sync --quiet --compile-bytecode --python "$venv/bin/python" --require-hashes requirements/dev.txt ||
  fail "the pinned packages could not be installed. The first set-up needs the package index that pip is configured for."
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation --editable .
# Spark's workers would import PySpark from these archives, without compiled code, and take a second longer to start.
# The same packages are installed beside them.
rm -f "$venv"/lib/python*/site-packages/pyspark/python/lib/*.zip
