# `make quickstart` and `make test` do everything, from a clean clone, with Python 3.11 or newer.
#
# What is installed follows the NVIDIA driver, since a CUDA library needs a driver at least as new as itself:
#   580 and newer  extra gpu       CUDA 13 (tests add dev, the CUDA 13.0 compiler, for the same CuPy)
#   525 to 579     extra gpu-cu12  CUDA 12 (tests add docs, lint and test: dev's CuPy for CUDA 13 writes into the same
#                                  folder as CuPy for CUDA 12, and neither works afterwards)
#   none or older  no extra        the CPU implementations run; dev still compiles every kernel
#
# Variables: PYTHON (makes .venv), JOBS (test processes), NVIDIA_DRIVER (instead of the version found; `none` for the CPU).

PYTHON ?= python3
JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN); [ "$$n" -lt 8 ] && echo "$$n" || echo 8)
DRIVER_FILE ?= /proc/driver/nvidia/version

ifeq ($(origin NVIDIA_DRIVER),undefined)
NVIDIA_DRIVER := $(shell nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null \
	| grep -m 1 -oE '^[0-9]+\.[0-9.]+' || grep -m 1 -oE '[0-9]+\.[0-9.]+' '$(DRIVER_FILE)' 2>/dev/null || echo none)
endif
EXTRA := $(shell major=$$(echo '$(NVIDIA_DRIVER)' | grep -oE '^[0-9]+' || echo 0); \
	if [ "$$major" -ge 580 ]; then echo gpu; elif [ "$$major" -ge 525 ]; then echo gpu-cu12; else echo cpu; fi)

RUN_gpu := [gpu]
RUN_gpu-cu12 := [gpu-cu12]
RUN_cpu :=
DEV_gpu := [dev,gpu]
DEV_gpu-cu12 := [docs,lint,test,gpu-cu12]
DEV_cpu := [dev]
WHY_gpu := NVIDIA driver $(NVIDIA_DRIVER) runs CUDA 13 (580 or newer): extra gpu
WHY_gpu-cu12 := NVIDIA driver $(NVIDIA_DRIVER) runs CUDA 12 (525 or newer, below 580): extra gpu-cu12
WHY_cpu := NVIDIA driver 525 or newer needed for a GPU, found: $(NVIDIA_DRIVER): CPU only
OTHER_CUPY_gpu := cupy-cuda12x
OTHER_CUPY_gpu-cu12 := cupy-cuda13x

BIN := .venv/bin
PACKAGES := datasets impls records report studies suite
SOURCES := pyproject.toml scripts/build_backend.py
CUDA_FILES := find $(PACKAGES) tests -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.hpp'

# Without compiled Python, every process reads all sources anew.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.PHONY: help quickstart figures picture screenshots docs install browser check test test-rest fuzz lint format types types-all wheel extras clean

help: ## say what there is
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{ printf "%-12s%s\n", $$1, $$2 }'

quickstart: .venv/.run-$(EXTRA) ## install, run a small sweep, draw its page under out/quickstart
	@$(BIN)/spmark quickstart --out out/quickstart

# Documents show a few figures of published sweeps: figures.txt names these. `spmark report` draws all others.
figures: .venv/.run-$(EXTRA) ## redraw the documents' figures, README's table and the notes' tables from the published records
	@set -e; while IFS=": " read -r folder figures; do \
	  $(BIN)/spmark report "report/reference/$$folder" --png --out "out/reference/$$folder" < /dev/null; \
	  for figure in $$figures; do \
	    cp "out/reference/$$folder"/figures/"nvidia-$${folder%%/*}-$$figure".png "report/reference/$$folder/$$figure.png"; \
	  done; \
	done < report/reference/figures.txt
	@$(BIN)/python scripts/results_table.py
	@$(BIN)/python scripts/studies/lo_spmm_tables.py

picture: .venv/.dev-$(EXTRA) ## draw README's picture and those of plans anew; needs make browser
	@$(BIN)/python tests/picture.py
	@$(BIN)/python scripts/plan_pictures.py

screenshots: .venv/.dev-$(EXTRA) ## take pictures of the pages of out/quickstart, wide and narrow, light and dark
	@$(BIN)/python tests/screenshots.py out/quickstart out/screenshots

# A link that leads nowhere ends it. The library's maintainers announce its successor in every build.
docs: .venv/.dev-$(EXTRA) ## build the documents into out/docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

install: .venv/.dev-$(EXTRA) ## make .venv with all that the targets below need

browser: .venv/.dev-$(EXTRA) ## install a Chromium for the tests of pages: without one, they are skipped
	@$(BIN)/python tests/install_browser.py

# No test is in two of test, test-rest and fuzz. A process takes whole files, so that what a file's tests share is made once
# (pytest 9.2 does not show pytest-xdist 3.8 its groups), the longest first, as tests/seconds.tsv tells, and not those of most
# tests. test-rest has a few long files, so that it takes tests.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist

check: .venv/.dev-$(EXTRA) ## lint what differs from BASE (HEAD), run the fast tests and those nearest to the change
	@$(BIN)/python scripts/check.py --base $(or $(BASE),HEAD) -- -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

test: .venv/.dev-$(EXTRA) ## run the tests, with a sample of every table of kernels
	@$(PYTEST) loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-rest: .venv/.dev-$(EXTRA) ## run what test leaves out: more of the tables, every architecture, published records
	@$(PYTEST) worksteal --tests=rest $(PYTEST_ARGS)

fuzz: .venv/.dev-$(EXTRA) ## run each reader of files on mutated inputs for a minute, before a release
	@$(BIN)/python tests/fuzz --seconds 60

lint: .venv/.dev-$(EXTRA) ## check style, imports and spelling: ruff, import-linter, codespell, clang-format, hadolint, shellcheck
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/codespell *.md docs impls records report studies suite datasets scripts examples
	@$(BIN)/ruff format --check .
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/shellcheck scripts/*.sh .ci/run
	@$(CUDA_FILES) | xargs $(BIN)/clang-format --dry-run -Werror

format: .venv/.dev-$(EXTRA) ## write Python and CUDA files in the project's style
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
	@$(CUDA_FILES) | xargs $(BIN)/clang-format -i

types: .venv/.dev-$(EXTRA) ## check the package's types: mypy, strict
	@$(BIN)/python -m mypy -p spmark

types-all: types ## check tests, scripts and examples, too, before a release: basedpyright takes a minute
	@$(BIN)/basedpyright

wheel: .venv/.made ## build the wheel into dist
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

extras: ## say what would be installed for this machine's driver
	@echo '$(WHY_$(EXTRA))'
	@echo 'quickstart installs .$(RUN_$(EXTRA))'
	@echo 'test, lint and types install .$(DEV_$(EXTRA))'

clean: ## delete what was made, but .venv and results
	rm -rf out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis spmark.egg-info
	find $(PACKAGES) spmark tests -name __pycache__ -prune -exec rm -rf {} +

.venv/.made:
	@command -v '$(PYTHON)' >/dev/null || { \
	  echo "expected Python 3.11 or newer as '$(PYTHON)', found none: install it, or say make PYTHON=/path/to/python"; exit 1; } >&2
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "expected Python 3.11 or newer, found $$('$(PYTHON)' --version 2>&1): say make PYTHON=/path/to/python"; exit 1; } >&2
	@'$(PYTHON)' -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "expected the modules venv and ensurepip in '$(PYTHON)', found them missing: apt install python3-venv"; exit 1; } >&2
	@'$(PYTHON)' -m venv .venv
	@touch $@

# A driver that was replaced since asks for the other CuPy. Compiling all modules takes half of an install, and most are
# never imported: Python compiles those that are.
define install
	@echo '$(WHY_$(EXTRA))'
	@echo 'installing spmark$(1) into .venv'
	@$(if $(OTHER_CUPY_$(EXTRA)),$(BIN)/python -m pip uninstall --quiet --yes $(OTHER_CUPY_$(EXTRA)),:)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.$(1)'
	@touch $@
endef

.venv/.run-$(EXTRA): .venv/.made $(SOURCES)
	$(call install,$(RUN_$(EXTRA)))

.venv/.dev-$(EXTRA): .venv/.made $(SOURCES)
	$(call install,$(DEV_$(EXTRA)))
	@touch .venv/.run-$(EXTRA)
