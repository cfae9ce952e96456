# `make demo` shows memory learning; `make test` checks everything. Each sets up what it needs.
#
#   make install          build .venv (a second run takes no time)
#   make demo             train a small language model to use memory; it tells you first how long that takes
#   make demo QUICK=1     the same with few steps, in a fraction of the time
#   make test             lint, types, import rules, tests, the documentation's examples; some half an hour on two cores
#   make test-memory      the tests of one wing alone; so test-training and test-laboratory
#   make test-all         the same with the slow tests: kills, the wheel in environments of its own, other programs, evidence, and test-peers
#   make test-evidence    every command that measures a method, at its smallest size; MINUTES=10 runs a piece, and says what is left
#   make simulate         drawn work under drawn faults, beside a naive model: SEEDS=0:200 says which nights, LAYER whose
#   make test-paused      the tests that TESTS names, TIMES times, while their process stands still again and again
#   make test-peers       the drop-ins, the examples, chat templates and telemetry beside mem0, LangGraph, OpenAI's packages, TRL and OpenTelemetry
#   make test-hosts       the memory slots in the agent frameworks themselves, in Python and TypeScript, each with its real package
#   make test-hubs        agents of LangChain and OpenAI, tasksets of verifiers, TextArena, OpenEnv, and runs read by Harbor and datasets
#   make test-engine      the adapter and a short training beside a real vLLM on the processor (installs some 2.5 GB)
#   make test-postgres    the memory's tests once more, on a Postgres server of their own
#   make test-ray         workers on a Ray of two nodes on this machine
#   make test-control     memories inside networks beside those of POPGym and memax
#   make typescript       write the types of the TypeScript client anew
#   make test-typescript  build the TypeScript client and use it with a server (needs Node.js and npm)
#   make docs             write the reference of the commands, and the documentation as a site, to build/site
#   make numbers          write every number of the documentation anew, from the files that the benchmarks left
#   make lint             the checks that run nothing
#   make release-check    build what is released, and check what a stranger gets; TAG=v1.2.3 also asks what that release has to fill in
#   make lock             write requirements/lock.txt anew, with the newest versions that fit
#   make audit            ask whether a locked package is known to be vulnerable
#   make clean            remove .venv, the other .venv-* and caches (runs/ stays)
#
# pip's own settings (pip.conf, PIP_INDEX_URL, ...) hold. PYTHON=python3.12 picks another interpreter.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := .venv-peers
HOSTS := .venv-hosts
CREWAI := .venv-hosts-crewai
HUBS := .venv-hubs
AGENTS := .venv-hubs-agents
RAY := .venv-ray
ENGINE := .venv-engine
POSTGRES := .venv-postgres
CONTROL := .venv-control
RELEASE := .venv-release
UV := 0.13.8
# One process for each core, each with a run of the tests that lie beside one another; a worker that finishes early takes tests from the others.
PYTEST := $(BIN)/pytest -n auto --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help install demo test test-memory test-training test-laboratory test-all test-evidence simulate test-paused test-peers test-hosts test-hubs test-engine test-postgres test-ray test-control typescript test-typescript docs numbers lint lock audit release-check clean

help:
	@sed -n 's/^#   //p' Makefile

install: $(STAMP)

$(STAMP): pyproject.toml requirements/lock.txt requirements/install.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh requirements/install.sh
	@touch $@

demo: $(STAMP)
	@$(BIN)/keepworth demo $(if $(QUICK),--quick)

test: lint
	@$(PYTEST) -m "not slow"

# The three wings of the package; each one's tests run alone.
MEMORY := tests/memory tests/serving tests/goldens tests/hosts
test-memory: $(STAMP)
	@$(PYTEST) -m "not slow" $(wildcard $(MEMORY))

TRAINING := tests/models tests/learning tests/recipes tests/rollouts tests/agents tests/environments tests/tasks tests/episodes tests/cluster
test-training: $(STAMP)
	@$(PYTEST) -m "not slow" $(wildcard $(TRAINING))

LABORATORY := tests/evaluation tests/control tests/methods
test-laboratory: $(STAMP)
	@$(PYTEST) -m "not slow" $(wildcard $(LABORATORY))

test-all: lint
	@$(PYTEST)
	@$(BIN)/python -m benchmarks.methods.smallest
	@$(MAKE) test-peers

test-evidence: $(STAMP)
	@$(BIN)/python -m benchmarks.methods.smallest $(if $(MINUTES),--minutes $(MINUTES))

simulate: $(STAMP)
	@$(BIN)/python -m benchmarks.nights.run --layer $(or $(LAYER),engine) --seeds $(or $(SEEDS),0:20) $(if $(STEPS),--steps $(STEPS))

test-paused: $(STAMP)
	@$(BIN)/python tests/paused.py $(or $(TIMES),5) -m "not slow" $(TESTS)

# In an environment of their own: they bring packages that nothing else here needs.
test-peers: $(PEERS)/.installed
	@$(PEERS)/bin/python -m pytest -m "not slow" tests/memory/test_mem0.py tests/memory/test_langgraph.py \
		tests/serving/test_host_adapters.py tests/serving/test_templates.py tests/test_examples.py \
		tests/serving/test_telemetry.py tests/serving/test_otlp.py

# The agent frameworks, in an environment of their own for the same reason.
# CrewAI asks for a newer OpenTelemetry than Google ADK takes.
test-hosts: $(HOSTS)/.installed $(CREWAI)/.installed
	@$(HOSTS)/bin/python -m pytest -m "not slow" tests/hosts
	@$(CREWAI)/bin/python -m pytest -m "not slow" -k crewai tests/hosts

# What is trained as it is, in an environment of its own for the same reason.
test-hubs: $(HUBS)/.installed $(AGENTS)/.installed
	@PATH="$(CURDIR)/$(HUBS)/bin:$$PATH" $(HUBS)/bin/python -m pytest -m "not slow" tests/hubs tests/learning/test_exchange.py
	@$(AGENTS)/bin/python -m pytest -m "not slow" tests/hubs/test_agents.py

test-engine: $(STAMP) $(ENGINE)/.installed
	@KEEPWORTH_ENGINE_PYTHON=$(CURDIR)/$(ENGINE)/bin/python $(BIN)/pytest -m slow tests/end_to_end/test_vllm.py

$(ENGINE)/.installed: requirements/engine.sh
	@PYTHON="$(PYTHON)" VENV="$(ENGINE)" sh requirements/engine.sh
	@touch $@

$(PEERS)/.installed: pyproject.toml requirements/peers.txt
	@$(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet -e ".[examples]" -r requirements/peers.txt
	@$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps trl==1.16.0  # its chat templates alone
	@touch $@

$(HOSTS)/.installed: pyproject.toml requirements/hosts.txt clients/typescript/package.json
	@$(PYTHON) -m venv $(HOSTS)
	@$(HOSTS)/bin/python -m pip --disable-pip-version-check install --quiet -e . -r requirements/hosts.txt
	@mkdir -p build/typescript && cp clients/typescript/package.json build/typescript
	@cd build/typescript && PATH="$(CURDIR)/$(HOSTS)/bin:$$PATH" npm install --no-package-lock --silent
	@touch $@

$(HUBS)/.installed: pyproject.toml requirements/hubs.txt
	@$(PYTHON) -m venv $(HUBS)
	@$(HUBS)/bin/python -m pip --disable-pip-version-check install --quiet -e ".[train,serve]" -r requirements/hubs.txt
	@touch $@

$(AGENTS)/.installed: pyproject.toml requirements/agents.txt
	@$(PYTHON) -m venv $(AGENTS)
	@$(AGENTS)/bin/python -m pip --disable-pip-version-check install --quiet -e ".[train,serve]" -r requirements/agents.txt
	@touch $@

$(CREWAI)/.installed: pyproject.toml requirements/hosts_crewai.txt
	@$(PYTHON) -m venv $(CREWAI)
	@$(CREWAI)/bin/python -m pip --disable-pip-version-check install --quiet -e . -r requirements/hosts_crewai.txt
	@touch $@

# Beside the usual environment: a wheel that brings a server.
test-postgres: $(STAMP) $(POSTGRES)/.installed
	@KEEPWORTH_TEST_STORE=postgres PYTHONPATH=$(CURDIR)/$(POSTGRES) $(BIN)/python -m pytest -m "not slow" tests/memory
	@PYTHONPATH=$(CURDIR)/$(POSTGRES) $(BIN)/python -m pytest tests/memory/test_postgres.py

$(POSTGRES)/.installed: requirements/postgres.txt
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --target $(POSTGRES) -r requirements/postgres.txt
	@touch $@

# Ray brings half a gigabyte, and starts processes of its own.
test-ray: $(RAY)/.installed
	@$(RAY)/bin/python -m pytest tests/cluster/test_ray.py tests/learning/test_rollout_workers.py
	@$(RAY)/bin/python -m pytest tests/recipes/test_workers_ray.py

$(RAY)/.installed: pyproject.toml requirements/ray.txt
	@$(PYTHON) -m venv $(RAY)
	@$(RAY)/bin/python -m pip --disable-pip-version-check install --quiet -e ".[train,ray,serve]" -r requirements/ray.txt
	@touch $@

# Two more frameworks and their worlds, which nothing else here needs.
test-control: $(CONTROL)/.installed
	@$(CONTROL)/bin/python -m pytest tests/control

$(CONTROL)/.installed: pyproject.toml requirements/control.txt
	@$(PYTHON) -m venv $(CONTROL)
	@$(CONTROL)/bin/python -m pip --disable-pip-version-check install --quiet -e ".[control]" -r requirements/control.txt
	@touch $@

# The client in TypeScript: its types, made from the server's description, and its test with a real server. Needs Node.js and npm.
typescript: $(STAMP)
	@cd clients/typescript && npm install --no-package-lock --silent
	@$(BIN)/python clients/typescript/describe.py > build-openapi.json
	@cd clients/typescript && npx openapi-typescript ../../build-openapi.json --default-non-nullable false -o src/schema.d.ts
	@rm build-openapi.json
	@$(BIN)/python clients/typescript/describe.py --mark

test-typescript: $(STAMP)
	@cd clients/typescript && npm install --no-package-lock --silent && npm run --silent build
	@$(BIN)/python -m pytest -m "" tests/serving/test_typescript.py

docs: $(STAMP)
	@$(BIN)/python -m tests.cli.test_command_page
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html, or with its search: $(BIN)/python -m http.server --directory build/site"

numbers: $(STAMP)
	@$(BIN)/python -m benchmarks.pages

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# One file for Linux and macOS and every Python from 3.11: what differs has a marker. Only this asks an index for versions.
lock:
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet uv==$(UV)
	@$(BIN)/uv pip compile --quiet --universal --generate-hashes --upgrade --python-version 3.11 --no-emit-index-url \
		--custom-compile-command "make lock" --extra dev --output-file requirements/lock.txt pyproject.toml requirements/pins.in

audit: $(STAMP)
	@$(BIN)/python requirements/audit.py $(BIN)/pip-audit

release-check: $(RELEASE)/.installed
	@$(RELEASE)/bin/python requirements/release_check.py $(if $(TAG),--tag $(TAG))

$(RELEASE)/.installed: requirements/release.txt
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip --disable-pip-version-check install --quiet -r requirements/release.txt
	@touch $@

clean:
	rm -rf $(VENV) $(PEERS) $(HUBS) $(AGENTS) $(ENGINE) $(POSTGRES) $(RAY) $(CONTROL) $(RELEASE) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
