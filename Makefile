# MemoryMark's commands. Works with GNU make 3.81 (macOS) and newer.

PORT ?= 8000
HOST ?= 127.0.0.1
# The first Python that is new enough; to use another: make run PYTHON=python3.12
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# The browser for the tests; found automatically if empty
CHROMIUM ?=
# The builds of make compat-build
TORCH ?= 2.12.1
TRANSFORMERS ?= 5.23.0
# Where the demo stores its data
DEMO_DATA_DIR ?= $(CURDIR)/var/demo
# A server on which tests may create and drop databases
TEST_POSTGRES_URL ?= postgres://postgres@127.0.0.1:5432/test

# The site that make load reads; one on another machine also needs ELSEWHERE=1
URL ?= http://$(HOST):$(PORT)

# Look for known vulnerabilities of packages, and for risky calls in the code
AUDITORS := pip-audit==2.10.1 bandit==1.9.4
# Writes down the hashes of packages
UV := uv==0.13.9
# Builds the wheel and the source distribution
BUILD := build==1.6.1
# Lists what is installed, with licences
CYCLONEDX := cyclonedx-bom==7.5.0
# Sends the requests of make load
LOCUST := locust==2.47.0
# Whose runs the tests import; MLflow samples a GPU's memory with psutil
TRACKERS := mlflow==3.17.2 wandb==0.31.0 psutil==7.2.2
# Puts small faults into the code
COSMIC_RAY := cosmic-ray==8.7.0

# One test process per core; idle ones take over tests from the others
PARALLEL := -n logical --maxprocesses 4 --dist worksteal
# They have slow tests only, and what they import takes seconds to load.
WITHOUT_SLOW_FILES := --ignore=e2e --ignore=analyses/api/tests/test_api_fuzz.py
# Drills mostly wait for processes, so a third one pays on two cores too
PARALLEL_SLOW := -n 3 --dist worksteal

VENV := .venv
STAMP := $(VENV)/installed
# This machine's variables for the site and its worker; the demo does not use them
ENV_FILE ?= .env
SITE = python -m memorymark_site $(if $(wildcard $(ENV_FILE)),--config '$(ENV_FILE)')

export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PORT HOST TEST_POSTGRES_URL CHROMIUM
export PYTHONUNBUFFERED := 1
# Tests start hundreds of processes, and each would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE
# The cluster forks its workers, which macOS forbids by default once certain libraries are loaded.
export OBJC_DISABLE_INITIALIZE_FORK_SAFETY := YES

.PHONY: help run demo worker test test-longer test-slow test-all test-postgres test-properties trackers drills load compat compat-build real-steps mutants e2e e2e-all screenshots results browser lint style types layers audit lock format openapi dist sbom install clean port
.DEFAULT_GOAL := help

help:
	@echo 'make run      install the requirements, then start the site (PORT=8000 HOST=127.0.0.1)'
	@echo 'make demo     the same with a sample lab to try it on, in var/demo, separate from your data'
	@echo 'make test     run the tests'
	@echo 'make test-longer  run those that take half a second or more each (.ci/run does)'
	@echo 'make test-slow  run the slow tests: real training steps and worker drills'
	@echo 'make test-all  run all tests but e2e, with every model, setting and drill (an hour)'
	@echo 'make test-postgres  run the site tests on PostgreSQL (TEST_POSTGRES_URL), if reachable'
	@echo 'make test-properties  search for new examples that break the property tests (minutes)'
	@echo 'make trackers  install MLflow and W&B, whose runs make test-slow imports'
	@echo 'make drills   strike a lab with faults and print what each cost (20 minutes; PostgreSQL too, if reachable)'
	@echo 'make load     let members and scripts read a running site, and print latencies (URL, TOKEN, MEMBER, PASSWORD)'
	@echo 'make compat   answer with every release of PyTorch, transformers and Python, as pip installs them (a day, 10 GB)'
	@echo 'make compat-build  the same with one release of PyTorch (TORCH=2.12.1), whose environment is kept'
	@echo 'make real-steps  compare traces with real steps under other releases of transformers (an hour)'
	@echo 'make mutants  put random faults into the core and count those no test notices (hours)'
	@echo 'make e2e      test the whole site in a real browser (Chromium; CHROMIUM=/path/to/it)'
	@echo 'make e2e-all  the same, with every page in every size and theme (half an hour)'
	@echo 'make screenshots  save screenshots of every page of the demo to var/screenshots, and renew those of the docs'
	@echo 'make results  reproduce the numbers in README and docs (an hour; PostgreSQL, Chromium)'
	@echo 'make lint     check style, types and layers'
	@echo 'make audit    check the requirements for known vulnerabilities, and the code for risky calls'
	@echo 'make lock     renew requirements.lock, after a change of requirements.txt'
	@echo 'make format   fix the style'
	@echo 'make openapi  regenerate docs/openapi.yaml after an API change'
	@echo 'make dist     build the wheel and source distribution of memorymark into dist'
	@echo 'make sbom     list what is installed, with versions and licences, in dist/memorymark.cdx.json (CycloneDX)'
	@echo 'make worker   start only a worker, on another machine (set DATABASE_URL and SECRET_KEY)'
	@echo 'make install  only install the requirements into $(VENV)'
	@echo 'make clean    remove $(VENV), caches and collected files, but not your data in var'

run: port $(STAMP)
	@$(SITE)

demo: port $(STAMP)
	@export MEMORYMARK_DATA_DIR='$(DEMO_DATA_DIR)'; \
		python -m demo && $(MAKE) --no-print-directory run ENV_FILE=/dev/null

worker: $(STAMP)
	@$(SITE) cluster

test: $(STAMP)
	@python -m pytest $(PARALLEL) $(WITHOUT_SLOW_FILES)

test-longer: $(STAMP)
	@python -m pytest $(PARALLEL) $(WITHOUT_SLOW_FILES) -m 'longer and not slow and not full'

test-slow: $(STAMP) trackers
	@python -m pytest $(PARALLEL_SLOW) -m 'slow and not full'

test-all: $(STAMP) trackers
	@python -m pytest $(PARALLEL_SLOW) -m 'not e2e'

HAS_POSTGRES = python -c 'import psycopg, sys; psycopg.connect(sys.argv[1], connect_timeout=3)' \
	'$(TEST_POSTGRES_URL)' 2>/dev/null

test-postgres: $(STAMP)
	@if $(HAS_POSTGRES); then \
		DATABASE_URL='$(TEST_POSTGRES_URL)' python -m pytest $(PARALLEL) $(WITHOUT_SLOW_FILES) \
			-m 'database and not slow and not full and not e2e' analyses memorymark_site; \
	else echo 'No PostgreSQL at $(TEST_POSTGRES_URL): these tests are skipped.'; fi

test-properties: $(STAMP)
	@python -m pytest $(PARALLEL) -m 'hypothesis and not slow and not full' \
		--hypothesis-profile=new-examples

# In their own environment, since they need other releases of some of the site's packages
trackers: $(STAMP)
	@[ -x var/trackers/bin/wandb ] || { python -m venv var/trackers && \
		var/trackers/bin/pip install --quiet --disable-pip-version-check $(TRACKERS); }

drills: $(STAMP)
	@if $(HAS_POSTGRES); then python -m drills --postgres '$(TEST_POSTGRES_URL)'; else python -m drills; fi

# In its own environment, like audit. TOKEN, MEMBER and PASSWORD may come from the environment too,
# where other users of the machine do not see them.
load: export LOAD_TOKEN = $(TOKEN)
load: export LOAD_MEMBER = $(MEMBER)
load: export LOAD_PASSWORD = $(PASSWORD)
load: $(STAMP)
	@[ -x var/load/bin/locust ] || { python -m venv var/load && \
		var/load/bin/pip install --quiet --disable-pip-version-check $(LOCUST); }
	@python -m drills.load '$(URL)' $(if $(ELSEWHERE),--elsewhere)

compat: $(STAMP) dist
	@python -m benchmarks.compat --wheel dist/*.whl --store

compat-build: $(STAMP) dist
	@python -m benchmarks.compat --wheel dist/*.whl --keep --python 3.11 \
		--torch $(TORCH) --transformers $(TRANSFORMERS)

real-steps: $(STAMP)
	@python -m benchmarks.compat.real_steps

e2e: $(STAMP) browser
	@python -m pytest -p pytest_playwright.pytest_playwright $(PARALLEL) --dist loadfile \
		-m e2e e2e

e2e-all:
	@MEMORYMARK_EVERY_LOOK=1 $(MAKE) --no-print-directory e2e

screenshots: $(STAMP) browser
	@python -m e2e.screenshots var/screenshots --docs docs

results: $(STAMP) browser
	@python -m benchmarks.results
	@python -m benchmarks.gpu report benchmarks/results/nvidia-h100-80gb-hbm3-torch-2.11.0.json

# Only root can install it; the tests tell everyone else how.
browser:
	@[ -n '$(CHROMIUM)' ] || command -v chromium chromium-browser google-chrome >/dev/null || \
		[ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || \
		{ echo 'Installing Chromium ...'; apt-get update -qq && apt-get install -y -qq chromium >/dev/null; }

lint: style types layers

style: $(STAMP)
	@ruff check .
	@ruff format --check .

types: $(STAMP)
	@mypy .

layers: $(STAMP)
	@lint-imports --no-cache

# In its own environment, like audit
mutants: $(STAMP)
	@[ -x var/mutants/venv/bin/cosmic-ray ] || { python -m venv var/mutants/venv && \
		var/mutants/venv/bin/pip install --quiet --disable-pip-version-check $(COSMIC_RAY); }
	@python -m benchmarks.mutants

# In its own environment, since the site does not need its packages. Low severity is what ruff checks.
audit:
	@[ -x var/audit/bin/bandit ] || { $(PYTHON) -m venv var/audit && \
		var/audit/bin/pip install --quiet --disable-pip-version-check $(AUDITORS); }
	@var/audit/bin/bandit --quiet -ll --exclude '*/tests/*' --recursive engine analyses memorymark_site demo manage.py
	@var/audit/bin/pip-audit --requirement requirements.txt --no-deps --disable-pip

# All but torch, whose builds for CUDA and for the CPU have the same version and other hashes
lock:
	@[ -x var/lock/bin/uv ] || { $(PYTHON) -m venv var/lock && \
		var/lock/bin/pip install --quiet --disable-pip-version-check $(UV); }
	@var/lock/bin/uv pip compile --quiet --no-header --no-annotate --no-deps --universal --generate-hashes \
		--python-version 3.11 --no-emit-package torch --output-file requirements.lock requirements.txt

# In its own environment, like audit; the wheel is built from the source distribution.
dist:
	@[ -x var/dist/bin/pyproject-build ] || { $(PYTHON) -m venv var/dist && \
		var/dist/bin/pip install --quiet --disable-pip-version-check $(BUILD); }
	@rm -rf dist/*.whl dist/*.tar.gz
	@var/dist/bin/pyproject-build --quiet --outdir dist

# In its own environment too. Written the same each time, so that two releases can be compared.
sbom: $(STAMP)
	@[ -x var/sbom/bin/cyclonedx-py ] || { python -m venv var/sbom && \
		var/sbom/bin/pip install --quiet --disable-pip-version-check $(CYCLONEDX); }
	@mkdir -p dist
	@var/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file dist/memorymark.cdx.json $(VENV)

format: $(STAMP)
	@ruff check --fix .
	@ruff format .

openapi: $(STAMP)
	@python manage.py spectacular --validate --fail-on-warn --file docs/openapi.yaml

install: $(STAMP)

$(STAMP): requirements.txt requirements.lock
	@if [ -z '$(PYTHON)' ]; then \
		echo 'Python 3.11 or newer is needed and was not found.' >&2; \
		echo 'Install it (Debian/Ubuntu: apt install python3 python3-venv; macOS: brew install python),' >&2; \
		echo 'or choose one: make $(MAKECMDGOALS) PYTHON=/path/to/python3' >&2; exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo '$(PYTHON) does not run or is older than 3.11; choose another: PYTHON=python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo '$(PYTHON) lacks the venv module (Debian/Ubuntu: apt install python3-venv)' >&2; exit 1; }
	@$(VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo 'Installing the requirements into $(VENV); the first time takes a few minutes ...'
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --require-hashes -r requirements.lock
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

port:
	@p='$(PYTHON)'; [ ! -x $(VENV)/bin/python ] || p=$(VENV)/bin/python; \
		[ -z "$$p" ] || $$p memorymark_site/port.py '$(HOST)' '$(PORT)'

clean:
	@rm -rf $(VENV) build dist *.egg-info staticfiles .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
