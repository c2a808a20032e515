# Every target works as the first command after a clone: .venv is made once, from pyproject.toml.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# An eighth of the time of pip.
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python
INSTALLED := $(VENV)/.installed
# The runtime alone, and what its tour shows things with.
DEMO_INSTALLED := $(VENV)/.demo-installed
# 150 MB, which nothing but `make fuzz` needs.
FUZZER := atheris==3.0.0
# Tests often wait for a process: three more run than there are cores.
JOBS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 3)')

PYTEST = $(BIN)/pytest --numprocesses $(JOBS) --dist worksteal
SLOW := tests/bench tests/interop tests/journeys tests/apps/host/page tests/apps/dev/page tests/test_site.py \
	tests/test_types.py

# Every process of the tests would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
COMPILE = @$(BIN)/python -m compileall -q -j 0 foundation_rt tests/lab

# With an older Python pip would search for versions that fit, for minutes and without a word.
define CHECK_PYTHON
@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
	"foundation-rt needs Python 3.11 or later; $(PYTHON) is %d.%d. Name another: PYTHON=python3.12" \
	% sys.version_info[:2])'
endef

.PHONY: install lock bounds demo docs tables pictures test test-all test-long coverage conformance windows simulate soak fuzz mutants lint bench bench-peers bench-engines trace clean

install: $(INSTALLED)

# The versions and hashes of requirements-dev.txt; the checkout itself builds with the hatchling that it names.
$(INSTALLED): pyproject.toml requirements-dev.txt
	$(CHECK_PYTHON)
	@echo "foundation-rt: making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@echo "  installing all extras and the tools of development ..."
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.txt > $(VENV)/uv.txt
	@$(PIP) --require-hashes --requirement $(VENV)/uv.txt
	@$(UV) --require-hashes --requirement requirements-dev.txt
	@$(UV) --no-deps --no-build-isolation --editable .
	@touch $@ $(DEMO_INSTALLED)
	@echo "  done: . $(BIN)/activate, or make test"

# Write the newest versions that pyproject.toml allows, for every platform and Python, into requirements-dev.txt.
lock: $(INSTALLED)
	UV_CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes \
		--extra dev --output-file requirements-dev.txt pyproject.toml

# What uses other packages, with the oldest that pyproject.toml allows, and with the newest there are; and each other
# Python that is promised and is here.
bounds: $(INSTALLED)
	$(BIN)/python -m tests.bounds lowest
	$(BIN)/python -m tests.bounds newest
	$(BIN)/python -m tests.bounds python

# What follows begins to speak at once: a new clone installs first, which takes some seconds.
demo: $(DEMO_INSTALLED)
	@$(BIN)/python -m foundation_rt.cli.tour

$(DEMO_INSTALLED): pyproject.toml
	$(CHECK_PYTHON)
	@echo "foundation-rt: a tour with real server processes. First, once, what it needs:"
	@echo "  making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@echo "  installing the runtime with attrs, cattrs, fastjsonschema, orjson, tomli, rich and jsonschema-rs ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cli,jsonschema]'
	@touch $@

# What a developer runs: few random cases, without the tests of pages, of benchmarks, of what guides say and of
# programs by others (servers, clients, type checkers).
test: $(INSTALLED)
	$(COMPILE)
	$(PYTEST) $(addprefix --ignore=,$(SLOW))

# What continuous integration runs: every test, with many random cases.
test-all: export FOUNDATION_RT_TEST_SIZE = full
test-all: $(INSTALLED)
	$(COMPILE)
	$(PYTEST)

# Hours: ten times as many random cases, 30,000 histories, hundreds of kills, and the fuzzer of the pages.
test-long: export FOUNDATION_RT_TEST_SIZE = long
test-long: $(INSTALLED)
	$(COMPILE)
	$(PYTEST) -o faulthandler_timeout=7200
	$(MAKE) fuzz

# The lines that no test runs, with few random cases, also where a test fails; a server is ended so that it can write
# which lines it has run.
coverage: $(INSTALLED)
	$(COMPILE)
	$(BIN)/coverage erase
	status=0; $(BIN)/coverage run -m pytest --numprocesses $(JOBS) --dist worksteal || status=$$?; \
		$(BIN)/coverage combine --quiet && $(BIN)/coverage report && exit $$status

# The public conformance suite, for both current revisions of the protocol, server and client. REVISION=2025-11-25: one.
conformance: $(INSTALLED)
	$(BIN)/python -m tests.conformance $(REVISION)

# The tests that run on Windows, by CPython for Windows under Wine; TESTS=names: these, as pytest takes them.
windows: $(INSTALLED)
	$(BIN)/python -m tests.windows $(TESTS)

# SEEDS=n [FROM=m]: so many histories with faults. SEED=n: one of them, told. REQUESTS=n: so many in each.
simulate: $(INSTALLED)
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),1000) --from $(or $(FROM),0) \
		$(if $(SEED),--seed $(SEED)) $(if $(REQUESTS),--requests $(REQUESTS))

# MINUTES=n [SEED=m]: so long mixed load on every server, and whether anything grows or is left.
# With one arena of glibc, and a threshold that it does not raise after a large message, so that growth is that of
# the programs.
soak: $(INSTALLED)
	MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=131072 $(BIN)/python -m tests.soak $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED))

# INPUTS=n [SEED=m] [ONLY=names]: so many hostile inputs for each reader of bytes, guided by coverage; what reaches
# new lines, or fails, is kept in tests/corpus. And hostile texts for the modules of the pages, in a browser.
fuzz: $(INSTALLED)
	@$(UV) $(FUZZER)
	$(BIN)/python -m tests.fuzz $(ONLY) --inputs $(or $(INPUTS),100000) --seed $(or $(SEED),1)
	$(if $(ONLY),,$(BIN)/python -m tests.apps.host.page.fuzz --inputs $(or $(INPUTS),100000) --seed $(or $(SEED),1))

# SAMPLE=n [SEED=m]: change the core in so many places, one at a time; which of them no test notices. Hours for 300.
mutants: $(INSTALLED)
	$(COMPILE)
	$(BIN)/python -m tests.mutants --sample $(or $(SAMPLE),300) --seed $(or $(SEED),1)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.counts
	$(BIN)/mypy

# Instructions need valgrind. SECTIONS=names: these. SAVE=1: write what it finds into bench/baseline.toml.
bench: $(INSTALLED)
	$(BIN)/python -m bench $(SECTIONS) $(if $(SAVE),--save)

# The runtime beside its peers, each in an environment of its own: a table, JSON and a chart. OUT=folder ONLY=names
bench-peers: $(INSTALLED)
	$(BIN)/python -m bench.peers $(or $(OUT),build/peers) $(if $(ONLY),--only $(ONLY))

# The ledger in PostgreSQL beside DBOS, procrastinate and a loop with SKIP LOCKED, on DATABASE_URL.
bench-engines: $(INSTALLED)
	$(BIN)/python -m bench.engines

# Write the tables of settings and codes into spec/; CI checks that they are written.
tables: $(INSTALLED)
	$(BIN)/python -m tests.docs

# Make the pictures of the README anew, from running programs in the system's Chromium.
pictures: $(INSTALLED)
	$(BIN)/python -m tests.pictures

# The site of all documents and of the API, below build/site, with llms.txt; a broken link is an error.
docs: $(INSTALLED)
	$(BIN)/python -m spec.site

trace: $(INSTALLED)
	$(BIN)/python -m tests.trace

clean:
	rm -rf $(VENV) build dist .coverage* .hypothesis .mypy_cache .ruff_cache .pytest_cache .benchmarks
	rm -rf tests/conformance/node_modules tests/interop/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
