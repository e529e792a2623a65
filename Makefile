# Everything sets itself up: a fresh machine needs Python (3.11 or later) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := dev,docs,explore,cluster
BROWSER := chromium libatomic1

.PHONY: demo test verify verify-tests verify-browser verify-models verify-full verify-cluster verify-again durations listing faults slurm bench docs check figures browser pictures thumbnails clean help
.DEFAULT_GOAL := help

help:
	@echo "make demo     what transformers learn from masked language modelling, with a picture (three minutes at most; what is exact comes first)"
	@echo "make test     linters, types, tests; every model by its contract, reference values, simulation and first view"
	@echo "make verify   all long tests, a check of every model and its corners, and make slurm; goes on where it was interrupted"
	@echo "              in parts: make verify-tests, verify-browser, verify-models, verify-cluster"
	@echo "make verify-full  the larger agreement studies of every model (hours on two cores; meant for a GPU)"
	@echo "make durations  measures how long every test takes, which decides what is left to make verify"
	@echo "make listing  what solvable list prints and the README's table, from what models declare"
	@echo "make slurm    sweeps on a Slurm cluster of one node, started for the purpose (root on Debian; three minutes)"
	@echo "make check    contract, reference values and agreement of every model, as one table"
	@echo "make faults   sweeps under 500 injected faults, as one table (ten minutes at most)"
	@echo "make bench    speed, as ratios against peers and floors"
	@echo "make docs     the documents, in docs/_build/html"
	@echo "make figures  every figure, in figures/"
	@echo "make pictures the pictures of the tour, in docs/pictures/"
	@echo "make thumbnails  the small pictures of the page's first view, beside each model, from kept figures"

# uv when it is there, else venv and pip; versions come from constraints.txt. A figure needs the core alone, and soon: what
# is imported is byte-compiled when it is. All else adds the extras; either may come first.
define install
@if command -v uv >/dev/null 2>&1; then \
  uv pip install --quiet --python $(BIN)/python -c constraints.txt -e $(1); \
else \
  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e $(1); \
fi
endef

$(VENV)/ready-core: pyproject.toml constraints.txt
	@echo "Installing into $(VENV) ..."
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV); \
	else \
	  $(PYTHON) -m venv $(VENV); \
	fi
	$(call install,.)
	@touch $@

$(VENV)/ready: $(VENV)/ready-core
	$(call install,".[$(EXTRAS)]")
	@touch $@

demo: $(VENV)/ready-core
	$(BIN)/solvable figure what-transformers-learn --quick --out figures
	@echo "Look at figures/what-transformers-learn.png"

# The page is tested in a real browser: Debian's Chromium (and a library of the driver's), installed when missing and we may.
browser: $(VENV)/ready
	@if ! { { command -v chromium || command -v chromium-browser || command -v google-chrome; } && $(BIN)/playwright --version; } >/dev/null 2>&1; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    apt-get install -y --no-install-recommends $(BROWSER) || { apt-get update && apt-get install -y --no-install-recommends $(BROWSER); }; \
	  else \
	    echo "The browser tests need Chromium: install the packages $(BROWSER) (Debian: sudo apt-get install $(BROWSER))." >&2; exit 1; \
	  fi; \
	fi

# Every core has a test to run, so that a program is compiled on one of them: in parts, for several, it costs a quarter more.
WHOLE := --xla_cpu_parallel_codegen_split_count=1

# Compiling is most of what the tests do, so that their programs are optimised less (a third to a half of the time; numbers
# differ by rounding). The check of every model compiles as users do. constraints.txt pins a jaxlib that knows these flags.
QUICK := XLA_FLAGS="--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1 $(WHOLE) $$XLA_FLAGS"

test: $(VENV)/ready browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(QUICK) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

# The long verification, in parts that can be run again by themselves. Each part says in .cache/verify/ what it has done
# and is skipped the next time; `make verify-again` forgets that.
VERIFY := .cache/verify
AS_USERS := XLA_FLAGS="$(WHOLE) $$XLA_FLAGS"
verify: verify-tests verify-browser verify-models verify-cluster
	@echo "All of make verify has passed: $$(cat $(VERIFY)/*.done | tr '\n' ' ')"

verify-tests: $(VENV)/ready browser
	$(call part,tests,$(QUICK) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m slow --ignore tests/explorer/test_browser.py --durations-file=tests/durations.json --passed $(VERIFY)/passed-$(COMMIT))

verify-browser: $(VENV)/ready browser
	$(call part,browser,$(QUICK) $(BIN)/python -m pytest -n 2 --dist worksteal -m slow tests/explorer/test_browser.py --durations-file=tests/durations.json --passed $(VERIFY)/passed-$(COMMIT))

# On all cores. What has passed is kept, so that an interruption costs what is in work: tests for one commit, the parts of a
# model's check until a source or library changes that they rest on.
JOBS ?= $(shell nproc)
COMMIT = $$(git rev-parse --short HEAD 2>/dev/null || echo none)

verify-models: $(VENV)/ready
	$(call part,models,$(AS_USERS) $(BIN)/solvable check --corners --jobs $(JOBS) --keep $(VERIFY)/models)

verify-full: $(VENV)/ready
	$(call part,models-full,$(BIN)/solvable check --full --jobs $(JOBS) --keep $(VERIFY)/models)

verify-cluster: $(VENV)/ready
	$(call part,cluster,$(MAKE) slurm)

verify-again:
	rm -rf $(VERIFY)

# A part of the verification: skipped if this very commit has passed it, also in a later call.
define part
@mkdir -p $(VERIFY); commit=$$(git rev-parse HEAD 2>/dev/null); \
if [ "$$(cut -d' ' -f2 $(VERIFY)/$(1).done 2>/dev/null)" = "$$commit" ]; then echo "$(1): passed already"; else \
  begun=$$(date +%s); $(2) && echo "$(1) $$commit $$(( $$(date +%s) - begun ))s" >$(VERIFY)/$(1).done; fi
endef

durations: $(VENV)/ready browser
	rm -rf .cache/programs-*
	$(QUICK) $(BIN)/python -m pytest -n 1 --durations-file=tests/durations.json

slurm: $(VENV)/ready
	$(BIN)/python tests/slurm/one_node.py

faults: $(VENV)/ready
	$(BIN)/python tests/lab/run_faults.py

check: $(VENV)/ready
	$(BIN)/solvable check

bench: $(VENV)/ready
	$(BIN)/python -m benchmarks

docs: $(VENV)/ready
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

pictures: $(VENV)/ready browser
	$(BIN)/python docs/make_screenshots.py

listing: $(VENV)/ready-core
	$(BIN)/python -m solvable.models

thumbnails: $(VENV)/ready
	$(BIN)/python -m solvable.explorer.thumbnails

figures: $(VENV)/ready
	@for name in $$($(BIN)/solvable figure --json | $(BIN)/python -c "import json,sys; print(*(f['name'] for f in json.load(sys.stdin)['figures']))"); do \
	  $(BIN)/solvable figure $$name --out figures || exit 1; \
	done

clean:
	rm -rf $(VENV) build dist docs/_build docs/generated .pytest_cache .ruff_cache
