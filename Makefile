# Everything a checkout can do. `make` alone lists it. Needs Python 3.11 or later and make, nothing else.

PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# As a folder on the path: Spark lists modules named pyspark_*, and the default way of setuptools hides ours from lists.
EDITABLE := --config-settings editable_mode=compat --editable
CACHE := .cache
# The folders to which rmqtx/ links are named too: compileall follows no links.
PACKAGES := readers verdicts remoting repairs spark_tasks rmqtx rmqtx_cli pyspark_rmqtx.py
# One more than there are processors, for some tests wait; two more for tests with brokers, which wait for a third of
# their time.
TEST_PROCESSES ?= $$($(BIN)/python -c 'import os; print(min(4, (os.cpu_count() or 1) + 1))')
STARTED_PROCESSES ?= $$($(BIN)/python -c 'import os; print(min(4, (os.cpu_count() or 1) + 2))')
# The folders of all tests that start a broker: collecting the others takes 20 core-seconds in each process.
BROKER_TESTS := tests/api tests/brokers
# Also where it is set: pytest writes the modules of tests as it changes them, or each process changes all of them again.
export PYTHONDONTWRITEBYTECODE :=
DEMO := $(CACHE)/demo
EXAMPLE := examples/orders-5.3.3.tar.xz
# Two hours after the broker of the example stopped: its transactions are older than fileReservedTime today.
DEMO_AT := 2026-11-21T08:15:00Z

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: install
install: $(INSTALLED) ## make .venv with rmqtx and the tools for its development

$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or later is here; install one, or say make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1), rmqtx needs Python 3.11 or later" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "make: $(PYTHON) lacks venv or ensurepip; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing rmqtx and its tools into $(VENV)" >&2
	@$(PIP) $(EDITABLE) '.[dev,fast,rocksdb,spark,connect]' 2>/dev/null || \
		{ echo "make: without the accelerator (no numba for this Python); its tests will be skipped" >&2; \
		$(PIP) $(EDITABLE) '.[dev,rocksdb,spark]'; } || \
		{ echo "make: without RocksDB (no rocksdict for this Python); its tests will be skipped" >&2; \
		$(PIP) $(EDITABLE) '.[dev,spark]'; } || \
		{ echo "make: pip cannot install; it needs a package index (PIP_INDEX_URL, or a proxy) the first time" >&2; exit 1; }
	@$(BIN)/python -m rmqtx.spark_tasks.session.java >/dev/null 2>&1 || \
		{ echo "installing a Java for Spark into $(VENV), as none of 17 or later is here" >&2; \
		$(PIP) $(EDITABLE) '.[java]' && $(BIN)/python -m rmqtx.spark_tasks.session.java >/dev/null; } || \
		{ echo "make: without Java; the tests that need Spark will fail" >&2; }
	@touch $@

$(DEMO)/store: $(EXAMPLE)
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	@tar -xJf $(EXAMPLE) -C $(DEMO) 2>/dev/null || $(PYTHON) -c "import tarfile; tarfile.open('$(EXAMPLE)').extractall('$(DEMO)', filter='data')"
	@touch $@

.PHONY: demo
demo: compiled $(DEMO)/store ## the pending transactions of a store that a real broker wrote, and one transaction in full
	@echo '$$ rmqtx pending $(DEMO)/store --at $(DEMO_AT)   # as if its broker started then'
	@$(BIN)/rmqtx pending $(DEMO)/store --at $(DEMO_AT)
	@echo
	@id=$$($(BIN)/rmqtx pending $(DEMO)/store --at $(DEMO_AT) --quiet --sort checks --limit 1 --format csv --fields transaction_id | tail -1); \
		echo "\$$ rmqtx show $$id --store $(DEMO)/store --at $(DEMO_AT)"; $(BIN)/rmqtx show $$id --store $(DEMO)/store --at $(DEMO_AT)

# Also where PYTHONDONTWRITEBYTECODE is set: a command imports 170 modules, and compiling them takes as long as all else.
.PHONY: compiled
compiled: $(INSTALLED)
	@$(BIN)/python -m compileall -q $(PACKAGES)

.PHONY: test
test: compiled ## the tests, in up to 4 processes; needs neither broker nor network
	@$(BIN)/python -m pytest tests -m "not slow and not broker and not deep" --numprocesses $(TEST_PROCESSES) --dist loadfile

.PHONY: test-slow
test-slow: compiled ## what `make test` leaves out: other stores of the corpus, more seeds, JVMs, brokers where Maven is
	@$(BIN)/python -m pytest tests -m "(slow or broker) and not deep" --numprocesses $(TEST_PROCESSES) --dist loadfile

.PHONY: test-started
test-started: compiled ## the tests that start a broker of one release (Maven and a JDK), and one of Spark's streams, part of .ci/run; test-brokers starts all releases
	@$(BIN)/python -m pytest $(BROKER_TESTS) tests/spark/test_verdict_changes.py -m "(broker or started) and not deep" --numprocesses $(STARTED_PROCESSES) --dist loadfile

.PHONY: test-deep
test-deep: compiled ## more of the same: damage of every byte, kills at every moment, every store with every table (half an hour)
	@$(BIN)/python -m pytest tests -m deep --numprocesses $(TEST_PROCESSES) --dist loadfile

.PHONY: lint
lint: $(INSTALLED) ## ruff
	@$(BIN)/ruff check .

.PHONY: types
types: $(INSTALLED) ## mypy --strict
	@$(BIN)/mypy

.PHONY: contracts
contracts: $(INSTALLED) ## which package and which folder may import which, and that each stands in a contract
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -q tests/test_contracts.py

.PHONY: man
man: $(INSTALLED) ## write the manual pages, docs/tables.md, docs/paths.md, docs/causes.md, docs/broker_logs.md, docs/monitoring.md, docs/api_reference.md and the diagrams of docs/formats again, from the commands and the declarations
	@$(BIN)/python -m tests.pages.manual man
	@$(BIN)/python -m tests.pages.schema_page docs/tables.md
	@$(BIN)/python -m tests.pages.list_pages docs
	@$(BIN)/python -m tests.pages.monitoring_pages docs/monitoring.md
	@$(BIN)/python -m tests.pages.formats_page docs/formats
	@$(BIN)/python -m tests.pages.api_page docs/api_reference.md

.PHONY: causes
causes: $(INSTALLED) ## count the causes in the stores of the corpus again, in docs/causes_seen.md
	@$(BIN)/python -m tests.verdicts.causes docs/causes_seen.md

.PHONY: site
site: $(INSTALLED) ## build the documentation site from docs/ into .cache/site; links are checked
	@test -x $(BIN)/mkdocs || $(PIP) $(EDITABLE) '.[docs]' || \
		{ echo "make: pip cannot install MkDocs; it needs a package index the first time" >&2; exit 1; }
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file deploy/mkdocs.yml
	@echo "the site is $(CACHE)/site/index.html"

.PHONY: rewrite
rewrite: $(INSTALLED) ## write the transcripts, docs/generations.md, the README's session and the table of verdicts again; review the diff
	@$(BIN)/python -m pytest -q tests/cli/test_transcripts.py tests/cli/test_generations.py tests/verdicts/transactions/test_verdict_table.py --rewrite

.PHONY: fuzz
fuzz: $(INSTALLED) ## damage real stores in all ways, ask everything: the tables of docs/fuzz.md (FUZZ_SECONDS, _SEGMENTS, _RECORDS, _FILES, _HEEDED, _AGREEMENT, _CASES)
	@status=0; \
	$(BIN)/python -m tests.fuzz --seconds $${FUZZ_SECONDS:-600} || status=1; \
	$(BIN)/python -m tests.fuzz.campaign_run segments --cases $${FUZZ_SEGMENTS:-2000} --seed $${FUZZ_SEED:-0} --page || status=1; \
	$(BIN)/python -m tests.fuzz.campaign_run records --cases $${FUZZ_RECORDS:-10000} --seed $${FUZZ_SEED:-0} --page || status=1; \
	$(BIN)/python -m tests.fuzz.campaign_run files --cases $${FUZZ_FILES:-5000} --seed $${FUZZ_SEED:-0} --page || status=1; \
	$(BIN)/python -m tests.fuzz.campaign_run heeded-segments --cases $${FUZZ_HEEDED:-1000} --seed $${FUZZ_SEED:-0} --page || status=1; \
	$(BIN)/python -m tests.fuzz.campaign_run agreement --cases $${FUZZ_AGREEMENT:-1000} --seed $${FUZZ_SEED:-0} --page || status=1; \
	$(BIN)/python -m tests.fuzz.matrix_run --cases $${FUZZ_CASES:-10000} --page || status=1; \
	exit $$status

.PHONY: guided
guided: compiled ## fuzz decoders guided by coverage (atheris), TARGETS (all) for SECONDS_EACH (120); KEEP=1 adds inputs to tests/guided/corpora
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(PIP) 'atheris>=3' || \
		{ echo "make: pip cannot install atheris; it needs a package index, and Python 3.11 to 3.13" >&2; exit 1; }
	@$(BIN)/python -m tests.guided $${TARGETS:-} --seconds $${SECONDS_EACH:-120} --seed $${SEED:-1} $${KEEP:+--keep}

.PHONY: machines
machines: compiled ## state machines: acts with undo, following audits, growing tables, the exporter; STEPS (2000) of each
	@RMQTX_MACHINE_STEPS=$${STEPS:-2000} $(BIN)/python -m pytest -q tests/machines --timeout 0

.PHONY: corpus
corpus: $(INSTALLED) ## have real brokers write the test stores again (Maven, a JDK, an hour)
	@$(BIN)/python -m tests.brokers corpus

.PHONY: test-brokers
test-brokers: $(INSTALLED) ## tests that start real brokers (Maven and a JDK)
	@RMQTX_BROKER_VERSIONS="$${RMQTX_BROKER_VERSIONS:-4.3.0 4.4.0 4.9.7 5.1.4 5.3.3 5.5.0}" \
		RMQTX_OLD_BROKER_VERSIONS="$${RMQTX_OLD_BROKER_VERSIONS:-3.1.4 3.2.6 4.2.0}" \
		RMQTX_ROCKSDB_VERSIONS="$${RMQTX_ROCKSDB_VERSIONS:-5.4.0 5.5.0}" RMQTX_TABLE_SERVERS=1 \
		$(BIN)/python -m pytest tests -m broker

.PHONY: test-forcing
test-forcing: $(INSTALLED) ## force transactions on real brokers: guards, faults, races (an hour), into docs/forcing.md
	@RMQTX_FORCING=1 RMQTX_BROKER_VERSIONS="$${RMQTX_BROKER_VERSIONS:-4.4.0 4.9.7 5.1.4 5.3.3 5.5.0}" \
		$(BIN)/python -m pytest tests/brokers/forcing tests/brokers/test_stand_in.py
	@$(BIN)/python -m tests.brokers.forcing

.PHONY: redeliveries
redeliveries: $(INSTALLED) ## kill redeliveries on real brokers, KILLS (50) times a version, and let RACES (50) of them race with another decision: prints counts
	@$(BIN)/python -m tests.brokers.forcing.redeliveries --kills $${KILLS:-50} --races $${RACES:-50} \
		--versions $${RMQTX_BROKER_VERSIONS:-4.9.7 5.1.4 5.3.3 5.5.0}

.PHONY: drains
drains: $(INSTALLED) ## stop real brokers under load, STOPS (20) times with rmqtx drain and TWINS (5) times without, and count: docs/drains.md
	@$(BIN)/python -m tests.brokers.forcing.stops --stops $(or $(STOPS),20) --twins $(or $(TWINS),5) --page docs/drains.md \
		$${RMQTX_BROKER_VERSIONS:-4.4.0 4.9.7 5.1.4 5.3.3 5.5.0}

.PHONY: test-crashes
test-crashes: $(INSTALLED) ## crashes at every write, rename and sync of changes in place; brokers on what they leave (an hour)
	@RMQTX_CRASHES=1 $(BIN)/python -m pytest tests/repairs/test_crashes.py tests/repairs/test_apply_crashes.py \
		tests/repairs/test_apply_processes.py tests/brokers/test_half_changed.py

.PHONY: test-kills
test-kills: $(INSTALLED) ## kill acts by SIGKILL at random, KILLS (200) times, on every design of transactions; SEED repeats the acts, not the moments
	@$(BIN)/python -m tests.kills --kills $${KILLS:-200} $${SEED:+--seed $$SEED}

.PHONY: pipeline-kills
pipeline-kills: $(INSTALLED) ## kill runs of deploy/spark/pipeline at drawn moments, KILLS (50) times from SEED on, and compare its tables (pyspark[pipelines]; a minute a kill)
	@$(BIN)/python -m tests.spark.pipeline_kills --kills $${KILLS:-50} --seed $${SEED:-1}

.PHONY: test-salvage
test-salvage: $(INSTALLED) ## damage every store of the corpus in every way that salvage is for: what is judged as before?
	@RMQTX_SALVAGE=1 $(BIN)/python -m pytest -q tests/repairs/test_salvage_matrix.py

.PHONY: test-starts
test-starts: $(INSTALLED) ## start real brokers on damaged stores: did they do what verify predicted? (half an hour), into docs/starts.md
	@$(BIN)/python -m tests.brokers.starts

.PHONY: mutants
mutants: compiled ## put faults into a copy, COUNT (50) of FOLDER (or of the files that differ from main) by SEED: is each found by a test? docs/mutants.md
	@$(BIN)/python -m tests.mutants $${FOLDER:+--folder $${FOLDER}} --count $${COUNT:-50} $${SEED:+--seed $${SEED}} $${PAGE:+--page}

.PHONY: wire
wire: compiled ## play SEEDS (1000) courses of acts on simulated brokers from SEED on: faults, kills, races; ACT, PROCESSES, PLANTED, PAGE=1: docs/wire.md
	@$(BIN)/python -m tests.wire --seeds $${SEEDS:-1000} --seed $${SEED:-0} --processes $${PROCESSES:-2} $${ACT:+--act $${ACT}} $${PLANTED:+--planted $${PLANTED}} $${PAGE:+--page}

.PHONY: histories
histories: $(INSTALLED) ## play histories on the brokers' own classes, and compare: HISTORIES (100) of each of RELEASES from SEED on; KEEP is a directory for those that differ
	@$(BIN)/python -m tests.histories --histories $${HISTORIES:-100} --seed $${SEED:-0} $${RELEASES:+--releases $${RELEASES}} $${KEEP:+--keep $${KEEP}}

.PHONY: traces
traces: $(INSTALLED) ## let producers with message trace lose decisions to a proxy, and compare: COUNT (75) transactions of each release from SEED on; the table of docs/formats/traces.md
	@$(BIN)/python -m tests.brokers.traced --count $${COUNT:-75} --seed $${SEED:-36} --page

.PHONY: model
model: $(INSTALLED) ## audit the ends of bounded worlds of a small model, and play HISTORIES (30) of each on the brokers' own classes; STORES is the maximum of each world
	@$(BIN)/python -m tests.model --histories $${HISTORIES:-30} --seed $${SEED:-0} $${STORES:+--stores $${STORES}} $${RELEASES:+--releases $${RELEASES}}

.PHONY: benchmark
benchmark: $(INSTALLED) ## measure against RocketMQ's own tools, into docs/performance.md
	@$(BIN)/python -m benchmarks.report --stores $${BENCHMARK_STORES:-$(CACHE)/benchmarks}

.PHONY: benchmark-spark
benchmark-spark: $(INSTALLED) ## measure Spark against one plain process and the local engine, into docs/performance_spark.md
	@$(BIN)/python -m benchmarks.report --stores $${BENCHMARK_STORES:-$(CACHE)/benchmarks} --only spark,sparkaudit,sparkshares --output docs/performance_spark.md

.PHONY: benchmark-quick
benchmark-quick: $(INSTALLED) ## measure the ratios that a slower commit changes (three minutes, 700 MB), a row in docs/benchmark_quick.md
	@$(BIN)/python -m benchmarks.quick --stores $${BENCHMARK_STORES:-$(CACHE)/benchmarks}

.PHONY: test-lowest
test-lowest: ## tests of readers, rules and commands with the lowest versions of all dependencies (Python 3.11)
	@rm -rf $(CACHE)/lowest && $(PYTHON) -m venv $(CACHE)/lowest && $(CACHE)/lowest/bin/pip install --quiet uv
	@$(CACHE)/lowest/bin/uv pip install --quiet --python $(CACHE)/lowest/bin/python --resolution lowest-direct '.[exporter,rocksdb]'
	@rm -rf build  # a later build would take modules from it that no longer exist
	@$(CACHE)/lowest/bin/uv pip freeze --quiet --exclude rmqtx --python $(CACHE)/lowest/bin/python >$(CACHE)/lowest/versions
	@$(CACHE)/lowest/bin/uv pip install --quiet --constraint $(CACHE)/lowest/versions --python $(CACHE)/lowest/bin/python pytest hypothesis pytest-timeout pytest-xdist 'moto[server]' sqlalchemy pymysql
	@PYTHONPATH=. $(CACHE)/lowest/bin/python -m pytest tests/readers tests/field tests/verdicts tests/cli/test_help.py tests/cli/test_report_parts.py tests/cli/test_nearby_store.py -m "not slow and not broker and not deep" --numprocesses 2 --dist loadfile

.PHONY: dist
dist: ## build sdist, wheel with its bill of materials, locks and wheels for hosts without a network, twice, and compare them: dist/
	@rm -rf dist && $(PYTHON) deploy/release/build.py dist --wheelhouse

.PHONY: candidate
candidate: ## make and check a release candidate VERSION (1.0.0rc1) from a clean clone: dist/candidate/; nothing is published
	@rm -rf dist/candidate && $(PYTHON) deploy/release/candidate.py $${VERSION:-1.0.0rc1} dist/candidate

include deploy/release/packages.mk

.PHONY: clean
clean: ## remove what the other targets made
	@rm -rf $(VENV) $(CACHE) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
