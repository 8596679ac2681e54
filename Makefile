# Everything a person does with the repository. `make help` lists it.
SHELL := bash
.DEFAULT_GOAL := help

GO ?= go
BIN := bin
COMMANDS := hindsight ingestor reflector consolidator mcp
GOLANGCI_VERSION := v2.15.0
# Tools are built once into a folder of the user's cache, so that a fresh clone does not build them again.
TOOLS ?= $(or $(HINDSIGHT_TOOLS_DIR),$(HOME)/.cache/hindsight/tools)
GOLANGCI := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
TEST_FLAGS ?= -race -shuffle=on
TEST_TIMEOUT ?= 20m
FUZZ_TIME ?= 10s
# Of test-chaos.
SEEDS ?= 1,2,3
TASKS ?= 300
OUTAGE ?= 60s
BENCH_DIR ?= $(BIN)/bench

.PHONY: help setup build up milvus demo test test-chaos lint fuzz bench baseline clean

help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Fetch the engine libraries into .engines/ (once; checked by sha256).
	@bash scripts/setup.sh

build: ## Build the programs into bin/.
	@mkdir -p $(BIN)
	@CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/ $(addprefix ./cmd/,$(COMMANDS))

up: setup build ## Set up, build and run everything in one process.
	@exec $(BIN)/hindsight up

milvus: ## Run a local Milvus in the foreground, for development; ARGS="--port 19530 --data DIR".
	@exec bash scripts/milvus.sh $(ARGS)

demo: setup build ## Show the whole loop: an agent that errs, what is learnt, the agent that asks first.
	@$(GO) run ./examples/demo

test: setup ## Run all tests on the real engines, with the race detector.
	@bash scripts/setup.sh --where-pinned milvus
	@$(GO) vet ./...
	@$(GO) test $(TEST_FLAGS) -timeout $(TEST_TIMEOUT) ./...

test-chaos: setup ## Kill processes, engines and Milvus at random under load, in larger sizes; prints what was killed and the counts.
	@bash scripts/setup.sh --where-pinned milvus
	@HINDSIGHT_TEST_CHAOS_SEEDS=$(SEEDS) HINDSIGHT_TEST_CHAOS_TASKS=$(TASKS) HINDSIGHT_TEST_CHAOS_OUTAGE=$(OUTAGE) \
		$(GO) test -count=1 -v -timeout 90m ./internal/chaos

lint: $(GOLANGCI) ## Run golangci-lint with the repository's settings, and check go.mod.
	@$(GO) mod tidy -diff
	@$(GOLANGCI) run ./...

$(GOLANGCI):
	@mkdir -p $(TOOLS)
	@echo "building golangci-lint $(GOLANGCI_VERSION) (once, some minutes)" >&2
	@GOBIN=$(TOOLS)/build $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(TOOLS)/build/golangci-lint $(GOLANGCI)

fuzz: setup ## Run every fuzz target for FUZZ_TIME (10s).
	@bash scripts/fuzz.sh $(FUZZ_TIME)

bench: setup build ## Measure everything beside the raw engines; the figures go to BENCH_DIR (bin/bench), a file a suite.
	@$(BIN)/hindsight bench all --json-dir $(BENCH_DIR)

baseline: setup build ## Compare shares, counts and ratios of sizes with the committed baselines; never a time.
	@$(BIN)/hindsight eval baseline

clean: ## Remove what was built; the engines and your data stay.
	@rm -rf $(BIN)
