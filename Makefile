# `make demo` and `make test` need Python 3.11, make and unshare, and install everything else.

PYTHON ?= python3
NAME ?= default
ROUNDS ?= 3
SEEDS ?= 200
FIRST ?= 1
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed
AUDIT := $(CURDIR)/build/audit
PERMISSIONS := tests/cluster/test_least_privilege.py
# Tests wait more than they compute: even two cores have work for four at a time. Those of one lab stay together.
# Storms measure what breaks while things break: they have the machine to themselves.
# What fails is run once more, alone: tests/flaky.py says what then counts.
ONE_BY_ONE := $(RUN) -m tests.flaky -q
PYTEST := $(ONE_BY_ONE) --numprocesses 4 --dist loadscope

MAKEFLAGS += --jobs=2

# A venv that could not be made whole is made again.
.DELETE_ON_ERROR:

# Many processes import the same modules: they had better compile them once.
unexport PYTHONDONTWRITEBYTECODE

# Where changes land, the same tests have the same outcome: sets have one order, and properties the same examples.
# `make verify` has others each time.
test sample unit: export PYTHONHASHSEED := 0

.PHONY: help programs demo test sample verify permissions unit cluster chaos e2e browser check format cli release publish actionlint manifests bench hostile simulate mutate up down clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(RUN):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.x" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) >&2

$(STAMP): requirements.txt requirements-cli.txt requirements-frozen.txt requirements-dev.txt | $(RUN)
	@echo "installing the Python packages into $(VENV)" >&2
	@$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt >&2
	@touch $@

# Needs no package, so that it is done while pip installs them.
programs: | $(RUN)
	@$(RUN) -m dev.lab.binaries >/dev/null

demo: $(STAMP) programs ## Show live, on a real control plane, what Drawbridge promises  [KEEP=1: it stays until Ctrl-C]
	@$(RUN) -m dev.demo $(if $(KEEP),--keep)

test: $(STAMP) programs ## Run the unit tests, and the key tests of promises on a real control plane
	@$(PYTEST) -m "not (chaos or e2e or browser) and (promise and not apart or not (cluster or programs or slow))"

sample: $(STAMP) programs ## Run what CI runs beside make test: of the rest, the tests that find most for their time
	@$(PYTEST) --numprocesses 2 -m "promise and apart or (cluster or programs or slow) and not (nightly or promise or chaos or e2e or browser)"
	@$(ONE_BY_ONE) -m promise tests/chaos

verify: $(STAMP) programs ## Run everything that needs no Docker: also all other tests on the control plane, and chaos  [ROUNDS=3]
	@rm -rf $(AUDIT)
	@$(PYTEST) -m "not (cluster or programs or chaos or e2e or browser)"
	@$(RUN) -m dev.simulator --crashes
	@DRAWBRIDGE_TEST_AUDIT=$(AUDIT) $(PYTEST) --numprocesses 2 -m "cluster or programs" --ignore $(PERMISSIONS)
	@DRAWBRIDGE_LAB_VERSIONS=oldest $(PYTEST) --numprocesses 2 -m "cluster and promise" tests/cluster
	@DRAWBRIDGE_TEST_AUDIT=$(AUDIT) ROUNDS=$(ROUNDS) $(ONE_BY_ONE) -m chaos

permissions: $(STAMP) ## After make verify: find permissions that no test used
	@DRAWBRIDGE_TEST_AUDIT=$(AUDIT) $(RUN) -m pytest -q $(PERMISSIONS)

unit: $(STAMP) ## Run the tests that need neither a control plane nor Helm
	@$(PYTEST) -m "not (cluster or programs or chaos or e2e or browser or slow)"

cluster: $(STAMP) programs ## Run the tests on the real control plane, and those with Helm and promtool
	@$(PYTEST) -m "cluster or programs"

chaos: $(STAMP) programs ## Run the storms of deletions in which things break  [ROUNDS=3]
	@ROUNDS=$(ROUNDS) $(ONE_BY_ONE) -m chaos

e2e: $(STAMP) programs ## Play scenes on a cluster of containers: kind where Docker runs, else real nodes, as root  [SCENES=tests/e2e/test_edge.py]
	@$(RUN) -m tests.e2e $(SCENES)

browser: $(STAMP) programs ## Open the dashboard in a real Chromium  [SCREENSHOTS=1 renews the pictures of the docs]
	@$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements-browser.txt >&2
	@SCREENSHOTS=$(SCREENSHOTS) $(RUN) -m pytest -q -m browser tests/browser

check: $(STAMP) ## Check format, lint, types and words
	@$(VENV)/bin/ruff format --check --quiet .
	@$(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/mypy --no-error-summary
	@$(RUN) -m dev.lab.style

format: $(STAMP) ## Format the code, and renew the links of the tour to its lines
	@$(VENV)/bin/ruff format --quiet .
	@$(VENV)/bin/ruff check --quiet --fix .
	@$(RUN) -m dev.lab.tour

cli: $(STAMP) ## Make build/drawbridge: the command as a program that needs no Python
	@$(RUN) -m dev.lab.release.frozen

# Where a release goes: its image is $(REGISTRY)/drawbridge, and its chart oci://$(REGISTRY)/charts/drawbridge.
IMAGE = $(addsuffix /drawbridge,$(REGISTRY))

release: $(STAMP) ## Make the files of a release in build/release  VERSION=0.2.0 [REGISTRY=registry.example/team] [SOURCE=https://...] [PART=image|cli|chart|checksums]
	@$(RUN) -m dev.lab.release $(VERSION) $(addprefix --image=,$(IMAGE)) $(addprefix --source=,$(SOURCE)) $(addprefix --part=,$(PART))

publish: $(STAMP) ## Push the image and the chart that make release made  VERSION=0.2.0 REGISTRY=registry.example/team
	@$(RUN) -m dev.lab.release.publish $(VERSION) --image=$(IMAGE) --charts=$(REGISTRY)/charts

actionlint: $(STAMP) ## Check the workflows
	@$$($(RUN) -m dev.lab.binaries actionlint | cut -d' ' -f2)

manifests: $(STAMP) ## Render deploy/install.yaml, and what each set of values in tests/data/renders changes
	@$(RUN) -m dev.lab.manifests

bench: $(STAMP) programs ## Measure against baselines: all, or one; with a commit, also its ratio to that  [SUITE=ip_reservation] [BASE=main]
	@$(RUN) -m dev.bench$(if $(BASE),.compare $(BASE)) $(SUITE)

hostile: $(STAMP) programs ## Attack a webhook server with 1,000 clients, on loopback: what does a good client have of it?
	@$(RUN) -m dev.hostile

simulate: $(STAMP) programs ## Play the whole platform on a virtual clock, and judge it from outside  [SEEDS=200] [FIRST=1] [SEED=n] [HARD=1] [CRASHES=1]
	@$(RUN) -m dev.simulator $(if $(CRASHES),--crashes $(CRASHES),$(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(FIRST)) $(if $(HARD),--hard))

mutate: $(STAMP) ## Change decisions of planners and ledger one by one: find those that no test detects
	@$(RUN) -m tests.mutation

up: $(STAMP) ## Leave a lab running: eval "$$(make -s up | tail -n 1)"  [NAME=...] [VALUES=file.yaml]
	@$(RUN) -m dev.lab up --name $(NAME) $(if $(VALUES),--values $(VALUES))

down: $(STAMP) ## Remove a lab  [NAME=...]
	@$(RUN) -m dev.lab down --name $(NAME)

clean: ## Remove what was built here
	rm -rf $(VENV) build .hypothesis .mypy_cache .pytest_cache .ruff_cache
