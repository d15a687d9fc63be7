#!/usr/bin/env bash
# Installs Spark's connectors for Kafka and S3 into .cache/spark-jars, if Maven is there. Without them the pipeline's
# tests of Kafka and of checkpoints in S3 are skipped, and say so.
set -euo pipefail

folder=.cache/spark-jars
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
leave() { printf 'setup: no connectors for Spark: %s; their tests are skipped\n' "$*" >&2; exit 0; }

command -v mvn >/dev/null || leave "Maven is not installed"

echo "setup: installing Spark's connectors into $folder"
rm -rf "$folder"
mkdir -p "$folder"
mvn --quiet --batch-mode --strict-checksums --file tools/spark/pom.xml dependency:copy-dependencies \
  -DincludeScope=runtime -DoutputDirectory="$PWD/$folder/libs" >"$folder/maven.log" 2>&1 ||
  leave "Maven could not resolve tools/spark/pom.xml (see $folder/maven.log)"
tools/check-jars.sh tools/spark/jars.sha256 "$folder/libs" ||
  { rm -rf "$folder"; fail "Spark's connectors are not installed"; }
touch "$folder/.ready"
echo "setup: Spark's connectors are installed"
