# DaisyChain. `make demo` shows a chain on this machine; `make test` proves it.
# TORCH_INDEX: where torch's CPU wheels come from; empty = the ordinary package index only.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
BENCH_VENV := .venv-bench
MUTANTS_VENV := build/mutants/venv
DOCKER_VENV := build/docker/venv
BENCH_STAMP := $(BENCH_VENV)/.ready
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

# Two processes: tests that start whole chains mostly wait. tests/conftest.py says what stays together.
TWO := -q -n 2 --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help demo node test test-long check format lint shell types imports unit simulation integration soak mutants rig rig-long bench-recovery bench-storm bench-reproducible bench-drift clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

# torch comes first and alone: only it may be looked for in TORCH_INDEX, which then costs at most seconds
# where it cannot be reached.
$(STAMP): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (a minute or two, most of it PyTorch) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --no-deps --retries 2 -c constraints.txt \
	  $(if $(strip $(TORCH_INDEX)),--extra-index-url $(TORCH_INDEX)) torch
	@$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@

# The benchmarks' competitors in an environment of their own. It looks through to $(VENV), so both have one torch.
$(BENCH_STAMP): $(STAMP)
	@echo "setting up $(BENCH_VENV) ..."
	@$(PYTHON) -m venv $(BENCH_VENV)
	@$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
	  > "$$($(BENCH_VENV)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/main.pth"
	@$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt $$($(BIN)/python -c \
	  "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['bench'])")
	@touch $@

demo: $(STAMP) ## Three nodes on this machine train the digits; the coordinator is killed on the way
	$(BIN)/daisychain demo --nodes 3 --kill coordinator

node: $(STAMP) ## Run an agent without a container, with what .env and secrets/cluster.key say
	@scripts/node.sh $(BIN)/daisychain $(FLAGS)

check: format lint shell types imports unit simulation ## Format, lint, shellcheck, types, import contracts, unit tests, simulation

format: $(STAMP)
	$(BIN)/ruff format --check node tests jobs

lint: $(STAMP)
	$(BIN)/ruff check node tests jobs

shell: $(STAMP)
	$(BIN)/shellcheck scripts/*.sh images/*.sh compose/*.sh

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

unit: $(STAMP) ## Unit tests (no sockets, no sleeping)
	$(BIN)/pytest $(TWO) tests/unit

simulation: $(STAMP) ## The real core under a seeded network, clock and disk
	$(BIN)/pytest $(TWO) tests/simulation

# Resumable: what was seen so far with this very code is in build/soak/state.json.
soak: $(STAMP) ## SEEDS=10000 seeded chains of up to 32 nodes, LIMIT=3600 s at most; SEED=n replays one
	PYTHONPATH=tests $(BIN)/python -m soak \
	  $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),10000) --limit-s $(or $(LIMIT),3600))

# cosmic-ray makes the mutants and has an environment of its own; see docs/decisions/0016.
$(MUTANTS_VENV)/.ready:
	@$(PYTHON) -m venv $(MUTANTS_VENV)
	@$(MUTANTS_VENV)/bin/pip install --quiet --disable-pip-version-check cosmic-ray==8.7.0
	@touch $@

mutants: $(STAMP) $(MUTANTS_VENV)/.ready ## COUNT=200 mutants of the core, drawn by MUTANT_SEED=1, against unit tests and simulator
	PYTHONPATH=tests $(MUTANTS_VENV)/bin/python -m mutants.generate node/daisychain/core \
	  build/mutants/sample.json $(or $(COUNT),200) $(or $(MUTANT_SEED),1)
	PYTHONPATH=tests $(BIN)/python -m mutants --limit-s $(or $(LIMIT),3600)

integration: $(STAMP) ## Real processes, sockets and gloo
	$(BIN)/pytest -q tests/integration

rig: $(STAMP) ## The rig's own tests: shaped links, cuts, quotas, seen in real traffic (needs root)
	$(BIN)/pytest -q -m "rig and not long" tests/rig

rig-long: $(STAMP) ## Links that gradients fill for two minutes; 200 MB over a link that is cut; fetching beside training (needs root)
	$(BIN)/pytest -q -s -m "long and rig" tests/rig

.PHONY: matrix matrix-quick
MATRIX = PYTHONPATH=node:tests $(BIN)/python -m rig.run_matrix

matrix: $(STAMP) ## Every fault by role and phase, on real nodes in network namespaces; ROW=name: that one alone
	$(MATRIX) $(if $(ROW),--row '$(ROW)')

matrix-quick: $(STAMP) ## A selection of it: every fault, every phase, every pair of fault and role
	$(MATRIX) --quick

test: $(STAMP) ## Every test but the long ones, the rig's and Docker's
	$(BIN)/pytest $(TWO) --durations=15 -m "not long and not rig and not docker" tests

test-long: $(STAMP) ## The long ones: whole demos compared with one process, a storm of worlds, CPU quotas
	$(BIN)/pytest -q --durations=15 -m "long and not rig and not docker" tests

# Compose and the linters of the appliance, in an environment of their own.
$(DOCKER_VENV)/.ready: pyproject.toml
	@$(PYTHON) -m venv $(DOCKER_VENV)
	@$(DOCKER_VENV)/bin/pip install --quiet --disable-pip-version-check $$($(PYTHON) -c \
	  "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docker'])")
	@touch $@

.PHONY: images image-cpu image-cuda demo-docker test-docker
images: image-cpu ## The CPU image, daisychain:cpu; `make image-cuda` makes the other (CUDA=cu126 or cu130)

image-cpu:
	images/build.sh cpu --build-arg TORCH_INDEX=$(TORCH_INDEX)

image-cuda:
	images/build.sh cuda --build-arg CUDA=$(or $(CUDA),cu126)

demo-docker: ## Three containers train the digits; the coordinator's is killed on the way (after `make images`)
	compose/demo.sh

test-docker: $(STAMP) $(DOCKER_VENV)/.ready ## The images, the compose files, and chains of containers (a Docker engine, or root on Debian)
	TORCH_INDEX=$(TORCH_INDEX) DAISYCHAIN_TEST_COMPOSE=$(CURDIR)/$(DOCKER_VENV)/bin/docker-compose \
	  $(BIN)/pytest -q --durations=10 -m docker tests/docker

.PHONY: bench bench-hetero
BENCH = PYTHONPATH=tests $(BIN)/python -m bench

bench: $(STAMP) ## What unequal machines gain and one alone pays; into docs/BENCHMARKS.md (root; QUICK=1: 4 minutes)
	$(BENCH).hetero
	$(BENCH).page

bench-hetero: $(STAMP) ## Its parts by themselves: ONLY=mixes, one, growth, idle or loss
	$(BENCH).hetero $(if $(ONLY),--only $(ONLY))

bench-recovery: $(BENCH_STAMP) ## From a fault to the next step, beside torchft and torchrun (root; QUICK=1: 4 minutes)
	PYTHONPATH=tests $(BIN)/python -m bench.recovery

bench-storm: $(STAMP) ## What four nodes keep of their speed in ten minutes of faults (root; QUICK=1: 4 minutes)
	PYTHONPATH=tests $(BIN)/python -m bench.storm

bench-reproducible: $(STAMP) ## What reproducible mode costs, for three models (QUICK=1: a minute)
	PYTHONPATH=tests $(BIN)/python -m bench.reproducible

bench-drift: $(STAMP) ## How far replicas that round differently drift apart: what the tolerance is made from
	PYTHONPATH=tests $(BIN)/python -m bench.drift

clean: ## Remove what was built
	rm -rf $(VENV) $(BENCH_VENV) build node/*.egg-info
