# `make run` and `make test` set themselves up in .venv; nothing else is needed but Python 3.11+, git and make.
PYTHON ?= python3
# Seconds after which no further test starts, for `make test` and `make test-all` (none: all tests run).
BUDGET ?=
PYTEST = $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --max-worker-restart 0 --budget '$(BUDGET)'
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

LOWEST := .venv-lowest

.DEFAULT_GOAL := help
.PHONY: help run test test-all test-lowest papers image-check docs lint format hooks wheel clean

help: ## This list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint,docs]'
	touch $(STAMP)

run: $(STAMP) ## Learn 24,000 made-up documents, start the service on 127.0.0.1:8000, print a table, write a report (ARGS=--exit: end after it)
	$(BIN)/stream-dr demo $(ARGS)

test: $(STAMP) ## Run the tests (ARGS="-n 0 tests/service": a part of them)
	$(PYTEST) $(ARGS)

test-all: $(STAMP) ## Run the tests that take minutes or other programs (BUDGET=240: those that start within 240 s)
	$(PYTEST) -m 'test_all or every_run' --no-loadscope-reorder --order "$$(git rev-parse HEAD)" $(ARGS)

test-lowest: $(LOWEST)/.installed ## Run the tests with the lowest versions that pyproject.toml allows, all together
	NUMBA_CACHE_DIR=$(CURDIR)/$(LOWEST)/numba $(LOWEST)/bin/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)

$(LOWEST)/.installed: pyproject.toml tests/lowest_versions.py
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python tests/lowest_versions.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt -e '.[test,bench,docs]'
	touch $@

papers: $(STAMP) ## Measure the papers' tables and figures again, and draw them (ARGS=skm_figure_5: one of them)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python -m benchmarks.papers --pictures docs/papers --pages docs/papers $(or $(ARGS),--all)

image-check: ## As root: build the Dockerfile with buildah, and start, ask and stop the container (ARGS: to buildah build)
	sh tests/image_check.sh $(ARGS)

docs: $(STAMP) ## Build the site, in build/docs/site
	$(BIN)/python docs/build.py

lint: $(STAMP) ## Check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP) ## Mend what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

hooks: $(STAMP) ## Let git run the checks before every commit (pre-commit)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pre-commit
	$(BIN)/pre-commit install

wheel: $(STAMP) ## Build a wheel and an sdist, in dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build

clean: ## Remove what was set up and built
	rm -rf $(VENV) $(LOWEST) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
