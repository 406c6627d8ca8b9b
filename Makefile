# Everything a newcomer needs. `make help` lists it; what is needed is installed into .venv first, pinned.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARED := ../shared

.PHONY: help demo test check accept accept-short bench eval fmt clean
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.runtime: pyproject.toml constraints.txt scripts/set-up
	@scripts/set-up $(PYTHON) $(VENV) runtime

$(VENV)/.dev: $(VENV)/.runtime guard/pyproject.toml
	@scripts/set-up $(PYTHON) $(VENV) dev

demo: $(VENV)/.runtime ## the real sidecar and four simulated agents: one is stuck, is seen and is stopped
	@$(BIN)/recloser demo

test: $(VENV)/.dev ## all tests (a few minutes), on all processors
	$(BIN)/python -m pytest -n auto -m "not accept"

check: $(VENV)/.dev ## lint, format, types, imports, docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_docs.py tests/test_architecture.py

accept: $(VENV)/.dev ## what takes long by nature: crashes, outages, real exporters
	$(BIN)/python -m pytest -m accept

accept-short: $(VENV)/.dev ## the short part of that
	$(BIN)/python -m pytest -m "accept and short"

bench: $(VENV)/.dev ## every measured figure, again
	$(BIN)/python bench/decode.py
	$(BIN)/python bench/steps.py
	$(BIN)/python bench/detectors
	$(BIN)/python bench/incident
	$(BIN)/python bench/store.py
	$(BIN)/python bench/ingest.py
	$(BIN)/python bench/check.py
	$(BIN)/python bench/breaker --nice 19
	$(BIN)/python bench/guard.py

eval: $(VENV)/.dev ## how well stuck runs are seen, on all of ../shared: writes docs/evaluation.md
	$(BIN)/python -m evaluation

fmt: $(VENV)/.dev ## mend lint and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv and every cache
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
