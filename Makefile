# `make help` lists the targets. What takes long to build is kept in the user's cache:
# ${INSTANCE_MANAGER_CACHE:-~/.cache}/instance-manager
SHELL := bash
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help build demo local test lint fmt clippy deny drift advisories golden bench docs links

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## the whole story on a local cloud: groups, nodes, a rotation, a deletion; KEEP=1 leaves it running
	@demo/run $(if $(KEEP),--keep)

test: ## every test: unit, golden, property, simulator, end to end
	@tools/test

lint: fmt clippy drift deny ## formatting, clippy, generated files, dependencies

local: ## start the local cloud for yourself, until Ctrl-C
	@tools/need local
	@deploy/local/up

build: ## the controller, as the tests and the demo use it
	@tools/need build
	cargo build --locked

bench: ## measure calls, time and memory of 20 groups on the local cloud, with one for each feature, and of what EKS runs
	@tools/need build local
	cargo build --locked --release
	@BENCH_PROFILE=release deploy/local/up -- python bench/bench.py
	@BENCH=features BENCH_PROFILE=release deploy/local/up -- python bench/bench.py
	@BENCH=others BENCH_PROFILE=release deploy/local/up -- python bench/bench.py

golden: ## write the generated files anew: the CRD, its reference, golden files
	UPDATE_GOLDEN=1 INSTA_UPDATE=always cargo test --locked --quiet

docs: ## check the documentation and build it as a site in target/docs/html, with mdBook
	@tools/need build
	@tools/docs

lint: links
links:
	@tools/docs --check

advisories: ## known vulnerabilities of the dependencies; needs the RustSec database
	@tools/cargo-deny --locked check advisories

fmt:
	@tools/need lint
	cargo fmt --check

clippy:
	@. tools/sections.sh && cargo_quietly clippy --locked --all-targets -- -D warnings

drift:
	@. tools/sections.sh && cargo_quietly test --locked --quiet --test crd --test docs

deny:
	@tools/cargo-deny --locked check --hide-inclusion-graph bans licenses sources
