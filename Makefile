# The two commands of the README, and what they are made of. Continuous integration calls `make test`.

CARGO ?= cargo
ATTACKS := faults kill living rivals clocks hell old_releases
export CARGO_TERM_COLOR ?= auto

.PHONY: demo test check docs deny template package integration torture backlog mutants cascade-month bench bench-report tools clean

demo: ## clean a table with every kind of row on the embedded engine; needs only Rust
	$(CARGO) run --quiet --locked --bin janitor -- demo

test: check deny template integration ## everything

check: ## format and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	python3 tests/python/mutations.py --check

docs: ## write the README's table of settings, and the file of settings that the checks of the template read
	$(CARGO) run --quiet --locked --bin janitor -- settings --json > tests/golden/settings.json
	$(CARGO) run --quiet --locked --bin janitor -- settings > target/settings.md
	sed -i -e '/^<!-- settings:start -->$$/,/^<!-- settings:end -->$$/{/^<!-- /!d}' -e '/^<!-- settings:start -->$$/r target/settings.md' README.md

tools: ## DynamoDB Local, the Python library and the Lambda emulator, into .tools
	bash tests/setup.sh

deny: ## licences, sources, and crates that must not be in a Lambda
	test -x .tools/bin/cargo-deny || $(CARGO) install --quiet --locked --root .tools --version 0.20.2 cargo-deny
	.tools/bin/cargo-deny --log-level error check bans licenses sources

template: tools ## the SAM template and the guides: lint, policies, roles, metrics, and a rehearsed deployment
	.tools/venv-sam/bin/cfn-lint template.yaml
	SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=us-east-1 .tools/venv-sam/bin/sam validate --lint
	.tools/venv-checkov/bin/checkov --file template.yaml --framework cloudformation --compact --quiet --skip-download
	.tools/venv-sam/bin/python tests/python/template_checks.py
	mkdir -p target && .tools/venv-sam/bin/python tests/python/state_machine.py definition > target/backlog.asl.json
	.tools/asl-validator/node_modules/.bin/asl-validator --json-path target/backlog.asl.json
	.tools/venv-sam/bin/python tests/python/docs_check.py
	python3 tests/python/scaling.py --check
	.tools/venv-sam/bin/python tests/python/rehearse.py

# Not part of `test`: a release build takes minutes. SAM looks for what it built in target/, wherever cargo was told to build.
ARCHITECTURE ?= $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,x86_64)
package: tools ## every function as sam deploys it, its size, and its answer under the emulator; ARCHITECTURE=arm64 needs that Rust target
	PATH="$(CURDIR)/.tools/venv/bin:$$PATH" SAM_CLI_TELEMETRY=0 AWS_DEFAULT_REGION=us-east-1 env -u CARGO_TARGET_DIR \
		.tools/venv-sam/bin/sam build --parameter-overrides Architecture=$(ARCHITECTURE) AttributesTable=any_attributes
	.tools/venv-sam/bin/python tests/python/package_sizes.py
	.tools/venv-sam/bin/python tests/python/package_answers.py

integration: tools ## all tests, on genuine DynamoDB Local and on the embedded engine
	$(CARGO) build --locked --workspace --bins
	RUST_BACKTRACE=0 $(CARGO) test --locked --workspace --no-fail-fast

# Not part of `test`, which makes the same attacks briefly: this takes an hour or so. The figures of docs/reliability.md.
torture: tools ## the promises attacked at length: faults, kills of the release binary, a living application, rivals, clocks, rows from hell
	$(CARGO) build --locked --release --package janitor
	$(CARGO) build --locked --workspace --bins
	rm -f target/torture.jsonl
	TORTURE=long TORTURE_BINARIES=target/release TORTURE_FIGURES=$(CURDIR)/target/torture.jsonl RUST_BACKTRACE=0 $(CARGO) test --locked \
		--package tests --no-fail-fast $(foreach attack,$(ATTACKS),--test $(attack)) -- --nocapture
	.tools/venv/bin/python tests/python/reliability.py target/torture.jsonl

# Not part of `test`, which runs it on 20,000 rows.
backlog: tools ## the backlog's state machine with the release functions as its tasks, on a million rows
	$(CARGO) build --locked --release --package daily-cleanup --package index-repair
	BACKLOG_ROWS=1000000 TORTURE_BINARIES=target/release RUST_BACKTRACE=0 $(CARGO) test --locked --package tests --test backlog -- --nocapture

# Not part of `test`: minutes of simulated months, for the figures of docs/cascade.md.
cascade-month: ## a month of a table with and without the TTL cascade: what is left behind, requests, units; draws docs/cascade-month.svg
	$(CARGO) run --quiet --locked --package tests --example cascade_month -- docs/cascade-month.svg

# Not part of `test`: the better part of an hour in all. SECTIONS takes some of: init embedded local defer million-embedded million-local. A short form, to
# see that it still works: `make bench BENCH_SIZES=2000 BENCH_REPEATS=1 BENCH_STARTS=2 SECTIONS="init embedded local defer"`.
FUNCTIONS := daily-cleanup index-repair metrics-emitter enable-ttl ttl-cascade
BENCH := $(CARGO) run --quiet --locked --release --package tests --example bench --
bench: tools ## the daily cleanup beside the library's own, a good script and the engine's limit: time, requests, units, CPU, memory
	$(CARGO) build --locked --release $(foreach function,$(FUNCTIONS),--package $(function))
	$(CARGO) build --locked --release --package tests --example bench --example bare_lambda
	BENCH_SIZES="$(BENCH_SIZES)" BENCH_REPEATS="$(or $(BENCH_REPEATS),3)" BENCH_STARTS="$(or $(BENCH_STARTS),20)" $(BENCH) run $(SECTIONS)

bench-report: ## docs/benchmarks.md, its plots and the model's predictions, from what `make bench` has measured so far
	$(BENCH) report
	cp target/bench/results.json docs/benchmarks.json
	python3 tests/python/scaling.py

# Not part of `test`: an hour. docs/mutations.md tells what came of it.
mutants: tools ## the program broken on purpose: each mistake must be caught by the test that it names
	python3 tests/python/mutations.py
	test -x .tools/bin/cargo-mutants || $(CARGO) install --quiet --locked --root .tools --version 27.1.0 cargo-mutants
	python3 tests/python/decisions.py

clean:
	$(CARGO) clean
	rm -rf .tools
