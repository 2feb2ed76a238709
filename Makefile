# Python >= 3.11 with venv; name another one with `make PYTHON=python3.12 install`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CUDA_VENV := .venv-cuda
OLDEST_VENV := .venv-oldest

.PHONY: install demo speedrun test test-plain test-slow test-cuda test-oldest fuzz lint clean

install: $(STAMP)

# torch comes first and pinned: whatever asks for "torch" later then finds it satisfied.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Brimful needs Python >= 3.11: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "this Python has no venv module: install it (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,demo]'
	@touch $(STAMP)

demo: install
	$(BIN)/brimful demo --out runs/demo

# About 4 hours on two cores; see docs/speedrun.md. Interrupted, it continues.
speedrun: install
	$(BIN)/python -m bench.speedrun

test: install lint
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# The default suite without the fast forms (kernels/).
test-plain: install
	BRIMFUL_KERNELS=off $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

test-slow: install
	$(BIN)/python -m pytest -m slow

# The CUDA path on a device that only records (bench/common/recorder): no GPU is needed, but gcc, and a second
# environment with the CUDA build of torch (2.5 GB to fetch, 5 GB on disk).
test-cuda: install $(CUDA_VENV)/.installed
	$(BIN)/python -m pytest -m slow -p no:xdist tests/cuda_without_cuda

# The default suite, on the CPU, with the oldest torch that Brimful supports (2.5 GB to fetch, 5 GB on disk).
test-oldest: $(OLDEST_VENV)/.installed
	$(OLDEST_VENV)/bin/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# Random damage to the files that the verbs read: CASES (1,000), SEED (a new one), ONLY (a regular expression of
# targets), WORKERS, SECONDS; or one CASE that an earlier run printed.
fuzz: install
	PYTHONPATH=tests $(BIN)/python -m fuzz $(if $(CASES),--cases $(CASES)) $(if $(SEED),--seed $(SEED)) \
		$(if $(ONLY),--only '$(ONLY)') $(if $(WORKERS),--workers $(WORKERS)) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(if $(CASE),--case $(CASE))

$(CUDA_VENV)/.installed: TORCH = $$(sed -n 's/^torch==//p' constraints.txt)
$(CUDA_VENV)/.installed: EXTRAS = hf
$(OLDEST_VENV)/.installed: TORCH = $$(sed -n 's/.*"torch>=\([0-9.]*\),.*/\1/p' pyproject.toml).0
$(OLDEST_VENV)/.installed: EXTRAS = dev,demo

# An environment with another torch than .venv. Three = signs: a local CPU build of the same version does not match.
$(CUDA_VENV)/.installed $(OLDEST_VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -m venv $(@D)
	grep -v '^torch==' constraints.txt > $(@D)/constraints.txt
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		"torch===$(TORCH)"
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		-c $(@D)/constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(CUDA_VENV) $(OLDEST_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
