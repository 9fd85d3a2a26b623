# Needs Python 3.11+, Java 17+ and make; everything else is installed into .venv, from the lock files, by hash.
PYTHON ?= python3
ARGS ?=
BENCH ?=
# Processes that tests run in, for two cores: some tests wait for a JVM, a store or another process. Each has a Spark
# session of its own and takes up to 4 GiB.
JOBS ?= $(or $(shell awk '/MemTotal/ { print ($$2 > 20 * 1048576) ? 4 : 3 }' /proc/meminfo 2>/dev/null),3)

# Where the environment forbids compiled modules, each of the many interpreters of a run compiles pandas and PySpark again.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TYPES := $(VENV)/types.log
# What decides about types: sources, directories (for files that are gone), settings and installed packages.
TYPED = $(shell find src/pennon -name __pycache__ -prune -o \( -type d -o -name '*.py' -o -name '*.pyi' \) -print) pyproject.toml
PIP := $(BIN)/python -m pip --disable-pip-version-check
PB := src/pennon/format/pb
VERSIONS := .versions
# The two majors of pylance before the locked one, and the other minors of pyspark that pyproject.toml allows; which
# tests run on which pyspark is in tests/versions/sparks.py.
OTHERS := pylance-12.0.0 pylance-13.0.0 pyspark-3.5.9 pyspark-4.0.5 pyspark-4.1.4 pyspark-4.2.1
# The same tests with fewer examples and cases: `make test` runs them in full.
QUICK = PENNON_HISTORIES=1 PENNON_CRASH_STRIDE=1000 PENNON_TEST_SAMPLE=16
# Temporary files of small tests are in memory, where there is room (tests/__init__.py).
IN_MEMORY = PENNON_TESTS_IN_MEMORY=1
# Files in the order of tests/conftest.py: the longest first.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-emit-index-url --custom-compile-command "make lock" $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help setup demo check test kernels classes ruff types types-aside tests-in-process tests-all test-heavy test-distributed test-versions test-cluster lint format docs dist bench lock proto clean java

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Install into .venv what the lock files name; instant when nothing changed

demo: java $(STAMP) ## Build indices on tables of several fragments and query them
	@$(BIN)/pennon demo $(ARGS)

# -j: types are checked next to what the processes of a run share and the first tests; their result is printed last.
check: $(STAMP) ## Lint, types and the tests that need neither Spark nor other processes: about two minutes
	@$(MAKE) --no-print-directory ruff
	@$(MAKE) --no-print-directory -j 2 types-aside tests-in-process; status=$$?; cat $(TYPES) 2>/dev/null; exit $$status

test: java $(STAMP) ## Lint, types and tests (ARGS="-k lookup" goes to pytest): nine minutes or more
	@$(MAKE) --no-print-directory ruff
	@$(MAKE) --no-print-directory -j 3 types-aside tests-all; status=$$?; cat $(TYPES) 2>/dev/null; exit $$status

# What the processes of a run share: compiled kernels, and the classes of Spark.
kernels: $(STAMP)
	@$(BIN)/python -m tests.support.kernels

classes: $(STAMP)
	@$(BIN)/python -m tests.support.class_archive

# Nothing is waited for.
tests-in-process: JOBS = 2
tests-in-process: kernels
	@$(IN_MEMORY) $(QUICK) $(PYTEST) -m "not heavy and not spark and not process" --timeout=120 $(ARGS)

tests-all: kernels classes
	@$(IN_MEMORY) $(PYTEST) --timeout=600 $(ARGS)

# Some of them take more memory.
test-heavy: JOBS = 3
test-heavy: java $(STAMP) ## Only the tests that take minutes or gigabytes
	@$(BIN)/python -m pytest -m heavy -n $(JOBS) --dist load --timeout=3600 $(ARGS)

test-distributed: java $(STAMP) ## The verbs that use Spark, on two executors and under Spark Connect
	@PENNON_TEST_SESSION=local-cluster $(BIN)/python -m pytest tests/distributed --timeout=600 $(ARGS)
	@PENNON_TEST_SESSION=connect $(BIN)/python -m pytest tests/distributed --timeout=600 $(ARGS)

test-versions: java $(STAMP) $(OTHERS:%=$(VERSIONS)/%/.installed) ## The interop part, with other versions of pylance and of pyspark
	@PENNON_TEST_VERSIONS=$(VERSIONS) $(BIN)/python -m pytest tests/versions --timeout=900 $(ARGS)
	@for other in $(filter pyspark-%,$(OTHERS)); do \
		PENNON_TEST_VERSIONS=$(VERSIONS) PENNON_TEST_SPARK=$$other PYTHONPATH=$(CURDIR)/$(VERSIONS)/$$other \
			$(BIN)/python -m pytest $$($(BIN)/python -m tests.versions.sparks $$other) --timeout=600 $(ARGS) || exit 1; \
	done

# Debian or Ubuntu, as root the first time: the S3 server's packages are downloaded to .real-s3.
test-cluster: java $(STAMP) ## A standalone Spark cluster with two workers and a real S3 server, all on loopback
	@PENNON_TEST_CLUSTER=1 $(BIN)/python -m pytest tests/cluster --timeout=900 --durations=10 $(ARGS)

lint: ruff types ## Ruff's rules, ruff's format, pyright's types

ruff: $(STAMP)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(STAMP)
	@$(BIN)/basedpyright

# Not again where nothing has changed since it began and ended well: it takes a minute of CPU time.
types-aside: $(TYPES)
	@:

$(TYPES): $(STAMP) $(TYPED)
	@rm -f $(TYPES); touch $(TYPES).began
	@$(BIN)/basedpyright > $(TYPES).new || { cat $(TYPES).new; exit 1; }
	@touch -r $(TYPES).began $(TYPES).new && mv $(TYPES).new $(TYPES)

format: $(STAMP) ## Apply ruff's format and its safe fixes
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

# Material advertises itself on the error stream; nothing else may be printed.
docs: $(STAMP) ## Build the documentation into site/, and fail at any warning
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# From a copy of the committed and new files, so that nothing else of this directory gets in; by the locked build backend.
dist: $(STAMP) ## Build wheel and sdist into dist/
	@$(BIN)/python -m tests.support.distribution dist

bench: java $(STAMP) ## Measure (BENCH=name to choose one)
	@$(BIN)/python -m bench $(BENCH) $(ARGS)

lock: $(BIN)/python ## Renew the lock files after pyproject.toml changed (ARGS=--upgrade for newer versions)
	@test -x $(BIN)/uv || $(PIP) install --quiet uv
	@printf 'pip\nsetuptools\n' | $(COMPILE) - --no-annotate --output-file requirements-build.lock
	@$(COMPILE) pyproject.toml --extra dev --constraint requirements-build.lock --output-file requirements.lock

proto: $(STAMP) ## Generate the protobuf code from the .proto files
	@$(BIN)/python -m grpc_tools.protoc -I $(PB) --python_out=$(PB) --pyi_out=$(PB) lance.proto substrait.proto

clean: ## Remove .venv and everything built or cached here
	rm -rf $(VENV) $(VERSIONS) .real-s3 build dist site spark-warehouse .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	find src tests bench -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# Beside .venv, which lends all the rest: what is on PYTHONPATH is found first, by Spark's workers too.
$(VERSIONS)/pylance-%/.installed: | $(STAMP)
	@rm -rf $(@D)
	@$(PIP) install --quiet --no-deps --no-compile --target $(@D) pylance==$*
	@touch $@

# With its dependency: each release of PySpark asks for a py4j of its own.
$(VERSIONS)/pyspark-%/.installed: | $(STAMP)
	@rm -rf $(@D)
	@$(PIP) install --quiet --no-build-isolation --no-compile --target $(@D) pyspark==$*
	@touch $@

# PySpark comes as source only: setuptools is installed first, so that building it fetches nothing outside the lock.
$(STAMP): requirements-build.lock requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV); the first time takes a minute or two (PySpark alone is 456 MB)"
	@$(PIP) install --quiet --require-hashes -r requirements-build.lock
	@$(PIP) install --quiet --require-hashes --no-build-isolation --no-compile -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@problems=$$($(PIP) check) || { echo "$$problems"; echo "The lock file no longer fits pyproject.toml: run 'make lock'"; exit 1; }
	@touch $@

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
		echo "There is no '$(PYTHON)'. Install Python 3.11 or newer, or name one: make setup PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Pennon needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name a newer one: make setup PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "'$(PYTHON)' cannot make virtual environments. On Debian or Ubuntu: apt-get install python3-venv; elsewhere install a complete Python"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# Spark's launcher takes the Java of JAVA_HOME, else the one on the PATH; "1.8.0" has major version 1.
java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([^"]*\)".*/\1/p' | head -n 1); \
	major=$${version%%[!0-9]*}; \
	test "$${major:-0}" -ge 17 || { \
		echo "Spark needs Java 17 or newer; '$$java' is $${version:-missing}. Install one (Debian or Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17) and set JAVA_HOME if it is not on the PATH"; exit 1; }
