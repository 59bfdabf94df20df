# The only commands a new user or the CI needs. Each makes .venv first, if it is missing or out of date.
PYTHON ?= python3
VENV := .venv
STAMP := $(VENV)/.installed
COMPILED := $(VENV)/.compiled

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help study test test-all lint docs bench bench-all gpu-check clean

help:
	@echo 'make study      the default scaling study, within two minutes: ResNet-18 on real images, DataParallel and DDP'
	@echo 'make test       the tests (ARGS="-k parity" passes arguments on to pytest)'
	@echo 'make test-all   the slow ones as well: more of the same kinds, before a release'
	@echo 'make lint       ruff, mypy --strict, the import rules, no conflict markers'
	@echo 'make docs       the documentation as a site, in site/; fails on a broken link'
	@echo 'make bench      the claims that are measured in minutes each (ARGS="predict" for another)'
	@echo 'make bench-all  all claims: most of a day'
	@echo 'make gpu-check  the same results on the GPUs of this machine'
	@echo 'make clean      remove .venv, caches and build output; runs/ stays'

study: $(COMPILED)
	@$(VENV)/bin/worldsize study default

# Four processes share the tests that do not measure: starting processes is most of their work, and it waits a lot
# (with three, two cores were busy for three quarters of the time).
test: $(COMPILED)
ifdef ARGS
	@$(VENV)/bin/python -m pytest $(ARGS)
else
	@$(VENV)/bin/python -m pytest -n 4 --dist loadscope --no-loadscope-reorder --durations=25 -m 'not quiet$(BUT)'
	@$(QUIET) || { [ $$? = 1 ] && echo 'once more, what failed:' && $(QUIET) --last-failed; }
endif

# Tests that measure fail where others took the machine for a minute; a wrong number fails in the second run as well.
QUIET = $(VENV)/bin/python -m pytest --durations=15 -m 'quiet$(BUT)'

# CONTRIBUTING.md says which tests are slow.
BUT = $(if $(ALL),, and not slow)
test-all:
	@$(MAKE) --no-print-directory test ALL=1

lint: $(STAMP)
	@echo 'ruff check' && $(VENV)/bin/ruff check --quiet
	@echo 'ruff format --check' && $(VENV)/bin/ruff format --check --quiet
	@echo 'mypy --strict' && $(VENV)/bin/mypy
	@echo 'import-linter' && $(VENV)/bin/lint-imports --no-logo
	@echo 'conflict markers' && ! git grep -nE '^(<{7}|>{7}) '

# Material prints a notice of its own on each build; NO_MKDOCS_2_WARNING is how it says to turn it off.
docs: $(STAMP)
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict && echo 'docs: site/index.html'

bench: $(COMPILED)
	@$(VENV)/bin/python benchmarks/run.py $(ARGS)

bench-all: $(COMPILED)
	@$(VENV)/bin/python benchmarks/run.py --all $(ARGS)

gpu-check: $(COMPILED)
	@$(VENV)/bin/python benchmarks/gpu_check.py $(ARGS)

# pip is looked for, not the folder: a venv that was broken off has none.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo 'worldsize needs Python 3.11 or newer; give one with: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	    || { echo 'Python cannot make virtual environments here; install: apt-get install python3-venv' >&2; exit 1; }
	@test -x $(VENV)/bin/pip || { echo 'making $(VENV)' && $(PYTHON) -m venv --clear $(VENV); }
	@echo 'installing worldsize, torch and the development tools into $(VENV); a few minutes the first time'
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	@touch $@
	@echo 'installed'

# pip compiles on one core; here all do. What runs torch needs it, `make lint` and `make docs` import little. Files that
# are no Python of this version stay as they are.
$(COMPILED): $(STAMP)
	@echo 'compiling what was installed, on all cores'
	@$(VENV)/bin/python -W ignore -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@ || true

clean:
	rm -rf $(VENV) build dist site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests docs -name __pycache__ -prune -exec rm -rf {} +
