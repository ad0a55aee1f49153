# tarry: `make demo` shows it at work, `make test` proves it. Both set up what they need first.
PYTHON ?= python3
BIN    := .venv/bin
# The moment of the last commit: what is built from it says the same whenever it is built.
EPOCH   = $(shell git log -1 --format=%ct 2>/dev/null || echo 1577836800)

.PHONY: demo shop test pytest bench lint setup servers lock docs dist surface test-pythons screenshots soak storm chaos mutants console-soak test-django6 test-deep kill-points exhaustive simulate release-check docs-version ratio
.DEFAULT_GOAL := test
# Tests start Python thousands of times: without its caches each start compiles all of tarry anew, and takes twice the time.
unexport PYTHONDONTWRITEBYTECODE

setup: .venv/.current

# What tarry itself needs, of the locked set: the demo is not to wait for Django and type checkers.
BASE := apsw|cronsim|msgspec|tqdm|tzdata$(if $(filter-out Linux,$(shell uname)),|psutil)

# Made anew when the locked set changes; nothing to do otherwise.
.venv/.base: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tarry needs Python 3.11 or newer, and $(PYTHON) is %d.%d: name another, as in make demo PYTHON=python3.12" % sys.version_info[:2])'
	$(PYTHON) -m venv .venv
	mkdir -p build
	awk '/^[^ ]/ { wanted = /^($(BASE))==/ } wanted' requirements.lock > build/base.lock
	$(BIN)/pip install --quiet --require-hashes --requirement build/base.lock
	$(BIN)/pip install --quiet --no-deps --editable .
	@touch $@

.venv/.current: .venv/.base
	$(BIN)/pip install --quiet --require-hashes --requirement requirements.lock
	@touch $@

demo: .venv/.base
	$(BIN)/python -m tarry demo

# The four stories of examples/shop, in twenty seconds.
shop: setup
	$(BIN)/python -m examples.shop

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@mkdir -p build/starter && cp tarry/cli/project/starters/fastapi/*.py build/starter
	cd build/starter && $(CURDIR)/$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache app.py web.py
	$(BIN)/python -m tests.lua_scripts

# The servers that tests start by themselves: installed where that may be done, else their tests are skipped.
servers: setup
	$(BIN)/python -m tests.servers.install

# Four at a time also on two cores, since many tests wait: for a process to start, for a lease to end. Six keep each other
# waiting: 40 minutes and 64 of CPU time, for 30 and 50 with four. Types are checked meanwhile.
PROCESSES ?= 4
test: servers
	@$(MAKE) --no-print-directory --jobs 2 lint pytest

pytest: servers
	$(BIN)/pytest --numprocesses $(PROCESSES) --dist worksteal

# The tests of the backend for Django's tasks, on Django 6, which needs Python 3.12. The lock has Django 5.2.
PYTHON312 ?= $(shell for one in python3.12 $(HOME)/.pyenv/versions/3.12.*/bin/python; do \
	$$one -c 0 2> /dev/null && command -v $$one && break; done)
test-django6: servers
	@if test -z "$(PYTHON312)"; then echo "skipped: Django 6 needs Python 3.12; name one by PYTHON312="; exit 0; fi; \
	set -e; test -x build/django6/bin/pytest || { $(PYTHON312) -m venv build/django6; \
	build/django6/bin/pip install --quiet "django>=6.0,<7" pytest pytest-timeout pytest-xdist pytest-asyncio hypothesis \
		--editable ".[mysql,postgres,redis]"; }; \
	version=$$(build/django6/bin/python -c "import django; print(django.__version__)"); own=$(CURDIR)/build/django6/django; \
	test -d $$own || { build/django6/bin/pip download --quiet --no-deps --no-binary :all: django==$$version -d build/django6; \
	mkdir -p $$own.part; tar -xzf build/django6/django-$$version.tar.gz -C $$own.part --strip-components=1 \
		django-$$version/tests/tasks; mv $$own.part $$own; }; \
	DJANGO_TESTS=$$own/tests build/django6/bin/pytest -p no:cacheprovider tests/django

bench: setup
	$(BIN)/python -m bench

# Is this tree slower than another revision? Both in turn, in the same minutes.
AGAINST ?= origin/main
ratio: setup
	@$(BIN)/python -m bench.ratio $(AGAINST)

# A seed that fails is shrunk and printed: `make simulate SEEDS=1000 FIRST=1`.
SEEDS ?= 1000
FIRST ?= 1
simulate: setup
	$(BIN)/python -m tests.simulation --first $(FIRST) --seeds $(SEEDS)

# All features at once on one store for hours, amid troubles; what rises is found. STORE: sqlite, shards, redis, postgres,
# mariadb.
HOURS ?= 1
STORE ?= sqlite
soak: servers
	TEST_SEED=$(SEED) nice $(BIN)/python -m tests.soak $(STORE) --hours $(HOURS)

# The demo twenty times, then the long tests: a minute and more of everything at once, amid kills, on each store.
storm: setup
	for run in $$(seq 20); do $(BIN)/python -m tarry demo --quiet || exit 1; done
	TEST_SEED=$(SEED) $(BIN)/pytest -m soak --timeout 600

# First what `make test` leaves out. Then every test that draws examples or random numbers, in rounds with new seeds; a case
# that fails is shrunk. CONTRIBUTING.md says how to keep it as a test. A round is made again by
# `make test-deep ROUNDS=1 SEED=...`.
ROUNDS ?= 5
SEED ?= $(shell date +%s)
test-deep: servers
	$(BIN)/pytest --numprocesses 4 --dist worksteal -m deep
	@set -e; for round in $$(seq 0 $$(($(ROUNDS) - 1))); do seed=$$(($(SEED) + round)); echo "SEED=$$seed"; \
	TEST_SEED=$$seed $(BIN)/pytest --numprocesses 4 --dist worksteal --timeout 900 -m '(hypothesis or seeded) and not soak and not chaos' \
		--hypothesis-profile deep --hypothesis-seed $$seed || { echo "SEED=$$seed failed: see Random tests in CONTRIBUTING.md"; \
		exit 1; }; done

# The console of a store with a million jobs, on SQLite and on Redis: the time of each page, the drain beside it, the
# first paint. It prints a table.
console-soak: servers
	$(BIN)/pytest -m soak --timeout 900 --capture=no tests/server/console/large

# Sentinels and clusters of servers that die and move their slots under load. Flows whose process is killed at every call
# of the store: alone by `pytest -m chaos tests/system/test_flow_crash.py`.
chaos: servers
	$(BIN)/pytest -m chaos

# A process is killed at each of its system calls that reach out, one after the other; then each fails. SAMPLE=50 tries so
# many of each kind; ARGS="--story file" a part of it.
kill-points: servers
	nice $(BIN)/python -m tests.kill_points $(if $(SAMPLE),--sample $(SAMPLE)) $(ARGS)

# The rules of jobs and flows, run through every order of events, deeper than `make test` does. It prints a table.
exhaustive: setup
	nice $(BIN)/python -m tests.exhaustive --deep

# Puts a hundred small mistakes into copies of the code, one at a time: do the tests see each? Half an hour and more.
mutants: servers
	nice $(BIN)/python -m tests.mutants

# A stranger's checklist; what cannot run on this machine is printed. NAMES="chart sdist" takes a part.
release-check: servers
	$(BIN)/python -m tests.release $(NAMES)

# Wheel and sdist in dist/. Built twice, once from the sdist and once from the tree, they are the same bytes. The list of
# what the base install brings (CycloneDX) is in build/sbom.json: beside the files that are uploaded, not among them.
dist: setup
	rm -rf dist build/again
	mkdir -p build/again
	awk '/^[^ ]/ { wanted = /^($(BASE))==/ } wanted' requirements.lock > build/base.lock
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python -m build --no-isolation --outdir dist > build/dist.log
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python -m build --no-isolation --sdist --wheel --outdir build/again >> build/dist.log
	cd dist && for file in *; do cmp $$file ../build/again/$$file || exit 1; done
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/cyclonedx-py requirements build/base.lock --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json
	@ls -l dist

# The tests that need no server, on each Python that tarry supports and that is here; PYTHONS="3.12 3.13" takes these.
PYTHONS ?= 3.11 3.12 3.13 3.14
test-pythons:
	$(PYTHON) tests/pythons.py $(PYTHONS)

# The public surface of the package, which tests/test_surface.py compares, and the formats that versions read of each
# other.
surface: setup
	$(BIN)/python -m tests.surface
	$(BIN)/python -m tests.formats

# docs/lifecycle.md from the code, and then the site in build/site: files for any web server. Links and anchors are
# checked, and a warning is an error (not with --quiet, which hides warnings from that check, too).
docs: setup
	$(BIN)/python -m tests.lifecycle_page
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "build/site: $(BIN)/python -m http.server --directory build/site"

# The site as a version of its own on the branch gh-pages, which is pushed: `dev`, or on a tag (v0.2.0) `0.2`, which is then
# `latest`, too. REMOTE= keeps it here.
REMOTE ?= --push
TAG     = $(shell git describe --exact-match --tags --match 'v*' 2>/dev/null)
docs-version: setup
	NO_MKDOCS_2_WARNING=1 PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/mike deploy $(REMOTE) $(if $(TAG),--update-aliases $(basename $(TAG:v%=%)) latest,dev)
	$(BIN)/mike set-default $(REMOTE) $(if $(TAG),latest,$(shell $(BIN)/mike list latest > /dev/null 2>&1 && echo latest || echo dev))

# The pictures of docs/images, of a real master, by Chromium; `tarry top` by a terminal.
screenshots: servers
	$(BIN)/python -m tests.server.console.browser.screenshots
	$(BIN)/python -m tests.cli.top_picture

# Writes the locked set again from pyproject.toml, with the hashes of all its files, in an environment of its own. What
# is in it stays as it is where it may: remove a line, or the file, to have newer versions.
lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet pip-tools
	printf 'hatchling\nhatch-vcs\neditables\n' > build/lock/build.in
	build/lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --extra all --extra dev \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		--output-file requirements.lock pyproject.toml build/lock/build.in
