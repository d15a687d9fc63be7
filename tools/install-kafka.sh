#!/usr/bin/env bash
# Installs a real Kafka broker for the tests into .cache/kafka, if Maven and Java 17 or newer are there.
# Without them the tests fall back to librdkafka's mock cluster, and say so.
set -euo pipefail

folder=.cache/kafka
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
leave() { printf 'setup: no real Kafka broker: %s; its tests use a mock or are skipped\n' "$*" >&2; exit 0; }

command -v java >/dev/null || leave "Java is not installed"
command -v mvn >/dev/null || leave "Maven is not installed"
version=$(java -XshowSettings:properties -version 2>&1 | sed -n 's/.*java.specification.version = //p')
[ "${version%%.*}" -ge 17 ] || leave "Java 17 or newer is needed, and this is $version"

echo "setup: installing a Kafka broker into $folder"
rm -rf "$folder"
mkdir -p "$folder"
mvn --quiet --batch-mode --strict-checksums --file tools/kafka/pom.xml dependency:copy-dependencies \
  -DincludeScope=runtime -DoutputDirectory="$PWD/$folder/libs" >"$folder/maven.log" 2>&1 ||
  leave "Maven could not resolve tools/kafka/pom.xml (see $folder/maven.log)"
tools/check-jars.sh tools/kafka/jars.sha256 "$folder/libs" || { rm -rf "$folder"; fail "the Kafka broker is not installed"; }

# A broker starts twice as fast from an archive of its classes, which a first run writes when it ends.
trial=$folder/trial
mkdir -p "$trial/data"
printf 'version=1\nnode.id=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n' >"$trial/data/meta.properties"
cat >"$trial/server.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:19093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$PWD/$trial/data
END
jars=$(printf '%s:' "$PWD/$folder"/libs/*.jar)
java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit="$folder/classes.jsa" -cp "${jars%:}" \
  kafka.Kafka "$trial/server.properties" >"$trial/log" 2>&1 &
broker=$!
for _ in $(seq 300); do
  kill -0 "$broker" 2>/dev/null || break
  if grep -q 'Kafka Server started' "$trial/log"; then break; fi
  sleep 0.1
done
kill "$broker" 2>/dev/null || true
wait "$broker" || true
rm -rf "$trial"
touch "$folder/.ready"
echo "setup: the Kafka broker is installed"
