# Everything a newcomer needs: `make demo` runs the main job, `make test` passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARED := ../shared

.PHONY: demo test check accept accept-short bench fmt clean
.DEFAULT_GOAL := test

$(VENV)/.runtime: pyproject.toml constraints.txt scripts/set-up
	scripts/set-up $(PYTHON) $(VENV) runtime

$(VENV)/.dev: $(VENV)/.runtime
	scripts/set-up $(PYTHON) $(VENV) dev

demo: $(VENV)/.runtime
	$(BIN)/recloser demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not accept"

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_docs.py tests/test_architecture.py

accept: $(VENV)/.dev
	$(BIN)/python -m pytest -m accept

accept-short: $(VENV)/.dev
	$(BIN)/python -m pytest -m "accept and short"

bench: $(VENV)/.dev
	$(BIN)/python bench/decode.py
	$(BIN)/python bench/steps.py
	$(BIN)/python bench/detectors.py
	$(BIN)/python bench/store.py
	$(BIN)/python bench/ingest.py

fmt: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
