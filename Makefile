# Each target works by itself on a machine with Python 3.11 or newer, as often as you like.
# Paths are relative, since make cannot name a folder with a space in it.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow compat lint format

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
PYTHONS = $(if $(PYTHON),"$(PYTHON)",python3 python3.14 python3.13 python3.12 python3.11)
RECENT = import sys; sys.exit(sys.version_info < (3, 11))

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

# .venv/.installed says where and what was installed. Another pyproject.toml or constraints.txt is
# installed on top; an environment that was moved or lost its Python is made anew. One that is a link
# to another folder's stays there: only the link goes.
setup: ## Make .venv and install kdnas into it, unless that is done
	@set -e; here=$$(pwd); wanted=$$(pwd; cat pyproject.toml constraints.txt); \
	usable=; \
	if .venv/bin/python -c 'import pip; $(RECENT)' 2>/dev/null \
		&& [ "$$(sed 1q .venv/.installed 2>/dev/null || echo "$$here")" = "$$here" ]; then \
		usable=yes; \
	fi; \
	if [ "$$usable" ] && [ "$$(cat .venv/.installed 2>/dev/null)" = "$$wanted" ]; then exit 0; fi; \
	if [ -z "$$usable" ]; then \
		found=; python=; \
		for name in $(PYTHONS); do \
			"$$name" -c '$(RECENT)' 2>/dev/null || continue; \
			found=$$name; \
			if "$$name" -c 'import ensurepip, venv' 2>/dev/null; then python=$$name; break; fi; \
		done; \
		if [ -z "$$found" ]; then \
			echo 'kdnas needs Python 3.11 or newer and found none as $(PYTHONS): install one,' \
				'or name it with make PYTHON=/path/to/python3.11' >&2; exit 1; \
		elif [ -z "$$python" ]; then \
			echo "$$found lacks its venv module: install it (on Debian the package" \
				"python3-venv), or name another with make PYTHON=/path/to/python3.11" >&2; exit 1; \
		fi; \
		if [ -L .venv ]; then rm .venv; fi; \
		"$$python" -m venv --clear .venv; \
	fi; \
	echo "Installing kdnas and its pinned dependencies into .venv (minutes the first time)"; \
	.venv/bin/python -m pip install --disable-pip-version-check --no-input $(if $(CI),--quiet --no-compile) \
		-c constraints.txt -e ".[demo,dev]"; \
	printf '%s\n' "$$wanted" > .venv/.installed

demo: setup ## Search with a real teacher on real text, and distil the winner
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
