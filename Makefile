# `make run` and `make test` are all a newcomer needs; both start with `make setup`.
#
#   PYTHON       the interpreter the environment is made from, 3.11 or newer
#   VENV         where the environment goes
#   TOSA_VENV    where the environment of TOSA's own tools goes
#   TORCH_SPEC   which torch: a version range, a wheel or an address
#   PIP_ARGS     more options for pip; for a CPU build of torch where pip would take a CUDA one:
#                make run PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
#   MODEL        what `make run` opens
#   PYTEST_ARGS  more options for pytest
PYTHON ?= python3
VENV ?= .venv
TOSA_VENV ?= .venv-tosa
TORCH_SPEC ?= torch>=2.11,<2.14
PIP_ARGS ?=
MODEL ?= resnet50
PYTEST_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The pip that Python 3.11 brings takes a minute more over what is installed here (154 s, not 95).
PIP_SPEC := pip>=25.1,<28
# Bytecode is made where something is first imported (for all of it, pip takes two minutes), even
# where the environment says otherwise: each process would compile what it imports, torch for 3 s.
INSTALL := $(PIP) install --no-compile $(PIP_ARGS)
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest --numprocesses=2 --dist=worksteal $(PYTEST_ARGS)

.DEFAULT_GOAL := help
.PHONY: help setup setup-test setup-dev setup-docs setup-tosa run test test-all gpu-recordings lint docs screenshots clean browser

help:
	@echo 'make run       install what is needed into $(VENV), compile $(MODEL) and open the page'
	@echo 'make test      install what the tests need as well and run them (not the slow ones)'
	@echo 'make test-all  all tests; what came out goes to tests/results/test-all.json'
	@echo 'make gpu-recordings  with an NVIDIA GPU: recordings and times of all sample models on it'
	@echo 'make docs      the documentation as a site: build/docs/index.html'
	@echo 'make screenshots  the pictures of the documentation, from recordings in build/screenshots'
	@echo 'make setup     only install'
	@echo 'make setup-tosa  Arm'"'"'s reference model of TOSA and its compiler Vela, for tests of exports'
	@echo 'make lint      ruff and mypy'
	@echo 'make clean     remove what was built here; the environment stays'

# A stamp says that the environment matches pyproject.toml; `make setup` twice does nothing.
setup: $(VENV)/.installed-all
setup-test: $(VENV)/.installed-test
setup-dev: $(VENV)/.installed-dev
setup-docs: $(VENV)/.installed-docs
setup-tosa: $(TOSA_VENV)/.installed

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'make: $(PYTHON) is missing or older than 3.11; name another: make PYTHON=python3.12 ...'; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	  echo 'make: $(PYTHON) cannot make environments; on Debian: apt-get install python3-venv'; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)

# What is downloaded, as measured in November 2026 on x86-64.
$(VENV)/.installed-%: pyproject.toml hatch_build.py | $(BIN)/python
	@echo 'Installing the packages of compiler-workbench[$*] into $(VENV).'
	@echo 'pip downloads what its cache lacks:'
	@echo '  torch                        0.2 GB (CPU build; several GB where pip finds only the CUDA'
	@echo '                               build: see PIP_ARGS in the Makefile)'
	@echo '  the rest, all prebuilt       0.7 GB, of which NVIDIA compilers 0.2 GB'
	@case '$*' in test | dev) \
	echo '  what only the tests need     0.3 GB';; esac
	@echo 'and $(VENV) takes 2 to 3 GB of disk with a CPU build of torch. No model weights are downloaded.'
	$(INSTALL) --quiet '$(PIP_SPEC)'
	$(INSTALL) '$(TORCH_SPEC)'
	$(INSTALL) --editable '.[$*]'
	@touch $@

# The tools pin versions of NumPy and ml_dtypes that this package does not use.
$(TOSA_VENV)/.installed: Makefile
	@echo 'Installing TOSA'"'"'s reference model and Vela into $(TOSA_VENV): 60 MB, 0.25 GB of disk.'
	$(PYTHON) -m venv $(TOSA_VENV)
	$(TOSA_VENV)/bin/python -m pip --disable-pip-version-check install --quiet $(PIP_ARGS) \
	  'tosa-tools==2026.8.0' 'ethos-u-vela==5.2.0'
	@touch $@

run: setup
	$(BIN)/workbench open $(MODEL)

test: setup-test browser
	$(PYTEST) -m 'not slow'

test-all: setup-test browser
	$(PYTEST) --junitxml=build/test-all.xml; status=$$?; \
	$(BIN)/python -m tests.record_results build/test-all.xml tests/results/test-all.json; exit $$status

# Exits with 3 and says what is missing where there is no GPU.
gpu-recordings: setup
	@$(BIN)/python -m benchmarks.gpu_recordings
	@$(BIN)/python -m benchmarks.training targets gpt2 --iterations 100 -o benchmarks/results/training-gpu.json

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup-docs
	$(BIN)/python docs/build_site.py build/docs
	@echo 'file://$(CURDIR)/build/docs/index.html'

screenshots: setup-test browser
	$(BIN)/python docs/make_screenshots.py build/screenshots

# The page's tests drive a Chromium. Debian's is used where there is one.
browser:
	@if command -v chromium chromium-browser google-chrome > /dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  echo 'No Chromium found: installing it from Debian (apt-get install chromium, 0.1 GB).'; \
	  apt-get update -q && apt-get install -q -y --no-install-recommends chromium; \
	else \
	  echo 'make: the tests of the page need a Chromium and none was found.'; \
	  echo 'As root: apt-get install chromium. To leave these tests out:'; \
	  echo '  make setup-test && $(BIN)/python -m pytest -m "not slow and not playwright"'; \
	  exit 1; \
	fi

clean:
	rm -rf build dist *.egg-info widgets/bundle .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
