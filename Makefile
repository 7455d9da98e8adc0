# The two commands: `make demo` and `make test`. Both make the environment first, from pinned versions.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow lint setup clean

demo: setup
	$(BIN)/archer demo

test: setup
	$(BIN)/python -m pytest -m "not slow"

test-slow: setup
	$(BIN)/python -m pytest -m slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

setup: $(READY)

# torch first and by itself: its CPU build satisfies everything after it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "torch==$$(sed -n 's/^torch==//p' constraints.txt)" $(TORCH_INDEX)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
