# Everything a developer runs. `make help` lists it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

KUBE_VERSION := v1.32.5
LDFLAGS := -X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION) \
           -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=32
EXAMPLES := $(notdir $(patsubst %/Cargo.toml,%,$(wildcard examples/*/Cargo.toml)))
GO := go -C scheduler
TUTTI := target/debug/tutti

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

##@ build

.PHONY: setup
setup: ## install what is needed to build guests (WASM_TOOLCHAIN=debian|rustup forces a way)
	@tools/setup-wasm >/dev/null

.PHONY: guests
guests: ## build plugin.wasm and the example guests to out/guest/, and check their sizes
	@tools/build-guest tutti-plugin $(EXAMPLES)
	@tools/check-sizes

.PHONY: build
build: guests ## build guests, the tutti command and the scheduler
	cargo build --locked -p tutti-harness
	$(MAKE) scheduler

.PHONY: scheduler
scheduler: ## build scheduler/bin/{kube-scheduler,tutti-local,bench-scheduler}
	$(GO) build -trimpath -ldflags "$(LDFLAGS)" -o bin/ ./cmd/...

.PHONY: stock-scheduler
stock-scheduler: ## build the wasm extension's own scheduler, without the bridge, for the tests
	$(GO) build -trimpath -o bin/stock-scheduler sigs.k8s.io/kube-scheduler-wasm-extension/scheduler/cmd/scheduler

##@ run

.PHONY: run
run: guests ## replay 200 nodes and 50 jobs, default scheduler against Tutti, and draw out/replay.svg
	cargo build --locked -q -p tutti-harness
	$(TUTTI) replay testdata/examples/training-50x8 --compare --seeds 5 --svg out/replay.svg

.PHONY: up
up: guests scheduler ## start a local cluster (etcd, API server, scheduler, fake GPU nodes) until Ctrl-C
	scheduler/bin/tutti-local --plugin out/guest/plugin.wasm

##@ check

.PHONY: test
test: guests ## every test: Rust, scenarios, Go, end-to-end
	cargo test --locked --workspace
	$(MAKE) test-go e2e

.PHONY: test-go
test-go: guests ## Go unit tests (GOFLAGS=-race for the race detector, which builds Kubernetes anew)
	$(GO) test -count=1 $$($(GO) list ./... | grep -v /e2e)

.PHONY: e2e
e2e: guests scheduler stock-scheduler ## end-to-end tests against a real API server, etcd and scheduler
	$(GO) test -count=1 -timeout 20m ./e2e/...

.PHONY: lint
lint: setup ## rustfmt, clippy (native and wasm32), gofmt, go vet, cargo-deny where installed
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	tools/clippy-guests tutti-plugin $(EXAMPLES)
	@test -z "$$(gofmt -l scheduler | tee /dev/stderr)" || { echo "gofmt: run gofmt -w on the files above" >&2; exit 1; }
	$(GO) vet ./...
	@if command -v cargo-deny >/dev/null; then cargo deny --locked check; else echo "lint: cargo-deny is not installed, skipped"; fi

.PHONY: docs
docs: ## build the Rust documentation and the crates to publish, warnings are errors
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --all-features --no-deps
	cargo package --quiet --locked --allow-dirty --no-verify $(addprefix -p kube-scheduler-,abi sdk-macros sdk)

.PHONY: fuzz
fuzz: ## fuzz every decoder for FUZZ_SECONDS each (needs a nightly toolchain and cargo-fuzz)
	tools/fuzz $(or $(FUZZ_SECONDS),60)

##@ measure

.PHONY: bench
bench: guests ## criterion and fuel benchmarks of SDK and harness, wazero benchmarks of the guests
	cargo bench --locked --workspace
	$(GO) test -run '^$$' -bench . ./...

.PHONY: bench-scheduler
bench-scheduler: guests scheduler ## real scheduler: with the plugin, without it, and Coscheduling (BENCH=--quick to try it out)
	bench/run.sh $(BENCH)

.PHONY: bench-training
bench-training: guests scheduler ## the workload of `make run` on a local cluster, 30 times faster: the plain scheduler against Tutti
	scheduler/bin/bench-scheduler training $(BENCH)

.PHONY: generate
generate: ## rewrite generated files: bridge messages (Rust, Go), the contract, golden vectors and traces
	UPDATE_GENERATED=1 cargo test --locked -q -p kube-scheduler-abi --test generated
	UPDATE_GENERATED=1 cargo test --locked -q -p kube-scheduler-sdk --all-features --test all
	$(GO) generate ./...
	UPDATE_GOLDEN=1 cargo test --locked -q -p tutti-harness

.PHONY: clean
clean: ## remove what was built
	rm -rf out target scheduler/bin
