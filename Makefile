# The two commands of the README, and what they are made of. Continuous integration calls `make test`.

CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto

.PHONY: demo test check deny template integration tools clean

demo: ## clean a table with every kind of row on the embedded engine; needs only Rust
	$(CARGO) run --quiet --locked --bin janitor -- demo

test: check deny template integration ## everything

check: ## format and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

tools: ## DynamoDB Local, the Python library and the Lambda emulator, into .tools
	bash tests/setup.sh

deny: ## licences, sources, and crates that must not be in a Lambda
	test -x .tools/bin/cargo-deny || $(CARGO) install --quiet --locked --root .tools --version 0.20.2 cargo-deny
	.tools/bin/cargo-deny --log-level error check bans licenses sources

template: tools ## the SAM template
	.tools/venv/bin/cfn-lint template.yaml

integration: tools ## all tests, on genuine DynamoDB Local and on the embedded engine
	$(CARGO) build --locked --workspace --bins
	RUST_BACKTRACE=0 $(CARGO) test --locked --workspace

clean:
	$(CARGO) clean
	rm -rf .tools
