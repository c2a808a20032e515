# Every target works as the first command after a clone: .venv is made once, from pyproject.toml.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Tests often wait for a process: one more runs than there are cores.
JOBS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')

# Every process of the tests would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install demo docs test test-all coverage conformance simulate lint bench trace clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/python -m foundation_rt.cli.tour

# What a developer runs: every test, with few random cases.
test: $(INSTALLED)
	$(BIN)/pytest --numprocesses $(JOBS) --dist worksteal

# What continuous integration runs: every test, with many random cases.
test-all: export FOUNDATION_RT_TEST_SIZE = full
test-all: $(INSTALLED)
	$(BIN)/pytest --numprocesses $(JOBS) --dist worksteal

# The lines that no test runs, with few random cases: tracing doubles the time (Python 3.11: 60 s for 31 s).
coverage: $(INSTALLED)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest --numprocesses $(JOBS) --dist worksteal
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# The public conformance suite, for both current revisions of the protocol, server and client. REVISION=2025-11-25: one.
conformance: $(INSTALLED)
	$(BIN)/python -m tests.conformance $(REVISION)

# SEEDS=n [FROM=m]: so many histories with faults. SEED=n: one of them, told. REQUESTS=n: so many in each.
simulate: $(INSTALLED)
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),1000) --from $(or $(FROM),0) \
		$(if $(SEED),--seed $(SEED)) $(if $(REQUESTS),--requests $(REQUESTS))

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python -m bench

# Write the tables of settings and codes into spec/ and the README; CI checks that they are written.
docs: $(INSTALLED)
	$(BIN)/python -m tests.docs

trace: $(INSTALLED)
	$(BIN)/python -m tests.trace

clean:
	rm -rf $(VENV) build dist .coverage* .hypothesis .mypy_cache .ruff_cache .pytest_cache .benchmarks
	rm -rf tests/conformance/node_modules tests/interop/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
