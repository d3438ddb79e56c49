# `make help` lists the targets. Continuous integration runs `make test`.

CARGO ?= cargo
ATTACKS := faults kill living rivals clocks hell old_releases
export CARGO_TERM_COLOR ?= auto

.PHONY: help demo test check deny template package integration torture backlog mutants cascade-month bench bench-report screenshots tools clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## clean a sample table on the embedded engine; needs only Rust
	$(CARGO) run --quiet --locked --bin janitor -- demo

test: check deny template integration ## run everything

check: ## format, lints, and the mutation patches
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	python3 tests/python/mutations.py --check

tools: ## install DynamoDB Local, the ActingWeb library, the Lambda emulator and other tools into .tools
	bash tests/setup.sh

deny: ## check licenses, sources and banned crates
	test -x .tools/bin/cargo-deny || $(CARGO) install --quiet --locked --root .tools --version 0.20.2 cargo-deny
	.tools/bin/cargo-deny --log-level error check bans licenses sources

template: tools ## check the SAM template and the guides, and rehearse a deployment in moto
	.tools/venv-sam/bin/cfn-lint template.yaml
	SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=us-east-1 .tools/venv-sam/bin/sam validate --lint
	.tools/venv-checkov/bin/checkov --file template.yaml --framework cloudformation --compact --quiet --skip-download
	.tools/venv-sam/bin/python tests/python/template_checks.py
	mkdir -p target && .tools/venv-sam/bin/python tests/python/state_machine.py definition > target/backlog.asl.json
	.tools/asl-validator/node_modules/.bin/asl-validator --json-path target/backlog.asl.json
	.tools/venv-sam/bin/python tests/python/docs_check.py
	python3 tests/python/scaling.py --check
	.tools/venv-sam/bin/python tests/python/rehearse.py

# Not part of `test`: a release build takes minutes. SAM expects the build in target/, whatever CARGO_TARGET_DIR is.
ARCHITECTURE ?= $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,x86_64)
package: tools ## build every function as sam deploys it, check its size and its answer; ARCHITECTURE=arm64 needs that Rust target
	PATH="$(CURDIR)/.tools/venv/bin:$$PATH" SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=us-east-1 env -u CARGO_TARGET_DIR \
		.tools/venv-sam/bin/sam build --parameter-overrides Architecture=$(ARCHITECTURE) AttributesTable=any_attributes
	.tools/venv-sam/bin/python tests/python/package_sizes.py
	.tools/venv-sam/bin/python tests/python/package_answers.py

integration: tools ## run all tests on DynamoDB Local and on the embedded engine
	$(CARGO) build --locked --workspace --bins
	RUST_BACKTRACE=0 $(CARGO) test --locked --workspace --no-fail-fast

# Not part of `test`, which runs the same attacks briefly: about an hour. Writes the figures of docs/dev/reliability.md.
torture: tools ## run the long attacks: faults, kills, a live application, concurrent runs, clocks, malformed rows; about an hour
	$(CARGO) build --locked --release --package janitor
	$(CARGO) build --locked --workspace --bins
	rm -f target/torture.jsonl
	TORTURE=long TORTURE_BINARIES=target/release TORTURE_FIGURES=$(CURDIR)/target/torture.jsonl RUST_BACKTRACE=0 $(CARGO) test --locked \
		--package tests --no-fail-fast $(foreach attack,$(ATTACKS),--test $(attack)) -- --nocapture
	.tools/venv/bin/python tests/python/reliability.py target/torture.jsonl

# Not part of `test`, which runs it on 20,000 rows.
backlog: tools ## run the backlog state machine with the release binaries on a million rows
	$(CARGO) build --locked --release --package daily-cleanup --package index-repair
	BACKLOG_ROWS=1000000 TORTURE_BINARIES=target/release RUST_BACKTRACE=0 $(CARGO) test --locked --package tests --test backlog -- --nocapture

# Not part of `test`: takes minutes. The figures of docs/cascade.md.
cascade-month: ## simulate a month with and without the TTL cascade; writes docs/cascade-month.svg
	$(CARGO) run --quiet --locked --package tests --example cascade_month -- docs/cascade-month.svg

# Not part of `test`: the better part of an hour. SECTIONS takes some of: init embedded local defer million-embedded million-local. A quick check: `make bench BENCH_SIZES=2000 BENCH_REPEATS=1 BENCH_STARTS=2 SECTIONS="init embedded local defer"`.
FUNCTIONS := daily-cleanup index-repair metrics-emitter enable-ttl ttl-cascade
BENCH := $(CARGO) run --quiet --locked --release --package tests --example bench --
bench: tools ## compare the daily cleanup with the library's own, a script and the engine's limit; up to an hour
	$(CARGO) build --locked --release $(foreach function,$(FUNCTIONS),--package $(function))
	$(CARGO) build --locked --release --package tests --example bench --example bare_lambda
	BENCH_SIZES="$(BENCH_SIZES)" BENCH_REPEATS="$(or $(BENCH_REPEATS),3)" BENCH_STARTS="$(or $(BENCH_STARTS),20)" $(BENCH) run $(SECTIONS)

bench-report: ## write docs/dev/benchmarks.md and the tables of docs/scaling.md from the results of `make bench`
	$(BENCH) report
	cp target/bench/results.json docs/dev/benchmarks.json
	python3 tests/python/scaling.py

# Not part of `test`: an hour. docs/dev/mutations.md has the results.
mutants: tools ## apply each mutation; the test that it names must fail; about an hour
	python3 tests/python/mutations.py
	test -x .tools/bin/cargo-mutants || $(CARGO) install --quiet --locked --root .tools --version 27.1.0 cargo-mutants
	python3 tests/python/decisions.py

CHROMIUM ?= $(firstword $(wildcard .tools/browser/chromium) chromium)
screenshots: tools ## take the README's screenshots: docs/img
	$(CARGO) build --quiet --locked --bin janitor
	.tools/venv/bin/python tests/python/screenshots.py $(or $(CARGO_TARGET_DIR),target)/debug/janitor $(CHROMIUM)

clean: ## remove the build and .tools
	$(CARGO) clean
	rm -rf .tools
