# Each target works by itself on a machine with Python 3.11 or newer, as often as you like.
# Paths are relative, since make cannot name a folder with a space in it.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup setup-demo demo test test-slow compat lint format sbom audit

# One thread for each library, or sums depend on how many cores the machine has.
test test-slow compat: export OMP_NUM_THREADS = 1
test test-slow compat: export MKL_NUM_THREADS = 1
test test-slow compat: export OPENBLAS_NUM_THREADS = 1
# One kind of matrix products too: newer ones sum in another order, which AdamW's first steps enlarge.
test test-slow compat: export MKL_ENABLE_INSTRUCTIONS = AVX2
# Processors that are not Intel's heed only this one.
test test-slow compat: export MKL_CBWR = AVX2

# Two files at once: more would only make the trainings in them wait for each other. In the order of
# their names, which has the long ones of tests/integration early, so that none is left for the end.
# Schemathesis is run as a program: its plugin would cost each process half a second.
PYTEST = .venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -p no:schemathesis

# The first that is recent enough and can make an environment makes it; one that cannot says so.
PYTHONS = $(if $(PYTHON),"$(PYTHON)",python3 python3.14 python3.13 python3.12 python3.11)
SET_UP = recent='import sys; sys.exit(sys.version_info < (3, 11))'; \
	for needed in "$$recent; import ensurepip, venv" "$$recent"; do \
		for name in $(PYTHONS); do \
			if "$$name" -c "$$needed" 2>/dev/null; then exec "$$name" tools/set_up.py $(1); fi; \
		done; \
	done; \
	echo 'kdnas needs Python 3.11 or newer and found none as $(PYTHONS): install one,' \
		'or name it with make PYTHON=/path/to/python3.11' >&2; exit 1

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup: ## Make .venv and install kdnas into it, with all that tests and demo need
	@$(call SET_UP,demo dev)

setup-demo:
	@$(call SET_UP,demo)

demo: setup-demo ## Search with a real teacher on real text, and distil the winner
	@.venv/bin/kdnas demo

test: setup ## Run the fast tests
	@$(PYTEST) -m "not slow and not browser and not gpu and not compat"

# pytest ends with 5 where it finds no test: a suite that was lost must not pass.
test-slow: setup ## Run the tests that take long or need a browser
	@$(PYTEST) -m "slow or browser" || { code=$$?; \
	[ $$code -ne 5 ] || echo 'no test is marked slow or browser: the suite was lost' >&2; \
	exit $$code; }

# An environment of its own, with what others make of kdnas: minutes, and packages from elsewhere.
compat: setup ## Run the tests that need an environment of their own
	@$(PYTEST) -m compat -n 0

lint: setup ## Check style, types and the directions of imports
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo

format: setup ## Write the code in the house style
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

sbom: setup ## Write what is installed, with licences, to sbom.json (CycloneDX)
	@.venv/bin/python tools/sbom.py sbom.json

audit: setup ## Look up what is known of weaknesses in the installed packages (needs a network)
	@.venv/bin/pip-audit --local --skip-editable --vulnerability-service osv --progress-spinner off \
		|| { echo 'found some, or the list of known ones is out of reach: see above' >&2; exit 1; }
