#!/usr/bin/env bash
# Writes the hashes of all jars that the tests and images take from Maven: tools/kafka/jars.sha256 and
# tools/spark/jars.sha256. Everything is downloaded anew and compared with the repository's own checksums, so that a
# spoiled local repository is never pinned.
set -euo pipefail

fail() { printf 'pin-jars: %s\n' "$*" >&2; exit 1; }

command -v mvn >/dev/null || fail "Maven is not installed."
fresh=$(mktemp --directory)
trap 'rm -rf "$fresh"' EXIT
for name in kafka spark; do
  echo "pin-jars: downloading what tools/$name/pom.xml names"
  mvn --quiet --batch-mode --strict-checksums -Dmaven.repo.local="$fresh/repository" --file "tools/$name/pom.xml" \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$fresh/$name" >"$fresh/log" 2>&1 ||
    { cat "$fresh/log" >&2; fail "Maven could not resolve tools/$name/pom.xml."; }
  (cd "$fresh/$name" && sha256sum -- *.jar | LC_ALL=C sort --key 2) >"$fresh/$name.sha256"
done
for name in kafka spark; do
  cp "$fresh/$name.sha256" "tools/$name/jars.sha256"
  echo "pin-jars: tools/$name/jars.sha256 lists $(wc -l <"tools/$name/jars.sha256") jars"
done
