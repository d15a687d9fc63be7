#!/usr/bin/env bash
# Installs the real tardis-machines that the tests run with into .cache/tardis-machine-*, if npm finds them.
# Without them those tests are skipped. TARDIS_MACHINE_18 and TARDIS_MACHINE_3 name folders to use instead.
set -euo pipefail

for version in 18.2.0 3.35.5; do
  major=${version%%.*}
  given=TARDIS_MACHINE_$major
  [ -z "${!given:-}" ] || continue
  folder=.cache/tardis-machine-$major
  rm -rf "$folder"
  mkdir -p "$folder"
  echo '{}' >"$folder/package.json"
  timeout 300 npm install --prefix "$folder" --ignore-scripts --no-audit --no-fund "tardis-machine@$version" \
    >"$folder/npm.log" 2>&1 ||
    printf 'setup: no tardis-machine %s: npm did not find it (see %s); its tests are skipped\n' \
      "$version" "$folder/npm.log" >&2
done
touch .cache/tardis-machines-tried
