# Every command of the project, thin. `make help` lists them; `.ci/run` calls the same ones.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
SHELL := /bin/sh

# The extension that `serve`, `test` and `check` use: `release` (what users get), `ci` (optimised only in what a message
# passes) or `dev` (quick).
PROFILE ?= release
# What the extension has beside that: `kafka`, which takes a C++ compiler, and minutes the first time.
FEATURES ?=
# Arguments of `make serve`, `make pytest`, `make bench`, `make bench-broker`, `make tree-report`.
ARGS ?=
# Length of `make fuzz`, a target, of `make soak` and of `make soak-pipeline`.
SECONDS ?= 60
SOAK_SECONDS ?= $(if $(MINUTES),$(shell echo $$((60 * $(MINUTES)))),120)
RATE ?= 100
SOAK_CLIENTS ?= 2000
# Runs of a broker in `make crash`, `make powercut` and `make powercut-process`, and which ones.
CYCLES ?= 1000
SEED ?= 1

# Preemptions that `make loom` explores.
PREEMPTIONS ?= 4
# Schedules of each kind, random and PCT, that `make shuttle` draws.
SCHEDULES ?= 20000
# Seeds of `make miri`, and what it runs.
SEEDS ?= 4
MIRI_TESTS ?= --lib --test threads --test histories --test heap --test bad_input
# Tests of `make asan`: what crosses the border between Python and Rust.
ASAN_TESTS ?= tests/abuse/test_k_python.py $(addprefix tests/unit/test_,broker.py plugins.py plugins_packets.py \
	plugins_publish.py plugins_invalidate.py packets.py store.py directory.py topics.py stream_reader.py hashing.py passwords.py)
ASAN_FEATURES ?=
# Those that the build without streams and HTTP has.
ASAN_MQTT_TESTS := tests/unit/test_mqtt_only.py $(filter-out %/test_stream_reader.py,$(ASAN_TESTS))
# Length of `make model`.
STEPS ?= 10000
# Times that `make diskfull` fills a disk; its CYCLES are others than those of `make powercut`.
FULL_CYCLES := $(if $(filter file,$(origin CYCLES)),8,$(CYCLES))
# Length and writers of `make stress`; its CYCLES are others than those of `make powercut`.
STRESS_CYCLES := $(if $(filter file,$(origin CYCLES)),1000000,$(CYCLES))
THREADS ?= 4
# Kills of `make spark-crash`, `make tier` and `make kafka`.
KILLS ?= 20
# Nodes of Kafka that `make kafka` measures instead of its tests.
NODES ?=
# Times that the object store is away in `make tier`.
OUTAGES ?= 5
# Random operations of `make explain-test`.
OPERATIONS ?= 2000
# `make bench-spark`: how much data, and what goals compare, the wall or (on a busy machine) the CPU.
SCALE ?= full
BY ?= wall

PYTHON ?= $(firstword $(foreach name,python3 python3.11 python3.12 python3.13 python3.14,\
	$(shell $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
BIN := .venv/bin
EXTENSION := .make/extension-$(PROFILE)$(FEATURES:%=-%)
RUST_SOURCES := Cargo.toml Cargo.lock $(shell find rust -name '*.rs' -o -name Cargo.toml) $(shell find rust/http/page -type f)
# Crates that must stay free of sockets, runtimes and Python, dependencies included.
SANS_IO := codec slab topics panics publisher columnar session store tls
CARGO_DENY := 0.20.2
CARGO_MUTANTS := 27.1.0
MUTMUT := 3.8.1
PYRIGHT := 1.40.2
# A part of the Rust mutants of `make mutants`, as 0/8; and which Python ones, as `mqttcore.auth.scram*`.
SHARD ?= 0/1
MUTANTS ?=
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Folders of this machine, and what stands for them in a wheel.
REMAPPED := $(CURDIR)=/mqttcore $(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo
# Builds under another scheduler: optimised, but not as slowly as what is shipped.
MODEL_BUILD := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
# How many inputs proptest tries in a second of `make fuzz`, about.
CASES_A_SECOND := 5000

##@ Use
serve: build ## build, then run the broker on 127.0.0.1:1883 (ARGS="--listen 127.0.0.1:1884")
	@exec $(BIN)/python -m mqttcore.serve $(ARGS)

build: $(EXTENSION) ## build the extension into .venv (PROFILE=dev builds quicker, runs slower)

# Same bytes wherever it is built: the time is that of the commit, and no path of this machine is in it (ADR 0068).
wheel: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
wheel: export MQTTCORE_COMMIT ?= $(shell git rev-parse HEAD)
wheel: export RUSTFLAGS := $(strip $(RUSTFLAGS) $(REMAPPED:%=--remap-path-prefix=%))
wheel: export CFLAGS := $(strip $(CFLAGS) $(REMAPPED:%=-ffile-prefix-map=%))
wheel: export CXXFLAGS := $(strip $(CXXFLAGS) $(REMAPPED:%=-ffile-prefix-map=%))
wheel: .make/venv ## build a wheel and its provenance into .make/wheel (FEATURES=kafka; takes minutes the first time)
	@rm -rf .make/wheel
	@$(BIN)/maturin build --locked --profile $(PROFILE) $(FEATURES:%=--features %) --features tier \
		--target-dir $(TARGET)/wheel --out .make/wheel >.make/maturin.log 2>&1 || { cat .make/maturin.log; exit 1; }
	@$(PYTHON) -m tests.wheel_paths .make/wheel/*.whl $(CURDIR)
	@MATURIN=$(BIN)/maturin $(PYTHON) -m tests.provenance .make/wheel/*.whl --write "make wheel PROFILE=$(PROFILE) FEATURES=$(FEATURES)"
	@ls .make/wheel/*.whl

##@ Prove
# Beside the extension of .venv: its own package folder, found first.
mqtt-only: .make/tools .make/venv .make/dev ## build the extension without streams and HTTP into .make/mqtt-only, and test it
	@mkdir -p .make/mqtt-only
	@PYO3_BUILD_EXTENSION_MODULE=1 cargo build --quiet -p mqttcore-bindings --no-default-features $(CARGO_ARGS)
	@rm -rf .make/mqtt-only/mqttcore && cp -r python/mqttcore .make/mqtt-only/ && rm -f .make/mqtt-only/mqttcore/_core.*so
	@cp $(TARGET)/debug/lib_core.so .make/mqtt-only/mqttcore/_core.abi3.so
	@PYTHONPATH=$(CURDIR)/.make/mqtt-only $(BIN)/python -m pytest tests/unit/test_mqtt_only.py $(ARGS)

# The folders lie in this checkout, where git finds the commit. Each compiles all dependencies.
reproducible: .make/venv ## build the wheel of the last commit in two folders, and compare the bytes (takes minutes)
	@rm -rf .make/reproducible
	@for folder in a another-folder; do \
		mkdir -p .make/reproducible/$$folder || exit 1; \
		git archive HEAD | tar -x -C .make/reproducible/$$folder || exit 1; \
		env -u CARGO_TARGET_DIR $(MAKE) -C .make/reproducible/$$folder wheel BIN=$(CURDIR)/$(BIN) || exit 1; \
	done
	@$(PYTHON) -m tests.provenance --compare .make/reproducible/*/.make/wheel/*.whl
	@rm -rf .make/reproducible

test: pytest test-rust models ## all tests (-j2: in Rust and in Python side by side)

http-test: build .make/tools .make/dev ## test the HTTP API: routes and scopes, bad input, generated requests, pages of lists, changes after a crash
	@cargo test --quiet -p mqttcore-http --test suite api_ $(CARGO_ARGS)
	@MQTTCORE_REQUESTS=2000 $(BIN)/python -m pytest --quiet tests/operations/test_generated.py tests/operations/test_configuration.py \
		tests/operations/test_audit.py tests/operations/test_keys.py $(ARGS)

page-test: build .make/dev ## test the page for operators in Chromium (ARGS="-k login")
	@cargo test --quiet -p mqttcore-http --test suite page:: $(CARGO_ARGS)
	@MQTTCORE_SCREENSHOTS=$(CURDIR)/.make/screenshots $(BIN)/python -m pytest tests/page $(ARGS)

# OPERATIONS: random changes of clients, each with a message whose explanation is compared with what happens.
explain-test: .make/tools ## compare explanations of deliveries and permissions with the real results (OPERATIONS=100000)
	@cargo test --quiet -p mqttcore-session --test foresee $(CARGO_ARGS)
	@MQTTCORE_EXPLAIN_OPERATIONS=$(OPERATIONS) cargo test --quiet -p mqttcore-http --test suite explain:: $(CARGO_ARGS)

trace-test: build .make/tools .make/dev ## compare traces with the packets of clients; read pcapng files with tshark, if it is installed; count what other clients pay
	@cargo test --quiet -p mqttcore-broker --lib traces:: $(CARGO_ARGS)
	@cargo test --quiet -p mqttcore-broker --test memory $(CARGO_ARGS) -- counts
	@cargo test --quiet -p mqttcore-http traces:: $(CARGO_ARGS)
	@MQTTCORE_TRACED_AMONG=10000 $(BIN)/python -m pytest --quiet -rs -s tests/counts/test_trace.py $(ARGS)
	@$(BIN)/python -m pytest --quiet -rs tests/operations/test_traces.py tests/cli/test_trace.py $(ARGS)

test-rust: .make/tools
	@cargo test --workspace --quiet $(CARGO_ARGS)

# The bounded forms of what `make nightly` runs longer. They run for seconds, so less is optimised.
models: export CARGO_PROFILE_RELEASE_OPT_LEVEL = 1
models:
	@$(MAKE) loom PREEMPTIONS=3
	@$(MAKE) shuttle SCHEDULES=2000

pytest: build .make/dev .make/interop-python ## only the Python tests (ARGS="tests/unit -k config")
	@$(BIN)/python -m pytest $(ARGS)

check: lint-rust borders deny lint-python citations ## formatters, linters, types, stub, imports, licences, citations, rows of attacks

lint-rust: .make/tools
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --quiet $(CARGO_ARGS) -- -D warnings

lint-python: build .make/dev
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/python -m mypy.stubtest mqttcore._core

borders: .make/tools .make/dev ## check the imports between crates, modules of a crate, and Python packages
	@for crate in $(SANS_IO); do \
		found=$$(cargo tree -q -e normal --prefix none -p mqttcore-$$crate | grep -E '^(tokio|mio|pyo3) ' | head -n 1); \
		if [ -n "$$found" ]; then echo "borders: mqttcore-$$crate pulls in $$found" >&2; exit 1; fi; \
	done
	@no_crate() { \
		found=$$(cargo tree -q -e normal --prefix none -p mqttcore-$$1 | grep -E "^($$2)" | head -n 1); \
		if [ -n "$$found" ]; then echo "borders: mqttcore-$$1 pulls in $$found" >&2; return 1; fi; \
	}; \
	no_crate broker 'pyo3|arrow|parquet|hyper|http-body|rdkafka|mqttcore-(columnar|publisher|streams|http) ' \
		&& no_crate streams 'pyo3|hyper|http-body|mqttcore-http ' && no_crate http 'pyo3'
	@$(BIN)/python -m tests.modules --check
	@PYTHONPATH=python $(BIN)/lint-imports --no-logo >.make/borders.log || { cat .make/borders.log; exit 1; }

citations: .make/tools
	@$(PYTHON) -m tests.citations
	@$(PYTHON) -m tests.locking
	@$(PYTHON) -m tests.abuse.rows
	@$(PYTHON) -m tests.reference --check

deny: .make/tools
	@cargo deny --version >/dev/null 2>&1 || { \
		echo "make: cargo-deny is missing: cargo install --locked --debug cargo-deny@$(CARGO_DENY)" >&2; exit 1; }
	@cargo deny --locked --log-level error check --hide-inclusion-graph bans licenses sources
	@if [ -d "$${CARGO_HOME:-$$HOME/.cargo}/advisory-dbs" ]; then \
		cargo deny --locked --log-level error check --disable-fetch --hide-inclusion-graph advisories; \
	else echo "deny: advisories are skipped: their database is not on this machine (cargo deny fetch db)"; fi

fuzz: .make/tools ## fuzz packets, headers and store files, SECONDS=60 for each target (nightly Rust and cargo-fuzz, otherwise proptest)
	@if cargo +nightly fuzz --version >/dev/null 2>&1; then \
		$(PYTHON) fuzz/corpus.py write; \
		for target in $$(cargo +nightly fuzz list); do \
			cargo +nightly fuzz run $$target -- -max_total_time=$(SECONDS) || exit 1; \
		done; \
	else \
		echo "no nightly Rust with cargo-fuzz: the same bodies under proptest, with fixed seeds"; \
		PROPTEST_CASES=$$(($(SECONDS) * $(CASES_A_SECOND))) \
			cargo test --quiet -p mqttcore-codec --test fuzz_fixed_seeds; \
	fi

loom: .make/tools ## all interleavings of small histories of the directory, up to PREEMPTIONS=4
	@$(MODEL_BUILD) RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=$(PREEMPTIONS) \
		cargo test --release --quiet --target-dir $(TARGET)/loom -p mqttcore-topics --lib models::

shuttle: .make/tools ## SCHEDULES=20000 random schedules of longer histories of the directory
	@$(MODEL_BUILD) RUSTFLAGS="--cfg shuttle" SCHEDULES=$(SCHEDULES) \
		cargo test --release --quiet --target-dir $(TARGET)/shuttle -p mqttcore-topics --test shuttle

stress: .make/tools ## changes of the directory on real threads, each acknowledgement checked (CYCLES=100000000 THREADS=4)
	@cargo run --release --quiet -p mqttcore-benches --bin mqttcore-stress -- --cycles $(STRESS_CYCLES) --threads $(THREADS)

# Known traps: crossbeam-epoch needs tree borrows and casts integers to pointers; its global garbage and the threads'
# own lists are no leaks; the pool of blocks is off, or it would hide what is used after it was freed, but for its own tests.
miri: .make/tools ## unsafe code of the directory under Miri, SEEDS=4 schedules (needs nightly Rust)
	@if cargo +nightly miri --version >/dev/null 2>&1; then \
		for seed in $$(seq $(SEEDS)); do \
			echo "seed $$seed"; \
			MIRIFLAGS="-Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-ignore-leaks \
			-Zmiri-disable-isolation -Zmiri-seed=$$seed" cargo +nightly miri test --quiet --target-dir $(TARGET)/miri \
			-p mqttcore-topics $(MIRI_TESTS) || exit 1; \
		done; \
		echo "the slab allocator"; \
		export RUSTFLAGS="--cfg pooled" MIRIFLAGS="-Zmiri-permissive-provenance -Zmiri-ignore-leaks -Zmiri-disable-isolation"; \
		cargo +nightly miri test --quiet --target-dir $(TARGET)/miri -p mqttcore-slab --lib || exit 1; \
	else echo "no nightly Rust with Miri: rustup +nightly component add miri rust-src"; fi

# Python's own allocator hides what is used after it was freed, so `malloc` stands in; Python frees little at its exit.
# Reports go to files: pytest would keep those of its workers, and a test may expect that a program fails.
asan: .make/tools .make/dev ## Python tests with an AddressSanitizer build of the extension (needs nightly Rust and gcc's libasan)
	@runtime=$$(cc -print-file-name=libasan.so); \
	host=$$(rustc -vV | sed -n 's/^host: //p'); \
	if cargo +nightly --version >/dev/null 2>&1 && [ -e "$$runtime" ]; then \
		set -e; \
		RUSTFLAGS=-Zsanitizer=address PYO3_BUILD_EXTENSION_MODULE=1 CARGO_PROFILE_DEV_DEBUG=none \
			cargo +nightly build --quiet -p mqttcore-bindings $(ASAN_FEATURES) --target-dir $(TARGET)/asan --target $$host $(CARGO_ARGS); \
		mkdir -p .make/asan && rm -rf .make/asan/mqttcore && cp -r python/mqttcore .make/asan/; \
		rm -f .make/asan/mqttcore/_core.*so; \
		cp $(TARGET)/asan/$$host/debug/lib_core.so .make/asan/mqttcore/_core.abi3.so; \
		rm -f .make/asan/report.*; result=0; \
		LD_PRELOAD=$$runtime ASAN_OPTIONS=detect_leaks=0:log_path=$(CURDIR)/.make/asan/report \
			PYTHONMALLOC=malloc PYTHONPATH=$(CURDIR)/.make/asan $(BIN)/python -m pytest $(ASAN_TESTS) $(ARGS) || result=$$?; \
		if ls .make/asan/report.* >/dev/null 2>&1; then cat .make/asan/report.* >&2; result=1; fi; \
		exit $$result; \
	else echo "no nightly Rust, or no libasan.so of gcc: rustup toolchain install nightly"; fi

# Half the crates, so each change can afford it.
asan-mqtt-only: ## `make mqtt-only` with more tests, and under AddressSanitizer where `make asan` runs
	@if cargo +nightly --version >/dev/null 2>&1 && [ -e "$$(cc -print-file-name=libasan.so)" ]; then \
		$(MAKE) asan ASAN_FEATURES=--no-default-features ASAN_TESTS="$(ASAN_MQTT_TESTS)"; \
	else \
		echo "AddressSanitizer is left out: no nightly Rust, or no libasan.so of gcc"; \
		$(MAKE) mqtt-only; \
	fi

mutants: mutants-rust mutants-python ## mutation tests of codec, session, grants, auth, plugin, offsets (hours; SHARD=0/8): docs/proofs.md

mutants-rust: .make/tools
	@cargo mutants --version >/dev/null 2>&1 || { \
		echo "make: cargo-mutants is missing: cargo install --locked cargo-mutants@$(CARGO_MUTANTS)" >&2; exit 1; }
	@PROPTEST_CASES=16 PROPTEST_MAX_SHRINK_ITERS=0 nice cargo mutants --shard $(SHARD) --output .make/mutants-rust \
		--profile mutants --baseline skip --timeout 120 --package mqttcore-codec --package mqttcore-session -- --tests
	@nice cargo mutants --shard $(SHARD) --output .make/mutants-grants --profile mutants --baseline skip --timeout 120 \
		--package mqttcore-broker --file rust/broker/src/config/permissions.rs -- --lib permissions::

pyright: .make/pyright ## pyright over the examples of plugins, in which mypy finds nothing either
	@PYTHONPATH=.make/pyright $(BIN)/python -m basedpyright --pythonpath $(BIN)/python

# Mutmut names modules right only where their folder is called `src`, so it works in a copy.
mutants-python: build .make/dev .make/mutmut
	@rm -rf .make/mutants-python && mkdir -p .make/mutants-python
	@cp -r python .make/mutants-python/src && cp -r tests examples .make/mutants-python
	@cat pyproject.toml tests/mutmut.toml >.make/mutants-python/pyproject.toml
	@cd .make/mutants-python && PYTHONPATH=$(CURDIR)/.make/mutmut nice $(CURDIR)/$(BIN)/python -m mutmut run --max-children 1 $(MUTANTS)
	@cd .make/mutants-python && PYTHONPATH=$(CURDIR)/.make/mutmut $(CURDIR)/$(BIN)/python -m mutmut results | grep -v ': not checked$$' || true

spec: build .make/dev ## test the normative statements of MQTT with a running broker; writes docs/conformance.md
	@$(BIN)/python -m tests.spec $(ARGS)

powercut: build .make/dev ## CYCLES=1000 power losses of a simulated disk, a hundredth of them with whole brokers (SEED=1)
	@$(MAKE) powercut-process CYCLES=$$((($(CYCLES) + 99) / 100))
	@MQTTCORE_CYCLES=$(CYCLES) MQTTCORE_SEED=$(SEED) CARGO_PROFILE_TEST_OPT_LEVEL=2 CARGO_PROFILE_DEV_OPT_LEVEL=2 \
		cargo test --quiet -p mqttcore-store --test power_cut $(CARGO_ARGS) -- --nocapture no_acknowledged >.make/powercut.log 2>&1 \
		|| { cat .make/powercut.log; exit 1; }
	@grep ' cycles: ' .make/powercut.log
	@MQTTCORE_CYCLES=$(CYCLES) MQTTCORE_SEED=$(SEED) CARGO_PROFILE_TEST_OPT_LEVEL=2 CARGO_PROFILE_DEV_OPT_LEVEL=2 \
		cargo test --quiet -p mqttcore-store --features columnar --test power_cut_streams $(CARGO_ARGS) -- --nocapture >.make/powercut.log 2>&1 \
		|| { cat .make/powercut.log; exit 1; }
	@grep ' runs of streams: ' .make/powercut.log

powercut-process: build .make/dev ## CYCLES=1000 power losses of the real broker, by a library that discards unsynced data (SEED=1)
	@$(BIN)/python -m tests.crash --power --cycles $(CYCLES) --seed $(SEED) $(ARGS)

damage: build .make/dev ## damage the folder of a killed broker in each way: errors of the start, remaining data
	@$(BIN)/python -m tests.crash.damage

diskfull: build .make/dev ## fill the disk of the real broker CYCLES=8 times, a tmpfs if it may be mounted (SEED=1)
	@$(BIN)/python -m tests.crash.full --cycles $(FULL_CYCLES) --seed $(SEED) $(ARGS)

model: build .make/dev ## compare STEPS=10000 of random histories with a reference implementation (SEED=1)
	@$(BIN)/python -m tests.model --steps $(STEPS) --seed $(SEED) $(ARGS)

pipeline: build .make/dev ## run examples/factory/: broker, machines, pipeline, alerts (ARGS="--seconds 60 --picture load.png")
	@$(BIN)/python examples/factory/demo.py $(ARGS)

soak: build .make/dev ## clients connect and leave for two minutes: no message lost or doubled, constant memory
	@$(BIN)/python -m tests.soak --seconds $(SOAK_SECONDS) --clients $(SOAK_CLIENTS) $(ARGS)

# Files are merged when they are a minute old: the last third shows whether they level off.
soak-pipeline: SOAK_SECONDS = $(if $(MINUTES),$(shell echo $$((60 * $(MINUTES)))),180)
soak-pipeline: build .make/dev ## run a stream and its pipeline for SOAK_SECONDS=180 or MINUTES at RATE=100 messages/s: files, bytes, lag; .make/soak-pipeline.png
	@nice $(BIN)/python -m tests.pipeline.soak --seconds $(SOAK_SECONDS) --rate $(RATE) $(ARGS)

start-busy: build .make/dev ## start a pipeline while 30 processes of the lowest priority compute: seconds until it has read rows (ARGS=--equal)
	@$(BIN)/python -m tests.pipeline.busy_start $(ARGS)

abuse: build .make/dev ## test the rows of docs/abuse.md; print those without complete tests (ARGS="D16 H05")
	@$(BIN)/python -m tests.abuse $(ARGS)

storm: build .make/dev ## attack a broker with default limits; measure the wait of another client and the memory (ARGS="--only group --json")
	@$(BIN)/python -m tests.storm $(ARGS)

hooks-matrix: build .make/dev ## test each plugin hook with each fault (raise, hang, block, flood, ...): no request may pass
	@$(BIN)/python -m tests.hooks_matrix

sys-diff: build .make/dev ## compare $SYS topics with those of an installed Mosquitto: names, payloads, flags
	@$(BIN)/python -m tests.operations.sys_diff

interop: build .make/dev .make/interop-python ## test clients of other projects, in each installed language; writes docs/interop.md
	@$(BIN)/python -m tests.interop $(ARGS)

crash: build .make/dev ## kill the broker CYCLES=1000 times: no message lost, doubled or reordered (SEED=1)
	@$(BIN)/python -m tests.crash --cycles $(CYCLES) --seed $(SEED) $(ARGS)

# Tests of tables in an object store (tests/pipeline/test_store.py) are skipped where moto is not installed.
.make/moto: .make/venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --target $@ 'moto[server]>=5.1'

spark-crash: build .make/dev ## kill broker, sealer, JVM, driver and workers KILLS=20 times under copies to Delta and MQTT (SEED=1)
	@$(BIN)/python -m tests.spark.crash --kills $(KILLS) --seed $(SEED) $(ARGS)

.make/kafka/jars/s3a: .make/venv
	@$(BIN)/python -c 'from tests.kafka.jars import S3A, fetch; fetch(S3A)'

tier: build .make/dev .make/moto ## tables in an object store, with KILLS=20 of the pipeline and OUTAGES=5 of the store (SEED=1)
	@$(BIN)/python -m tests.pipeline.tier --kills $(KILLS) --outages $(OUTAGES) --seed $(SEED) $(ARGS)

stream-tier: .make/dev .make/moto ## sealed files in an object store: KILLS=20 of the broker, OUTAGES=5 of the store (SEED=1)
	@$(MAKE) build FEATURES=tier
	@cargo clippy -p mqttcore-tier --features stores --all-targets --quiet $(CARGO_ARGS) -- -D warnings
	@$(BIN)/python -m tests.streams.tier_kills --kills $(KILLS) --outages $(OUTAGES) --seed $(SEED)

# What needs Kafka is skipped by name where Java or Maven is missing; the extension is built with it, which takes the headers
# of OpenSSL (Debian: apt-get install libssl-dev pkg-config).
kafka: $(if $(NODES),kafka-nodes,kafka-node) ## test streams in Kafka: a mock, a real node and Spark, KILLS=20 of both under load; NODES=3: measure three nodes

kafka-nodes: .make/dev
	@cargo build --release --quiet -p mqttcore-streams --features kafka --example kafka_load $(CARGO_ARGS)
	@$(BIN)/python -m tests.kafka.cluster $(TARGET)/release/examples/kafka_load --nodes $(NODES) $(ARGS)

kafka-node:
	@$(MAKE) build .make/dev FEATURES=kafka-tls
	@cargo clippy -p mqttcore-streams -p mqttcore-bindings --features mqttcore-bindings/kafka-tls --all-targets --quiet $(CARGO_ARGS) -- -D warnings
	@cargo test -p mqttcore-streams --features kafka-tls --quiet $(CARGO_ARGS) --test suite -- kafka
	@$(BIN)/python -m pytest tests/kafka $(ARGS)
	@$(BIN)/python -m tests.kafka.loss --kills $(KILLS) --seed $(SEED)

# Jars come from Maven Central, or from where MAVEN_MIRROR=https://... says.
kafka-up: .make/tools ## start a Kafka node under .make/kafka, and print its address (needs Java 17 and Maven)
	@$(PYTHON) -m tests.kafka up

kafka-down: .make/tools ## stop the Kafka node; its data stays
	@$(PYTHON) -m tests.kafka down

# Packages of Debian: postgresql, mariadb-server-core with mariadb-client-core, redis-server, slapd. What is missing is named.
services-up: .make/tools ## start the installed servers for tests of plugins, below .make, on the loopback
	@$(PYTHON) -m tests.services up

services-down: .make/tools ## stop these servers, and remove their data
	@$(PYTHON) -m tests.services down

nightly: export MQTTCORE_NIGHTLY := 1
nightly: check test loom shuttle miri fuzz crash powercut diskfull soak interop bench-broker ## long runs, before an issue is closed
	@$(MAKE) stress CYCLES=100000000
	@$(MAKE) asan
	@$(MAKE) reproducible
	@$(MAKE) model STEPS=100000
	@$(MAKE) explain-test OPERATIONS=100000
	@$(MAKE) spark-crash KILLS=100
	@$(MAKE) tier
	@$(MAKE) stream-tier
	@$(MAKE) start-busy
	@$(MAKE) soak-pipeline MINUTES=60 RATE=16000 ARGS="--memory 2g --seal 5"
	@$(MAKE) kafka
	@$(MAKE) spark-matrix
	@$(MAKE) pipeline ARGS="--seconds 30 --picture .make/load.png"
	@$(MAKE) mutants
	@$(MAKE) pyright

##@ Measure
bench: .make/tools ## measure codec, session and directory: messages or filters per second
	@cargo bench -p mqttcore-benches $(ARGS)

bench-broker: build .make/dev ## compare the broker with Mosquitto, one core each (DURABLE=1: with a store; PEERS=peers.toml: other brokers)
	@$(BIN)/python -m benches.broker $(if $(DURABLE),--durable) $(if $(PEERS),--peers $(PEERS)) $(ARGS)

counts: build .make/dev ## count allocations, page faults and instructions per message, bytes per idle connection; compare with baselines
	@cargo test --quiet -p mqttcore-broker --test memory $(CARGO_ARGS) -- counts blocks --nocapture
	@$(BIN)/python -m pytest --quiet -rs -s tests/counts $(ARGS)

bench-page: build .make/dev ## measure what a page and a scrape each second cost a broker with 10,000 clients (ARGS="--strict --json")
	@$(BIN)/python -m tests.operations.page_bench $(ARGS)

bench-hooks: build .make/dev ## measure the cost of plugin hooks, beside goals (ARGS="--only revocation", --json, --quick)
	@$(BIN)/python -m benches.hooks $(ARGS)

bench-start: build .make/dev ## measure the start with a large store (ARGS="--sessions 1000000 --queued 10000000")
	@$(BIN)/python benches/start_report.py $(ARGS)

spark-matrix: build ## run tests/spark with Spark 4.0, 4.1 and 4.2, Spark Connect, declarative pipelines (minutes each)
	@$(BIN)/python -m tests.spark.matrix

bench-spark: build .make/dev ## compare the Spark source with Spark's own; writes docs/spark-report.md (SCALE=small BY=cpu)
	@$(BIN)/python -m benches.spark --scale $(SCALE) --by $(BY) --kills $(KILLS) $(ARGS)

bench-scale: build .make/dev ## 100 streams, 20,000 files, real bytes up to a quarter of the free disk; docs/spark-report.md (ARGS="--bytes 2000000000")
	@$(BIN)/python -m benches.spark.scale $(ARGS)

tree-report: .make/tools ## compare the directory with nine others; writes docs/tree-report.md (ARGS="--sizes 10k,100k")
	@cargo run --release --quiet --locked --manifest-path benches/tree-study/Cargo.toml --target-dir $(TARGET)/tree-study -- $(ARGS)

##@ House
lock: .make/venv ## renew requirements-dev.lock
	@$(BIN)/pip install --quiet pip-tools
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["develop"], sep="\n")' >.make/dev.in
	@$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header --upgrade \
		-o requirements-dev.lock .make/dev.in
	@$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --allow-unsafe \
		--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header --upgrade \
		-o tests/interop/python/requirements.lock tests/interop/python/requirements.in
	@sed -n '/^maturin==/,/# via/{/# via/!p}' requirements-dev.lock > requirements-build.lock

clean: ## remove files that make made; builds of cargo stay (cargo clean)
	@rm -rf .make .venv python/mqttcore/_core*.so

help:
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# --- stamps: each names what is there already ---------------------------------------------------

.make/tools:
	@missing() { echo "make: $$1" >&2; exit 1; }; \
	[ -n "$(PYTHON)" ] || missing "Python 3.11 or newer is missing (or name one: make PYTHON=/path/to/python3)"; \
	command -v cargo >/dev/null || missing "Rust is missing: install stable Rust with rustup, then open a new shell"; \
	command -v cc >/dev/null || missing "a C compiler is missing: install gcc or clang (Debian: apt-get install gcc libc6-dev)"; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing "$(PYTHON) has no venv module (Debian: apt-get install python3-venv)"
	@mkdir -p .make && touch $@

.make/venv: .make/tools requirements-build.lock
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-build.lock
	@touch $@

.make/dev: .make/venv requirements-dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

.make/pyright: .make/dev
	@$(BIN)/pip install --quiet --disable-pip-version-check --target $@ basedpyright==$(PYRIGHT)

# Away from the tools: it brings a screen of its own and the pytest that it likes.
.make/mutmut: .make/dev
	@$(BIN)/pip install --quiet --disable-pip-version-check --target $@ mutmut==$(MUTMUT)

# Clients of `tests/interop`, away from the tools: some install a package `tests`.
.make/interop-python: .make/tools tests/interop/python/requirements.lock
	@[ -x .make/interop/python/bin/python ] || $(PYTHON) -m venv .make/interop/python
	@.make/interop/python/bin/pip install --quiet --disable-pip-version-check --require-hashes \
		-r tests/interop/python/requirements.lock
	@touch $@

# One extension at a time: building one retires the stamps of the others.
$(EXTENSION): .make/venv $(RUST_SOURCES) pyproject.toml
	@echo "building the extension: $(PROFILE)$(FEATURES:%=, with %)$(if $(filter-out dev,$(PROFILE)),; minutes the first time)"
	@$(BIN)/maturin develop --profile $(PROFILE) $(FEATURES:%=--features %) \
		>.make/maturin.log 2>&1 || { cat .make/maturin.log; exit 1; }
	@rm -f .make/extension-* && touch $@

.PHONY: pyright asan asan-mqtt-only reproducible trace-test page-test services-up services-down explain-test http-test mqtt-only mutants mutants-rust mutants-python citations kafka kafka-node kafka-nodes kafka-up kafka-down pipeline tier stream-tier crash spark-crash serve build wheel test test-rust pytest check lint-rust lint-python borders deny fuzz powercut powercut-process damage diskfull loom shuttle models \
	stress miri model spec soak soak-pipeline start-busy abuse storm hooks-matrix sys-diff interop nightly bench bench-broker bench-page bench-hooks bench-start bench-spark bench-scale spark-matrix tree-report lock clean help
