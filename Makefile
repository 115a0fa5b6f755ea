# `make help` lists the targets. Slow builds are cached in
# ${INSTANCE_MANAGER_CACHE:-~/.cache}/instance-manager
SHELL := bash
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help build demo local test test-fast lint fmt clippy deny drift links advisories golden bench campaign docs

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## a demo on a local cloud: groups, nodes, a rotation, a deletion; KEEP=1 keeps it running
	@demo/run $(if $(KEEP),--keep)

test: ## every test: unit, golden, property, simulator, end to end
	@tools/test

test-fast: ## the unit, golden and property tests alone
	@tools/need build
	@. tools/sections.sh && cargo_quietly test --locked --quiet --no-fail-fast

lint: fmt clippy drift deny links ## formatting, clippy, generated files, dependencies, links of the docs

local: ## start the local cloud; runs until Ctrl-C
	@tools/need local
	@localcloud/up

build: ## the controller, as the tests and the demo use it
	@tools/need build
	cargo build --locked

bench: ## measure AWS calls, time and memory for 20 to 1,000 groups, for each feature, and for managed groups
	@tools/need build local
	cargo build --locked --release
	@BENCH_PROFILE=release localcloud/up -- python bench/bench.py
	@BENCH=features BENCH_PROFILE=release localcloud/up -- python bench/bench.py
	@BENCH=others BENCH_PROFILE=release localcloud/up -- python bench/bench.py
	@BENCH=scale BENCH_PROFILE=release localcloud/up -- python bench/bench.py
	@BENCH=rollout BENCH_PROFILE=release localcloud/up --node-timeout 120 -- python bench/bench.py

campaign: ## random worlds, changes and faults: SEED=n [COUNT=n | MINUTES=m] [VARIANTS=n] [SIZE=n | ROLLOUTS=1], or REPLAY=file, or DEFECT=name, or nothing for the fixed seeds
	@tools/need build local
	$(if $(DEFECT),,cargo build --locked)
	@$(if $(DEFECT),tools/defect $(DEFECT),tools/campaign $(if $(REPLAY),--replay $(REPLAY),$(if $(SEED),--seed $(SEED),--fixed)) $(if $(COUNT),--count $(COUNT)) $(if $(VARIANTS),--variants $(VARIANTS)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SIZE),--size $(SIZE)) $(if $(ROLLOUTS),--rollouts) $(if $(SHRINK),--shrink))

golden: ## regenerate the generated files: the CRDs, their references, golden files
	UPDATE_GOLDEN=1 INSTA_UPDATE=always cargo test --locked --quiet --no-fail-fast

advisories: ## known vulnerabilities of the dependencies; needs the RustSec database
	@tools/cargo-deny --locked check advisories

fmt:
	@tools/need lint
	cargo fmt --check

clippy:
	@. tools/sections.sh && cargo_quietly clippy --locked --all-targets -- -D warnings

drift:
	@. tools/sections.sh && cargo_quietly test --locked --quiet --test it -- crd docs

deny:
	@tools/cargo-deny --locked check --hide-inclusion-graph bans licenses sources

docs: ## check the documentation and build it as a site in target/docs/html, with mdBook
	@tools/need build
	@tools/docs

links:
	@tools/docs --check
