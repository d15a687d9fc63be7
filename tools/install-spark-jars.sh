#!/usr/bin/env bash
# Installs Spark's connector for Kafka into .cache/spark-jars, if Maven is there. Without it the pipeline's tests of
# Kafka are skipped, and say so.
set -euo pipefail

folder=.cache/spark-jars
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
leave() { printf 'setup: no Kafka connector for Spark: %s; its tests are skipped\n' "$*" >&2; exit 0; }

command -v mvn >/dev/null || leave "Maven is not installed"

echo "setup: installing Spark's Kafka connector into $folder"
rm -rf "$folder"
mkdir -p "$folder"
mvn --quiet --batch-mode --strict-checksums --file tools/spark/pom.xml dependency:copy-dependencies \
  -DincludeScope=runtime -DoutputDirectory="$PWD/$folder/libs" >"$folder/maven.log" 2>&1 ||
  leave "Maven could not resolve tools/spark/pom.xml (see $folder/maven.log)"
tools/check-jars.sh tools/spark/jars.sha256 "$folder/libs" ||
  { rm -rf "$folder"; fail "Spark's Kafka connector is not installed"; }
touch "$folder/.ready"
echo "setup: Spark's Kafka connector is installed"
