# `make help` lists the targets. Continuous integration calls `make test`.

CARGO ?= cargo
# Threads of each test binary, with all binaries at a time; of `engines`, which has the most tests. More would keep one DynamoDB Local so
# busy that leases lapse.
TEST_THREADS ?= 2
ENGINES_THREADS ?= 4
# One set of features for everything that is built, linted and tested: with another selection cargo would build the SDK again.
ALL := --locked --workspace
# Test names of the binary `engines` that `make quick` leaves out: those that need Java or Python, and the attacks by repetition.
NEEDS_TOOLS := dynamodb_local real_library stranded_client terminal ctrl_c says_the_same credentials_that what_is_wrong every_function_logs
ATTACKS := faults killed_runs concurrent_runs clocks
LIBRARY_ATTACKS := live_application old_releases malformed_rows
export CARGO_TERM_COLOR ?= auto
export RUST_BACKTRACE ?= 0
# A Python compiles each module once, not at each start.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.tools/pycache
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo local sam-local quick test build check edges docs deny cargo-deny template package release integration engines library deploy others proof \
	torture backlog mutants cascade-month bench bench-report screenshots tools clean

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## clean a table with every kind of row on the embedded engine; needs only Rust
	$(CARGO) run --quiet --locked --bin janitor -- demo

local: tools ## every function under cargo lambda watch, with DynamoDB Local and the demo's rows, until Ctrl-C; needs no Docker
	@tests/local.sh

# Not part of `test`: it needs Docker's engine and a release build.
sam-local: tools ## (10 minutes) every function through sam local invoke, with its events, against DynamoDB Local in a container
	@tests/progress.sh sam-local 10 .tools/venv-sam/bin/python tests/python/sam_local.py

quick: ## format, lints and the tests that need no installed tools, without the attacks and the random tables
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(ALL) --all-targets -- -D warnings
	python3 tests/python/mutations.py --check
	python3 tests/python/crate_edges.py
	$(CARGO) build $(ALL) --all-targets
	$(CARGO) test $(ALL) --lib --test rules
	NO_TOOLS=1 RUST_TEST_THREADS=$(TEST_THREADS) $(CARGO) test $(ALL) --test engines -- $(foreach name,$(NEEDS_TOOLS) $(ATTACKS:%=%::) random_tables::,--skip $(name))

# Phases run concurrently where they can; a failed phase does not stop the others.
TOGETHER := --no-print-directory --output-sync=target --keep-going
test: ## everything; installs into .tools what it needs, and prints how long each phase took
	@tests/phase.sh --begin
	@$(MAKE) $(TOGETHER) -j3 timed-check timed-deny timed-template
	@$(MAKE) --no-print-directory integration
	@tests/phase.sh --table

timed-check: timed-build
timed-deny: timed-cargo-deny
timed-template: timed-tools
timed-%:
	@tests/phase.sh $* $(MAKE) --no-print-directory $*

build: ## everything that is tested, once, with its binaries
	$(CARGO) build $(ALL) --all-targets

check: edges ## format and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(ALL) --all-targets -- -D warnings
	python3 tests/python/mutations.py --check

edges: ## the direction of the crates' edges
	python3 tests/python/crate_edges.py

docs: ## write the README's table of settings, and the file of settings that the checks of the template read
	$(CARGO) run --quiet --locked --bin janitor -- settings --json > tests/golden/settings.json
	$(CARGO) run --quiet --locked --bin janitor -- settings > target/settings.md
	sed -i -e '/^<!-- settings:start -->$$/,/^<!-- settings:end -->$$/{/^<!-- /!d}' -e '/^<!-- settings:start -->$$/r target/settings.md' README.md

tools: ## DynamoDB Local, the Python library and the Lambda emulator, into .tools
	bash tests/setup.sh

deny: cargo-deny ## licences, sources, and crates that must not be in a Lambda
	.tools/bin/cargo-deny --log-level error check bans licenses sources

# A debug build: it reads a lock file, and a release build of it takes longer than all of its runs.
cargo-deny:
	test -x .tools/bin/cargo-deny || $(CARGO) install --quiet --debug --locked --root .tools --version 0.20.2 cargo-deny

template: tools ## the SAM template and the guides: lint, policies, roles, alarms, costs, local runs, and a rehearsed deployment
	.tools/venv-sam/bin/cfn-lint template.yaml stack/alarms.yaml stack/dashboard.yaml
	SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=us-east-1 .tools/venv-sam/bin/sam validate --lint
	.tools/venv-checkov/bin/checkov --config-file .checkov.yaml --file template.yaml stack/alarms.yaml stack/dashboard.yaml
	.tools/venv-release/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	.tools/venv-release/bin/check-jsonschema --builtin-schema custom.github-workflows-require-timeout .github/workflows/*.yml
	.tools/venv-sam/bin/python tests/python/template_checks.py
	.tools/venv-release/bin/python tests/python/release_checks.py
	mkdir -p target && .tools/venv-sam/bin/python tests/python/state_machine.py definition > target/backlog.asl.json
	.tools/asl-validator/node_modules/.bin/asl-validator --json-path target/backlog.asl.json
	.tools/venv-sam/bin/python tests/python/alarms.py
	.tools/venv-sam/bin/python tests/python/local_run.py
	.tools/venv-sam/bin/python tests/python/docs_check.py
	.tools/venv-sam/bin/python tests/python/costs.py --check
	python3 tests/python/scaling.py --check
	python3 tests/python/reliability.py --check
	python3 tests/python/proof.py --check
	python3 tests/python/cascade_month.py --check
	.tools/venv-sam/bin/python tests/python/rehearse.py

# Not part of `test`: a release build takes minutes. SAM looks for what it built in target/, wherever cargo was told to build.
ARCHITECTURE ?= $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,x86_64)
package: tools ## (10 minutes) every function as sam deploys it, its size, and its answer under the emulator; ARCHITECTURE=arm64 needs that Rust target
	PATH="$(CURDIR)/.tools/venv/bin:$$PATH" SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=us-east-1 env -u CARGO_TARGET_DIR \
		tests/progress.sh package 10 .tools/venv-sam/bin/sam build --parameter-overrides Architecture=$(ARCHITECTURE) AttributesTable=any_attributes Mode=dry-run
	.tools/venv-sam/bin/python tests/python/package_sizes.py
	.tools/venv-sam/bin/python tests/python/package_answers.py

# Paths of this machine are kept out of the binaries, so that two builds of one commit are the same bytes, wherever they are made.
RELEASE_FLAGS := --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo --remap-path-prefix=$(CURDIR)=/src
release: ## (10 minutes) target/dist: an archive with zips, template, janitor, SHA256SUMS and SBOM, for ARCHITECTURE; the same bytes each time
	bash tests/setup.sh release
	PATH="$(CURDIR)/.tools/venv/bin:$$PATH" SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=us-east-1 RUSTFLAGS="$(RELEASE_FLAGS)" env -u CARGO_TARGET_DIR \
		tests/progress.sh release 10 sh -c '.tools/venv-sam/bin/sam build --build-dir target/dist/build \
			--parameter-overrides Architecture=$(ARCHITECTURE) AttributesTable=any_attributes Mode=dry-run && \
		cargo lambda build --release --locked --package janitor $(if $(filter arm64,$(ARCHITECTURE)),--arm64,--x86-64)'
	.tools/venv-release/bin/python tests/python/release.py target/dist/build target/lambda/janitor/bootstrap $(ARCHITECTURE) target/dist/$(ARCHITECTURE)

# On one DynamoDB Local. `others` need none.
integration: tools build ## all tests, on genuine DynamoDB Local and on the embedded engine
	@RUST_TEST_THREADS=$(TEST_THREADS) tests/with-dynamodb-local.sh $(MAKE) $(TOGETHER) -j4 timed-engines timed-library timed-deploy timed-others

engines: export RUST_TEST_THREADS := $(ENGINES_THREADS)
engines library deploy:
	$(CARGO) test $(ALL) --no-fail-fast --test $@

others:
	$(CARGO) test $(ALL) --no-fail-fast --lib --test rules
	$(CARGO) test $(ALL) --doc
	$(CARGO) test $(ALL) --no-fail-fast $(PROOFS) -- --nocapture
	$(CARGO) run --quiet --locked --package tests --example bench -- check

# Part of `test`, which does not write the page. `make proof PROOF=long` is the longer form: the whole product of the policies, the lease
# in all setups, more random rows, more fuzzing; it prints its figures and leaves the page.
PROOFS := --test every_case --test interleavings --test fuzz
# The readers outside of `shared`.
READERS := any_item_is any_json_is any_event_is
proof: export PROOF_FIGURES := $(CURDIR)/target/proof.jsonl
proof: ## every case of the decisions, every interleaving of the writers, fuzzed readers; writes docs/dev/proof.md
	mkdir -p target && rm -f $(PROOF_FIGURES)
	PROOF=$(PROOF) $(CARGO) test $(ALL) --no-fail-fast $(PROOFS) -- --nocapture
	PROOF=$(PROOF) $(CARGO) test $(ALL) --no-fail-fast --lib -- --nocapture $(READERS)
	$(if $(filter long,$(PROOF)),,python3 tests/python/proof.py $(PROOF_FIGURES))

# Not part of `test`, which makes the same attacks briefly. TORTURE=short takes minutes, to see that it works. Attacks mostly wait, so both
# binaries run at a time, with more threads than cores; nothing in them is shorter for it.
TORTURE ?= long
TORTURE_THREADS ?= 4
TORTURE_PROFILE := $(if $(filter long,$(TORTURE)),release,debug)
ATTACK := $(CARGO) test $(ALL) --no-fail-fast -- --nocapture $(ATTACKS:%=%::) $(LIBRARY_ATTACKS:%=%::) memory_is_flat removes_exactly_the_unused_clients_and --skip every_function_logs
torture: tools ## (1 hour) the attacks on the promises at length, with the release binary; writes the figures of docs/dev/reliability.md
	$(if $(filter long,$(TORTURE)),$(CARGO) build --locked --release --package janitor)
	$(CARGO) build $(ALL) --all-targets
	rm -f target/torture.jsonl && date +%s > target/torture.began
	TORTURE=$(TORTURE) TORTURE_BINARIES=target/$(TORTURE_PROFILE) TORTURE_FIGURES=$(CURDIR)/target/torture.jsonl RUST_TEST_THREADS=$(TORTURE_THREADS) \
		tests/progress.sh torture 60 tests/with-dynamodb-local.sh sh -c '$(ATTACK:--=--test engines --) & $(ATTACK:--=--test library --); library=$$?; wait $$!; exit $$(($$? + library))'
	TORTURE=$(TORTURE) .tools/venv/bin/python tests/python/reliability.py target/torture.jsonl $$(($$(date +%s) - $$(cat target/torture.began)))

# Not part of `test`, which runs it on 20,000 rows.
backlog: tools ## (20 minutes) the backlog's state machine with the release functions as its tasks, on a million rows
	$(CARGO) build --locked --release --package daily-cleanup --package index-repair
	BACKLOG_ROWS=1000000 TORTURE_BINARIES=target/release tests/progress.sh backlog 20 $(CARGO) test $(ALL) --test deploy -- --nocapture backlog::

# Not part of `test`: minutes of simulated months, for the figures of docs/cascade.md.
cascade-month: ## (minutes) a month of a table with and without the TTL cascade: what is left behind, requests, units; draws docs/cascade-month.svg
	$(CARGO) run --quiet --locked --package tests --example cascade_month -- docs/cascade-month.svg target/cascade-month.json
	python3 tests/python/cascade_month.py target/cascade-month.json

# Not part of `test`: the better part of an hour in all. SECTIONS takes some of: init embedded local retire million-embedded million-local. A short form, to
# see that it still works: `make bench BENCH_SIZES=2000 BENCH_REPEATS=1 BENCH_STARTS=2 SECTIONS="init embedded local retire"`.
FUNCTIONS := daily-cleanup index-repair metrics-emitter enable-ttl ttl-cascade
BENCH := $(CARGO) run --quiet --locked --release --package tests --example bench --
bench: tools ## (50 minutes) the daily cleanup beside the library's own, a good script and the engine's limit: time, requests, units, CPU, memory
	$(CARGO) build --locked --release $(foreach function,$(FUNCTIONS),--package $(function))
	$(CARGO) build --locked --release --package tests --example bench --example bare_lambda
	BENCH_SIZES="$(BENCH_SIZES)" BENCH_REPEATS="$(or $(BENCH_REPEATS),3)" BENCH_STARTS="$(or $(BENCH_STARTS),20)" tests/progress.sh bench 50 $(BENCH) run $(SECTIONS)

bench-report: ## docs/dev/benchmarks.md, its plots and the model's predictions, from what `make bench` has measured so far
	$(BENCH) report
	cp target/bench/results.json docs/dev/benchmarks.json
	python3 tests/python/scaling.py

# Not part of `test`. Exit code 3 of cargo-mutants: some mutants ran for ever, which is caught as well.
mutants: tools ## (1 hour) deliberate mistakes, each of which a named test must catch, and mutants of every decision
	tests/progress.sh "mutants, by hand" 30 python3 tests/python/mutations.py
	test -x .tools/bin/cargo-mutants || $(CARGO) install --quiet --debug --locked --root .tools --version 27.1.0 cargo-mutants
	PATH="$(CURDIR)/.tools/bin:$$PATH" tests/progress.sh "mutants of the decisions" 30 $(CARGO) mutants --package shared || test $$? -eq 3

CHROMIUM ?= $(firstword $(wildcard .tools/browser/chromium) chromium)
screenshots: tools ## take the README's screenshots: docs/img; with IMAGES=folder, also others, to look at
	$(CARGO) build --quiet --locked --bin janitor
	.tools/venv/bin/python tests/python/screenshots.py $(or $(CARGO_TARGET_DIR),target)/debug/janitor $(CHROMIUM) $(IMAGES)

clean: ## remove everything that was built and installed
	$(CARGO) clean
	rm -rf .tools
