# Every target installs what it needs into this folder (.venv, client/node/node_modules and dist,
# .cache); after the first run no network is needed.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTHON_READY := $(VENV)/.ready
NATIVE_TRIED := .cache/native/.tried
NODE_READY := client/node/node_modules/.ready
NODE_BUILT := client/node/dist/.built
NODE_SOURCES := $(shell find client/node/src -name '*.ts') client/node/build.mjs $(wildcard client/node/tsconfig*.json)
KAFKA_READY := .cache/kafka/.ready
AWS_READY := .cache/aws-emulator/.ready
SPARK_READY := .cache/spark-jars/.ready
SPARK_CLASSES := .cache/spark-classes/.ready
NEW_NODE_READY := .cache/new-node/.ready
TARDIS_TRIED := .cache/tardis-machines-tried
BROWSER_TRIED := .cache/browser-tried
NODES_READY := .cache/nodes/.ready
SHIP_READY := .cache/ship-tools/.ready
SOURCES := sidecar client/python pipeline tests tools
# The project's own programs, then the Node that set-up installs where the system has none.
export PATH := $(CURDIR)/$(BIN):$(PATH):$(CURDIR)/.cache/node/bin
# Compiled code is kept whatever the machine prefers: tests start hundreds of processes that import the same.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup check test test-failed test-fast fuzz generate lock pin-jars pin-images sbom release-schema demo bench bench-pipeline bench-growth bench-books bench-hook bench-replay bench-peers chaos wheel clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(PYTHON_READY) $(NATIVE_TRIED) ## Install the pinned tools and packages into .venv

check: $(PYTHON_READY) $(NATIVE_TRIED) $(NODE_READY) $(SHIP_READY) ## Format, lint, types, schemas, generated files
	ruff format --check $(SOURCES)
	ruff check $(SOURCES)
	mypy
	mypy --no-warn-unused-ignores --allow-untyped-defs --allow-untyped-calls tests tools
	client/node/node_modules/.bin/tsc --project client/node/tsconfig.json
	client/node/node_modules/.bin/biome check --error-on-warnings client/node tests/node
	cd proto && buf format --diff --exit-code
	cd proto && buf lint
	cd proto && buf breaking --against released.binpb
	python tools/generate.py --check
	.cache/ship-tools/bin/hadolint Dockerfile*
	@tools/check-native.sh
	.cache/ship-tools/bin/helm4 lint --quiet --strict helm/bronze-sidecar

test: $(PYTHON_READY) $(NATIVE_TRIED) $(NODE_BUILT) $(KAFKA_READY) $(SPARK_READY) $(SPARK_CLASSES) $(AWS_READY) $(SHIP_READY) $(NEW_NODE_READY) $(NODES_READY) $(TARDIS_TRIED) $(BROWSER_TRIED) ## Run every test
	pytest -n auto --dist worksteal $(PYTEST_ARGS)

test-failed: $(PYTHON_READY) ## Run what failed in the last run again, one test at a time
	pytest --last-failed --last-failed-no-failures none -rA $(PYTEST_ARGS)

test-fast: $(PYTHON_READY) $(NATIVE_TRIED) $(NODE_BUILT) ## Run the tests that need no server
	pytest -n auto -m 'not servers' $(PYTEST_ARGS)

fuzz: $(PYTHON_READY) $(NATIVE_TRIED) $(NODE_BUILT) $(NEW_NODE_READY) ## Throw odd input at the parsers, the scanner, the port and the hook (INPUTS=, REQUESTS=, SEED=)
	python tools/fuzz.py --inputs $(or $(INPUTS),100000) --seed $(or $(SEED),0)
	python tools/fuzz_native.py --inputs $(or $(INPUTS),100000) --seed $(or $(SEED),0)
	PYTHONPATH=tests:tools python tools/fuzz_port.py --inputs $(or $(INPUTS),100000) --seed $(or $(SEED),0)
	PYTHONPATH=tests:tools python tools/fuzz_hook.py --inputs $(or $(REQUESTS),10000) --seed $(or $(SEED),0)

generate: $(PYTHON_READY) $(NODE_READY) ## Rewrite the generated code, the tables of options and the chart's schema
	python tools/generate.py

lock: $(PYTHON_READY) ## Resolve the pinned versions anew
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --extra dev pyproject.toml --output-file requirements/dev.txt
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  requirements/aws-emulator.in --output-file requirements/aws-emulator.txt
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --extra server --extra msk --constraint requirements/dev.txt pyproject.toml --output-file requirements/server.txt
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --extra spark --constraint requirements/dev.txt pyproject.toml --output-file requirements/pipeline.txt
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  requirements/image-build.in --output-file requirements/image-build.txt
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  --no-deps requirements/ship-tools.in --output-file requirements/ship-tools.txt
	uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	  requirements/wheel.in --output-file requirements/wheel.txt

pin-jars: ## Write the hashes of the jars that tools/*/pom.xml name anew
	@tools/pin-jars.sh

pin-images: $(PYTHON_READY) ## Ask the registry for the digests of the images' bases, and pin them
	@python tools/pin_images.py

sbom: $(PYTHON_READY) ## List what is in each image, as CycloneDX in dist/sbom
	@python tools/sbom.py --output dist/sbom

release-schema: $(PYTHON_READY) ## Make the present schemas the ones that `buf breaking` compares with
	cd proto && buf build --output released.binpb

wheel: $(PYTHON_READY) ## Build the wheel of the compiled hot path into dist (needs Rust)
	@tools/build-wheel.sh $(VENV) dist

demo: $(PYTHON_READY) $(NATIVE_TRIED) ## Replay a generated market into a real NATS server, then into tables and a chart (KEEP=1 to look around)
	PYTHONPATH=tests:tools python tools/demo.py $(if $(KEEP),--keep) $(DEMO_ARGS)

bench: $(PYTHON_READY) $(NATIVE_TRIED) $(KAFKA_READY) $(AWS_READY) ## Measure throughput, cost, latency and memory (QUICK=1 for a short run)
	PYTHONPATH=tests:tools python tests/bench/bench.py $(if $(QUICK),--quick) $(BENCH_ARGS)

bench-pipeline: $(PYTHON_READY) $(KAFKA_READY) $(SPARK_READY) $(AWS_READY) ## Measure decoding, and from each bus to bronze (QUICK=1)
	PYTHONPATH=tests:tools python tests/bench/pipeline.py $(if $(QUICK),--quick) $(BENCH_ARGS)

bench-growth: $(PYTHON_READY) ## Measure a micro-batch in a table of years (QUICK=1 for a smaller one)
	PYTHONPATH=tests:tools python tests/bench/growth.py $(if $(QUICK),--quick) $(BENCH_ARGS)

bench-books: $(PYTHON_READY) ## Measure what 20,000 books of 500 levels cost silver (QUICK=1 for fewer)
	PYTHONPATH=tests:tools python tests/bench/books.py $(if $(QUICK),--quick) $(BENCH_ARGS)

bench-hook: $(PYTHON_READY) $(NODE_BUILT) $(NEW_NODE_READY) $(TARDIS_TRIED) ## Measure what the client costs tardis-machine (BENCH_ARGS=--help)
	PYTHONPATH=tests:tools python tests/bench/hook.py $(BENCH_ARGS)

bench-replay: $(PYTHON_READY) $(NATIVE_TRIED) $(NODE_BUILT) $(NEW_NODE_READY) $(TARDIS_TRIED) ## Replay 2 million messages through a real tardis-machine, and look what is on the bus (QUICK=1 for fewer)
	PYTHONPATH=tests:tools python tests/bench/replay.py $(if $(QUICK),--messages=100000) $(BENCH_ARGS)

bench-peers: $(PYTHON_READY) $(NATIVE_TRIED) $(KAFKA_READY) ## Compare with other routers, a loop in Go and Python's libraries (needs Go; QUICK=1)
	@tools/build-peers.sh .cache/peers
	PYTHONPATH=tests:tools python tests/bench/peers.py --programs .cache/peers $(if $(QUICK),--quick) $(BENCH_ARGS)

chaos: $(PYTHON_READY) $(NATIVE_TRIED) $(NODE_BUILT) $(KAFKA_READY) $(AWS_READY) ## Make faults on every bus, and look what is lost, reordered, repeated (QUICK=1, CHAOS_ARGS=--help)
	PYTHONPATH=tests:tools python -m chaos.campaign $(if $(QUICK),--quick) $(CHAOS_ARGS)

clean: ## Remove everything that the other targets installed or built
	rm -rf $(VENV) .cache client/node/node_modules client/node/dist dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PYTHON_READY): requirements/uv.txt requirements/dev.txt pyproject.toml tools/make-venv.sh
	@tools/make-venv.sh $(PYTHON) $(VENV)
	@touch $@

# The packages are installed anew with the environment, and whatever else is in it is removed.
$(NATIVE_TRIED): $(PYTHON_READY) $(wildcard sidecar/native/*.toml sidecar/native/src/*.rs) sidecar/native/Cargo.lock tools/install-native.sh
	@tools/install-native.sh $(VENV)

$(NODE_READY): $(PYTHON_READY) client/node/package.json client/node/package-lock.json requirements/node.txt
	@tools/install-node-packages.sh
	@touch $@

$(NODE_BUILT): $(NODE_READY) $(NODE_SOURCES)
	@node client/node/build.mjs
	@touch $@

# The Node.js that the newest tardis-machine needs, whatever the system has.
$(NEW_NODE_READY): requirements/node.txt | $(PYTHON_READY)
	@uv pip install --quiet --target $(@D) --require-hashes -r requirements/node.txt
	@touch $@

# Not made on machines that there are no packages for: the script says so, and the tests do without.
$(NODES_READY): tools/nodes/package-lock.json tools/install-nodes.sh
	@tools/install-nodes.sh

# Not installed where the registry does not have them: the script says so, and their tests are skipped.
$(TARDIS_TRIED): tools/install-tardis-machines.sh | $(PYTHON_READY)
	@tools/install-tardis-machines.sh

# Not unpacked where there is no package of it: the script says so, and its tests are skipped.
$(BROWSER_TRIED): tools/install-browser.sh
	@tools/install-browser.sh

$(AWS_READY): requirements/aws-emulator.txt | $(PYTHON_READY)
	@tools/install-aws-emulator.sh
	@touch $@

$(SHIP_READY): requirements/ship-tools.txt requirements/image-build.txt requirements/server.txt tools/install-ship-tools.sh | $(PYTHON_READY)
	@tools/install-ship-tools.sh

# Not made where there is no Maven or no Java: the script says so, and the tests do without.
$(KAFKA_READY): tools/kafka/pom.xml tools/kafka/jars.sha256 tools/check-jars.sh tools/install-kafka.sh
	@tools/install-kafka.sh

$(SPARK_READY): tools/spark/pom.xml tools/spark/jars.sha256 tools/check-jars.sh tools/install-spark-jars.sh
	@tools/install-spark-jars.sh

$(SPARK_CLASSES): tools/archive_spark_classes.py tools/quick_java.py | $(PYTHON_READY)
	@rm -rf $(@D)
	@PYTHONPATH=tools python tools/archive_spark_classes.py $(@D)/archive.jsa
	@mkdir -p $(@D) && touch $@
