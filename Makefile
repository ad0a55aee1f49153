# tarry: `make demo` shows it at work, `make test` proves it. Both set up what they need first.
PYTHON ?= python3
BIN    := .venv/bin

.PHONY: demo shop test bench lint setup servers lock docs screenshots soak chaos mutants console-soak
.DEFAULT_GOAL := test

setup: .venv/.current

# What tarry itself needs, of the locked set: the demo is not to wait for Django and type checkers.
BASE := apsw|cronsim|msgspec|tqdm|tzdata

# Made anew when the locked set changes; nothing to do otherwise.
.venv/.base: requirements.lock pyproject.toml
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
	$(BIN)/python -m tests.lua_scripts

# The servers that tests start by themselves: installed where that may be done, else their tests are skipped.
servers: setup
	$(BIN)/python -m tests.servers.install

# Four at a time also on two cores, since most tests wait: for a process to start, for a lease to end.
test: lint servers
	$(BIN)/pytest --numprocesses 4 --dist worksteal

bench: setup
	$(BIN)/python -m bench

soak: setup
	for run in $$(seq 20); do $(BIN)/python -m tarry demo --quiet || exit 1; done
	$(BIN)/pytest -m soak --timeout 600

# The console of a store with a million jobs, on SQLite and on Redis: the time of each page, the drain beside it, the
# first paint. It prints a table.
console-soak: servers
	$(BIN)/pytest -m soak --timeout 900 --capture=no tests/door/console/large

# Sentinels and clusters of servers that die and move their slots under load. Flows whose process is killed at every call
# of the store: alone by `pytest -m chaos tests/system/test_flow_crash.py`.
chaos: servers
	$(BIN)/pytest -m chaos

# Puts a hundred small mistakes into copies of the code, one at a time: do the tests see each? Half an hour and more.
mutants: servers
	nice $(BIN)/python -m tests.mutants

docs: setup
	$(BIN)/python -m tests.lifecycle_page

# The pictures of docs/images, by Chromium, of a real master.
screenshots: servers
	$(BIN)/python -m tests.door.console.browser.screenshots

# Writes the locked set again from pyproject.toml, with the hashes of all its files, in an environment of its own. What
# is in it stays as it is where it may: remove a line, or the file, to have newer versions.
lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet pip-tools
	printf 'hatchling\neditables\n' > build/lock/build.in
	build/lock/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --extra all --extra dev \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		--output-file requirements.lock pyproject.toml build/lock/build.in
