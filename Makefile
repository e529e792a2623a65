# Everything sets itself up: a fresh machine needs Python (3.11 or later) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := dev,docs,cluster

.PHONY: demo test verify slurm bench docs check figures clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo     what transformers learn from masked language modelling, with a picture (three minutes at most)"
	@echo "make test     linters, types, tests"
	@echo "make verify   the long agreement studies of every model, and make slurm"
	@echo "make slurm    sweeps on a Slurm cluster of one node, started for the purpose (root on Debian; three minutes)"
	@echo "make check    contract, reference values and agreement of every model, as one table"
	@echo "make bench    speed, as ratios against peers and floors"
	@echo "make docs     the documents, in docs/_build/html"
	@echo "make figures  every figure, in figures/"

# uv when it is there, else venv and pip; versions come from constraints.txt.
$(VENV)/ready: pyproject.toml constraints.txt
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install --quiet --python $(BIN)/python -c constraints.txt -e ".[$(EXTRAS)]"; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"; \
	fi
	@touch $@

demo: $(VENV)/ready
	$(BIN)/solvable figure what-transformers-learn --quick --out figures
	@echo "Look at figures/what-transformers-learn.png"

test: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

verify: $(VENV)/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow
	$(BIN)/solvable check --full
	$(MAKE) slurm

slurm: $(VENV)/ready
	$(BIN)/python tests/slurm/one_node.py

check: $(VENV)/ready
	$(BIN)/solvable check

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks

docs: $(VENV)/ready
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

figures: $(VENV)/ready
	@for name in $$($(BIN)/solvable figure --json | $(BIN)/python -c "import json,sys; print(*(f['name'] for f in json.load(sys.stdin)['figures']))"); do \
	  $(BIN)/solvable figure $$name --out figures || exit 1; \
	done

clean:
	rm -rf $(VENV) build dist docs/_build docs/generated .pytest_cache .ruff_cache
