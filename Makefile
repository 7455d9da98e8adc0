# The two commands: `make demo` and `make test`. Both make the environment first, from pinned versions.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
VERL_VENV := .venv-verl
VERL_READY := $(VERL_VENV)/.ready

.PHONY: demo test test-slow test-verl lint setup clean

demo: setup
	$(BIN)/archer demo

test: setup
	$(BIN)/python -m pytest -m "not slow"

test-slow: setup
	$(BIN)/python -m pytest -m slow

# verl needs an environment of its own: it can't share one with transformers 5.11 or later.
test-verl: $(VERL_READY)
	$(VERL_VENV)/bin/python -m pytest tests/adapters/verl

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

$(VERL_READY): pyproject.toml constraints-verl.txt
	PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" tests/adapters/verl/make_env.sh $(VERL_VENV)
	touch $(VERL_READY)

clean:
	rm -rf $(VENV) $(VERL_VENV) build dist .pytest_cache .mypy_cache .ruff_cache
