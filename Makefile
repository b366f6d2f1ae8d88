# Every target sets itself up: a virtual environment in .venv, with what pyproject.toml asks for.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

# Tests start about a hundred processes, each of which would compile geomint's sources again without stored bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow mutations bench docs lint style clean

# uv installs in 6 s what takes pip 15; pip where uv finds no index, which pip may know from settings of its own.
.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --upgrade pip uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --editable . --group test --group lint || \
		$(BIN)/python -m pip install --quiet --no-compile --editable . --group test --group lint
	touch $@

demo: .venv/ready
	$(BIN)/python examples/demo.py

# XLA and LLVM would spend half of the time of the tests on optimising programs that run for milliseconds. Those that compare
# engines, those of compilation, and the slow tests run the optimised programs that users run; so does water-7, which
# makes 276,000 steps: its programs take 2 s longer to compile and save 8 s.
UNOPTIMISED := XLA_FLAGS="$$XLA_FLAGS --xla_backend_optimization_level=0" GEOMINT_LLVM_LEVELS=1,0
QUICK := -m pytest -m "not slow" -n $(WORKERS) --dist loadgroup
OPTIMISED_TESTS := $(addprefix tests/,engines/test_engines.py engines/test_random_programs.py numerics/test_compilation.py \
	'papers/test_papers.py::test_every_experiment_meets_its_numbers[tao-owhadi-2015/water-7]')

# pyright runs beside the tests and uses the time in which a worker waits; what it says comes after them.
test: style
	@nice $(BIN)/pyright > .venv/pyright.log 2>&1 & types=$$!; trap 'kill $$types; exit 130' INT TERM; failed=0; \
	$(UNOPTIMISED) $(BIN)/python $(QUICK) $(OPTIMISED_TESTS:%=--deselect=%) || failed=1; \
	$(BIN)/python $(QUICK) $(OPTIMISED_TESTS) || failed=1; \
	echo pyright; wait $$types || failed=1; cat .venv/pyright.log; exit $$failed

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

lint: style
	$(BIN)/pyright

style: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

clean:
	rm -rf .venv site .pytest_cache .ruff_cache
