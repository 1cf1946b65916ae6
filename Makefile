# make setup   environment with everything that demo and tests need
# make demo    the main job: a 127-page contract, 19 questions, bounded memory
# make test    lint, types, import rules, all tests (what CI runs)
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: setup demo test lint clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[hf,server,demo,plots,learn,train,dev]'
	touch $@

demo: setup
	@$(BIN)/zerolayer demo

lint: setup
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports

test: setup lint
	$(BIN)/python -m pytest

clean:
	rm -rf $(VENV) build dist src/*.egg-info
