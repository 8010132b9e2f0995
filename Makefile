# Everything a newcomer, a maintainer or a CI needs. Only Python 3.11 or later and make have to be there.

PYTHON ?= python3
VENV := .venv
BENCH_VENV := .venv-bench
BIN := $(VENV)/bin
PINS := requirements/constraints.txt
PIP_INSTALL := -m pip install -qq --disable-pip-version-check --constraint $(PINS)

.DEFAULT_GOAL := help
.PHONY: help install demo test lint format bench docs-images gallery derived pins clean

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## Install streamdr and its tools into .venv

demo: install ## Run the flow of the quickstart: fit, transform, verify and summarise a small store
	$(BIN)/python flows/fit_transform.py configs/quickstart.yaml

test: install ## Run the tests, a file to a process
	$(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

lint: install ## Check style, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/derive.py --check

format: install ## Mend what can be mended mechanically
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(BENCH_VENV)/.installed ## Measure against the peers: takes a while, and some 70 GB of disk
	$(BENCH_VENV)/bin/python -m benchmarks

docs-images: demo ## Draw the pictures of README.md and docs/CLIMATE.md
	$(BIN)/python docs/images/draw.py

gallery: install ## Draw the pictures of kernel PCA, docs/KERNEL_PCA_GALLERY.md
	$(BIN)/python docs/gallery.py

derived: install ## Write what follows from the registry of methods: schemas, tables, stubs
	$(BIN)/python tools/derive.py

pins: ## Resolve every dependency anew, and write down the versions
	rm -rf .venv-pins && $(PYTHON) -m venv .venv-pins
	.venv-pins/bin/python -m pip install -qq --disable-pip-version-check --editable '.[dev,bench]'
	.venv-pins/bin/python -m pip freeze --exclude-editable > $(PINS) && rm -rf .venv-pins

clean: ## Remove everything that was made
	rm -rf $(VENV) $(BENCH_VENV) .venv-pins data out build dist *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -f streamdr/core/_kernels.*so streamdr/core/_kernels.*pyd
	find streamdr flows tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are made last, so that an installation that failed half-way is begun again.
$(VENV)/.installed: pyproject.toml $(PINS) streamdr/core/_kernels.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "streamdr needs Python 3.11 or later: make PYTHON=python3.11")'
	@echo "installing streamdr and its tools into $(VENV) (a minute or two)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP_INSTALL) --editable '.[dev]'
	@touch $@

$(BENCH_VENV)/.installed: pyproject.toml $(PINS) streamdr/core/_kernels.c
	@echo "installing streamdr and the programs it is compared with into $(BENCH_VENV)"
	@$(PYTHON) -m venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/python $(PIP_INSTALL) --editable '.[bench]'
	@touch $@
