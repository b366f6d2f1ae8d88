# Every target sets itself up: a virtual environment in .venv, with what pyproject.toml asks for.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: demo test test-slow mutations bench docs lint clean

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable . --group test --group lint
	touch $@

demo: .venv/ready
	$(BIN)/python examples/demo.py

test: lint
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadgroup

test-slow: .venv/ready
	$(BIN)/python -m pytest -m slow -n 1

# The tests are tested: each row of tests/mutations/table.toml breaks one line, and a quick test has to notice (half an hour).
mutations: .venv/ready
	$(BIN)/python tests/mutations/run.py

bench: .venv/ready
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m benchmarks

docs: .venv/ready
	$(BIN)/python -m pip install --quiet --group docs
	$(BIN)/python docs/generate.py
	$(BIN)/python -m mkdocs build --strict

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

clean:
	rm -rf .venv site .pytest_cache .ruff_cache
