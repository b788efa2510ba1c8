# `make run` and `make test` set themselves up in .venv; nothing else is needed but Python 3.11+, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

LOWEST := .venv-lowest

.PHONY: run test test-all test-lowest docs lint format clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint,docs]'
	touch $(STAMP)

run: $(STAMP)
	$(BIN)/stream-dr demo $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)

# What takes minutes or other programs: the tests marked test_all.
test-all: $(STAMP)
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile -m test_all $(ARGS)

# The site, in build/docs/site.
docs: $(STAMP)
	$(BIN)/python docs/build.py

# The same suite with the lowest versions that pyproject.toml allows, all together.
test-lowest: $(LOWEST)/.installed
	NUMBA_CACHE_DIR=$(CURDIR)/$(LOWEST)/numba $(LOWEST)/bin/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)

$(LOWEST)/.installed: pyproject.toml tests/lowest_versions.py
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python tests/lowest_versions.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt -e '.[test,bench,docs]'
	touch $@

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(LOWEST) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
