# Daylight: the same commands for a person and for CI. `make` lists them.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup run fmt check test acceptance bench drill chaos lock

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Make .venv with everything that developing needs
	$(PYTHON) -m scheduler_app.launch.environment lint

run: ## Start a whole stack on http://127.0.0.1:8000
	$(PYTHON) manage.py up

fmt: setup ## Format the code
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

check: setup ## Lint, types, import rules, templates, migrations, unit and integration tests
	bash .ci/lint
	$(PYTHON) manage.py test tests/unit tests/integration tests/replays

test: ## All tests (one file: python3 manage.py test tests/unit/launch)
	$(PYTHON) manage.py test

acceptance: ## The tests with real processes
	$(PYTHON) manage.py test tests/acceptance

ONLY ?=
bench: ## Measure and write docs/benchmarks.md; needs a quiet machine (ONLY=W2: print that alone)
	$(if $(ONLY),,BENCHMARKS_FILE=docs/benchmarks.md) $(PYTHON) manage.py test tests/benchmarks \
		-p no:randomly $(if $(ONLY),-k "$(ONLY)")

COMPILE := uv pip compile pyproject.toml --quiet --universal --generate-hashes --python-version 3.11 \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links

DRILL ?= failover
drill: ## Hold one fire drill on a stack of its own (DRILL=worker-loss)
	$(PYTHON) manage.py drill $(DRILL)

MINUTES ?= 10
chaos: ## Random faults over a mixed load, then the checker (MINUTES=10, SEED=7 to repeat)
	$(PYTHON) manage.py drill chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

lock: ## Write the pins and hashes anew from pyproject.toml (needs uv)
	$(COMPILE) -o requirements/runtime.txt
	$(COMPILE) --group test -o requirements/test.txt
	$(COMPILE) --group test --group lint -o requirements/lint.txt
