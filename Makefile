# Every target works as the first command after a clone: .venv is made once, from pyproject.toml.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: install demo test lint bench trace clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/python -m foundation_rt.builtin.tour

test: $(INSTALLED)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest --numprocesses auto --dist worksteal
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)
	$(BIN)/python -m bench

trace: $(INSTALLED)
	$(BIN)/python -m tests.trace

clean:
	rm -rf $(VENV) build dist .coverage* .hypothesis .mypy_cache .ruff_cache .pytest_cache .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
