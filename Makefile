# `make install` is for a user: the package and its core; `make demo` adds what the demo needs. `make dev` is for a
# developer: tests and lint too.
# Python >= 3.11 with venv; name another one with `make PYTHON=python3.12 install`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := python -m pip install --quiet --disable-pip-version-check
CORE := $(VENV)/.core
DEMO := $(VENV)/.demo
STAMP := $(VENV)/.installed
CUDA_VENV := .venv-cuda
OLDEST_VENV := .venv-oldest
NEWEST_VENV := .venv-newest

.PHONY: install dev demo test test-plain test-slow test-cuda test-oldest test-newest test-wheel fuzz docs lint clean

install: $(CORE)
	@echo 'brimful is in $(BIN): . $(BIN)/activate puts it on the PATH'

dev: $(STAMP)

$(CORE): EXTRAS =
$(DEMO): EXTRAS = [demo]
$(STAMP): EXTRAS = [dev]

# torch comes first and pinned: whatever asks for "torch" later then finds it satisfied.
$(CORE) $(DEMO) $(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Brimful needs Python >= 3.11: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "this Python has no venv module: install it (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(BIN)/$(PIP) -c constraints.txt torch
	$(BIN)/$(PIP) -c constraints.txt -e '.$(EXTRAS)'
	@touch $(CORE) $@

# A developer's environment has what the demo needs.
demo: $(or $(wildcard $(STAMP)),$(DEMO))
	$(BIN)/brimful demo --out runs/demo

test: dev lint
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# The default suite without the fast forms (kernels/).
test-plain: dev
	BRIMFUL_KERNELS=off $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

test-slow: dev
	$(BIN)/python -m pytest -m slow

# The CUDA path on a device that only records (bench/common/recorder): no GPU is needed, but gcc, and a second
# environment with the CUDA build of torch (2.5 GB to fetch, 5 GB on disk).
test-cuda: dev $(CUDA_VENV)/.installed
	$(BIN)/python -m pytest -m slow -p no:xdist tests/cuda_without_cuda

# The default suite, on the CPU, with the oldest torch that Brimful supports (2.5 GB to fetch, 5 GB on disk).
test-oldest: $(OLDEST_VENV)/.installed
	$(OLDEST_VENV)/bin/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# The same with the newest torch that pip finds among those that Brimful supports (2.5 GB to fetch, 6 GB on disk).
test-newest: $(NEWEST_VENV)/.installed
	$(NEWEST_VENV)/bin/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# The wheel in a clean environment of each Python at hand, with the torch and the core of .venv: every verb's --help,
# and a small model from text to labels.
test-wheel: dev
	$(BIN)/python -m pytest -m slow -p no:xdist tests/test_wheel.py

# Random damage to the files that the verbs read: CASES (1,000), SEED (a new one), ONLY (a regular expression of
# targets), WORKERS; or one CASE that an earlier run printed.
fuzz: dev
	PYTHONPATH=tests $(BIN)/python -m fuzz $(if $(CASES),--cases $(CASES)) $(if $(SEED),--seed $(SEED)) \
		$(if $(ONLY),--only '$(ONLY)') $(if $(WORKERS),--workers $(WORKERS)) \
		$(if $(CASE),--case $(CASE))

# The site of docs/ in build/site. A broken link or anchor, and a page that docs/index.md does not name, is an error.
docs: $(CORE)
	$(BIN)/$(PIP) -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(CUDA_VENV)/.installed: TORCH = torch=$$(sed -n 's/^torch==/==/p' constraints.txt)
$(CUDA_VENV)/.installed: EXTRAS = hf
$(OLDEST_VENV)/.installed: TORCH = torch===$$(sed -n 's/.*"torch>=\([0-9.]*\),.*/\1/p' pyproject.toml).0
$(NEWEST_VENV)/.installed: TORCH = $$(sed -n 's/.*"\(torch>=[^"]*\)".*/\1/p' pyproject.toml)
$(OLDEST_VENV)/.installed $(NEWEST_VENV)/.installed: EXTRAS = dev

# An environment with another torch than .venv. Three = signs: a local CPU build of the same version does not match.
$(CUDA_VENV)/.installed $(OLDEST_VENV)/.installed $(NEWEST_VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -m venv $(@D)
	grep -v '^torch==' constraints.txt > $(@D)/constraints.txt
	$(@D)/bin/$(PIP) "$(TORCH)"
	$(@D)/bin/$(PIP) -c $(@D)/constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(CUDA_VENV) $(OLDEST_VENV) $(NEWEST_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
