# `make help` lists the targets. Continuous integration calls `make test`.

CARGO ?= cargo
# Threads of each test binary (all binaries run concurrently); of `engines`, which has the most tests; and of `library`, whose tests wait
# most. With more, DynamoDB Local is so busy that leases expire.
TEST_THREADS ?= 2
ENGINES_THREADS ?= 4
LIBRARY_THREADS ?= 3
# The same features for every build, lint and test: with another selection cargo would build the SDK again.
ALL := --locked --workspace
# Builds what is tested, and lints the workspace on the way: `cargo clippy` would check every dependency a second time. Not for releases:
# clippy-driver turns some optimizations off.
LINTED := env RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ $(CARGO)
# Tests of the binary `engines` that `make quick` skips: those that need Java or Python, and the repeated attacks.
NEEDS_TOOLS := dynamodb_local terminal ctrl_c says_the_same_in_text credentials_that cli::what_is_wrong every_function_logs
ATTACKS := faults killed_runs concurrent_runs clocks
LIBRARY_ATTACKS := live_application old_releases malformed_rows
export CARGO_TERM_COLOR ?= auto
export RUST_BACKTRACE ?= 0
# Python compiles each module once, not at each start.
export PYTHONPYCACHEPREFIX := $(CURDIR)/.tools/pycache
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo local sam-local quick test build check dependencies docs template package release integration engines library deploy others units quick-engines proof \
	repeat torture backlog mutants cascade-month bench bench-report screenshots tools clean

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## clean a table with every kind of row on the embedded engine; needs only Rust
	$(CARGO) run --quiet --locked --bin janitor -- demo

local: tools ## run every function under cargo lambda watch, with DynamoDB Local and the demo's rows, until Ctrl-C; needs no Docker
	@tests/local.sh

# Not part of `test`: it needs Docker's engine and a release build.
sam-local: tools ## (10 minutes) invoke every function with sam local and its events, against DynamoDB Local in a container
	@tests/progress.sh sam-local 10 .tools/venv-sam/bin/python tests/python/sam_local.py

quick: check build ## check format and lints, and run the tests that need no installed tools, without the attacks and the random tables
	@$(MAKE) --no-print-directory --output-sync=line -j2 units quick-engines

quick-engines:
	NO_TOOLS=1 RUST_TEST_THREADS=$(ENGINES_THREADS) $(LINTED) test $(ALL) --test engines -- $(foreach name,$(NEEDS_TOOLS) $(ATTACKS:%=%::) random_tables::,--skip $(name))

# Phases run concurrently where they can; a failed phase does not stop the others.
TOGETHER := --no-print-directory --output-sync=target --keep-going
test: ## run everything; installs what it needs into .tools, and prints how long each phase took
	@tests/phase.sh --begin
	@$(MAKE) $(TOGETHER) -j2 timed-build timed-template timed-check
	@$(MAKE) --no-print-directory integration
	@python3 tests/python/phases.py

timed-template: timed-tools
timed-%:
	@tests/phase.sh $* $(MAKE) --no-print-directory $*

build: ## build and lint everything that is tested, with its binaries
	$(LINTED) build $(ALL) --all-targets

check: dependencies ## check format, dependencies and mutations
	$(CARGO) fmt --all --check
	python3 tests/python/mutations.py --check

dependencies: ## check the edges between the crates, and licences and sources of all others
	python3 tests/python/dependencies.py

docs: tools ## write the tables of settings and of parameters, and tests/golden/settings.json
	$(CARGO) run --quiet --locked --bin janitor -- settings --json > tests/golden/settings.json
	$(CARGO) run --quiet --locked --bin janitor -- settings > target/settings.md
	sed -i -e '/^<!-- settings:start -->$$/,/^<!-- settings:end -->$$/{/^<!-- /!d}' -e '/^<!-- settings:start -->$$/r target/settings.md' README.md
	.tools/venv-sam/bin/python tests/python/docs_check.py --write-parameters

tools: ## install DynamoDB Local, the Python library, the Lambda emulator and other tools into .tools
	bash tests/setup.sh

template: tools ## check the SAM template and the guides: lint, policies, roles, alarms, costs, local runs, and a rehearsed deployment
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
	python3 tests/python/phases.py --check
	.tools/venv-sam/bin/python tests/python/rehearse.py

# Not part of `test`: a release build takes minutes. SAM expects the build in target/, whatever CARGO_TARGET_DIR is.
ARCHITECTURE ?= $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,x86_64)
package: tools ## (10 minutes) build every function as sam deploys it; check its size, and its answer under the emulator; ARCHITECTURE=arm64 needs that Rust target
	PATH="$(CURDIR)/.tools/venv/bin:$$PATH" SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=us-east-1 env -u CARGO_TARGET_DIR \
		tests/progress.sh package 10 .tools/venv-sam/bin/sam build --parameter-overrides Architecture=$(ARCHITECTURE) AttributesTable=any_attributes Mode=dry-run
	.tools/venv-sam/bin/python tests/python/package_sizes.py
	.tools/venv-sam/bin/python tests/python/package_answers.py

# Without paths of this machine in the binaries, two builds of a commit give the same bytes on every machine.
RELEASE_FLAGS := --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo --remap-path-prefix=$(CURDIR)=/src
release: ## (10 minutes) write target/dist: an archive with zips, template, janitor, SHA256SUMS and SBOM, for ARCHITECTURE; the same bytes each time
	bash tests/setup.sh release
	PATH="$(CURDIR)/.tools/venv/bin:$$PATH" SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=us-east-1 RUSTFLAGS="$(RELEASE_FLAGS)" env -u CARGO_TARGET_DIR \
		tests/progress.sh release 10 sh -c '.tools/venv-sam/bin/sam build --build-dir target/dist/build \
			--parameter-overrides Architecture=$(ARCHITECTURE) AttributesTable=any_attributes Mode=dry-run && \
		cargo lambda build --release --locked --package janitor $(if $(filter arm64,$(ARCHITECTURE)),--arm64,--x86-64)'
	.tools/venv-release/bin/python tests/python/release.py target/dist/build target/lambda/janitor/bootstrap $(ARCHITECTURE) target/dist/$(ARCHITECTURE)

# With one DynamoDB Local; `others` does not need it.
integration: tools build ## run all tests, on DynamoDB Local and on the embedded engine
	@RUST_TEST_THREADS=$(TEST_THREADS) tests/with-dynamodb-local.sh $(MAKE) $(TOGETHER) -j4 timed-engines timed-library timed-deploy timed-others

engines: export RUST_TEST_THREADS := $(ENGINES_THREADS)
library: export RUST_TEST_THREADS := $(LIBRARY_THREADS)
engines library deploy:
	$(LINTED) test $(ALL) --no-fail-fast --test $@

units:
	$(LINTED) test $(ALL) --no-fail-fast --lib --test rules

others: units
	$(LINTED) test $(ALL) --doc
	$(LINTED) test $(ALL) --no-fail-fast $(PROOFS) -- --nocapture
	$(LINTED) run --quiet --locked --package tests --example bench -- check

# `test` runs the same tests, but does not write the page. `make proof PROOF=long` tries every combination of the policies, the lease in
# all setups, more random rows and more fuzzing; it prints its figures and does not write the page.
PROOFS := --test every_case --test interleavings --test fuzz
# Tests of the parsers outside `shared`.
READERS := any_item_is any_json_is any_event_is
proof: export PROOF_FIGURES := $(CURDIR)/target/proof.jsonl
proof: ## test every case of the decisions and every interleaving of the writers, fuzz the parsers; writes docs/dev/proof.md
	mkdir -p target && rm -f $(PROOF_FIGURES)
	PROOF=$(PROOF) $(LINTED) test $(ALL) --no-fail-fast $(PROOFS) -- --nocapture
	PROOF=$(PROOF) $(LINTED) test $(ALL) --no-fail-fast --lib -- --nocapture $(READERS)
	$(if $(filter long,$(PROOF)),,python3 tests/python/proof.py $(PROOF_FIGURES))

# Not part of `test`. With LOAD=1 a spinning process per core runs beside the tests.
RUNS ?= 10
repeat: tools build ## (2 hours) run all tests RUNS times in a row, until one fails; LOAD=1 keeps both cores busy beside them; writes CONTRIBUTING
	tests/progress.sh repeat 120 python3 tests/python/repeat.py $(RUNS) $(if $(LOAD),--load)

# Not part of `test`, which runs the same attacks briefly. TORTURE=short takes minutes, to try the target. Attacks mostly wait, so both
# binaries run concurrently, with more threads than cores.
TORTURE ?= long
TORTURE_THREADS ?= 4
TORTURE_PROFILE := $(if $(filter long,$(TORTURE)),release,debug)
ATTACK := $(LINTED) test $(ALL) --no-fail-fast -- --nocapture $(ATTACKS:%=%::) $(LIBRARY_ATTACKS:%=%::) memory_is_flat removes_exactly_the_unused_clients_and --skip every_function_logs
torture: tools ## (1 hour) run long attacks on the guarantees, with the release binary; writes the figures of docs/dev/reliability.md
	$(if $(filter long,$(TORTURE)),$(CARGO) build --locked --release --package janitor)
	$(LINTED) build $(ALL) --all-targets
	rm -f target/torture.jsonl && date +%s > target/torture.began
	TORTURE=$(TORTURE) TORTURE_BINARIES=target/$(TORTURE_PROFILE) TORTURE_FIGURES=$(CURDIR)/target/torture.jsonl RUST_TEST_THREADS=$(TORTURE_THREADS) \
		tests/progress.sh torture 60 tests/with-dynamodb-local.sh sh -c '$(ATTACK:--=--test engines --) & $(ATTACK:--=--test library --); library=$$?; wait $$!; exit $$(($$? + library))'
	TORTURE=$(TORTURE) .tools/venv/bin/python tests/python/reliability.py target/torture.jsonl $$(($$(date +%s) - $$(cat target/torture.began)))

# Not part of `test`, which runs it on 20,000 rows.
backlog: tools ## (20 minutes) run the backlog state machine with the release functions, on a million rows
	$(CARGO) build --locked --release --package daily-cleanup --package index-repair
	BACKLOG_ROWS=1000000 TORTURE_BINARIES=target/release tests/progress.sh backlog 20 $(LINTED) test $(ALL) --test deploy -- --nocapture backlog::

# Not part of `test`: it takes minutes, and writes the figures of docs/cascade.md.
cascade-month: ## (minutes) simulate a month of a table with and without the TTL cascade: rows left, requests, costs; draws docs/cascade-month.svg
	$(CARGO) run --quiet --locked --package tests --example cascade_month -- docs/cascade-month.svg target/cascade-month.json
	python3 tests/python/cascade_month.py target/cascade-month.json

# Not part of `test`: it takes almost an hour. SECTIONS takes some of: init embedded local retire million-embedded million-local. To try the
# target: `make bench BENCH_SIZES=2000 BENCH_REPEATS=1 BENCH_STARTS=2 SECTIONS="init embedded local retire"`.
FUNCTIONS := daily-cleanup index-repair metrics-emitter enable-ttl ttl-cascade
BENCH := $(CARGO) run --quiet --locked --release --package tests --example bench --
bench: tools ## (50 minutes) compare the daily cleanup with the library's own, a good script and the engine's limit: time, requests, units, CPU, memory
	$(CARGO) build --locked --release $(foreach function,$(FUNCTIONS),--package $(function))
	$(CARGO) build --locked --release --package tests --example bench --example bare_lambda
	BENCH_SIZES="$(BENCH_SIZES)" BENCH_REPEATS="$(or $(BENCH_REPEATS),3)" BENCH_STARTS="$(or $(BENCH_STARTS),20)" tests/progress.sh bench 50 $(BENCH) run $(SECTIONS)

bench-report: ## write docs/dev/benchmarks.md, its plots and the model's predictions, from the figures of `make bench`
	$(BENCH) report
	cp target/bench/results.json docs/dev/benchmarks.json
	python3 tests/python/scaling.py

# Not part of `test`. Exit code 3 of cargo-mutants: some mutants timed out, which also counts as caught.
mutants: tools ## (1 hour) test deliberate mistakes, each of which a named test must catch, and mutants of every decision
	tests/progress.sh "mutants, by hand" 30 python3 tests/python/mutations.py
	test -x .tools/bin/cargo-mutants || $(CARGO) install --quiet --debug --locked --root .tools --version 27.1.0 cargo-mutants
	PATH="$(CURDIR)/.tools/bin:$$PATH" tests/progress.sh "mutants of the decisions" 30 $(CARGO) mutants --package shared || test $$? -eq 3

CHROMIUM ?= $(firstword $(wildcard .tools/browser/chromium) chromium)
screenshots: tools ## take the README's screenshots: docs/img; with IMAGES=folder, write these and others there
	$(CARGO) build --quiet --locked --bin janitor
	.tools/venv/bin/python tests/python/screenshots.py $(or $(CARGO_TARGET_DIR),target)/debug/janitor $(CHROMIUM) $(IMAGES)

clean: ## remove everything that was built and installed
	$(CARGO) clean
	rm -rf .tools
