# The two commands: `make demo` and `make test`. Each sets up what is missing first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0
STAMP := $(VENV)/.loom-dependencies
EXTENSION := $(VENV)/.loom-extension
CPP := $(shell find csrc -name '*.cpp' -o -name '*.h')
GENERATED := $(wildcard csrc/torch/generated/*.inc)

.PHONY: demo test conformance benchmark build lint format clean

demo: build
	$(BIN)/loom demo

test: build
	$(BIN)/python -m pytest -m "not conformance or sample"

conformance: build
	$(BIN)/python -m tests.conformance

benchmark: build
	$(BIN)/python -m benchmarks.dispatch --check
	$(BIN)/python -m benchmarks.models --check

build: $(EXTENSION)

# torch comes first and alone: the extension is compiled against the installed one, never an isolated copy.
$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(TORCH)
	$(BIN)/pip install --quiet "setuptools>=70" wheel ninja
	touch $@

$(EXTENSION): $(STAMP) $(CPP) $(GENERATED) setup.py
	$(BIN)/pip install --quiet --no-build-isolation --editable ".[demo,test,lint]"
	touch $@

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

clean:
	rm -rf build $(VENV) torch_loom/_C*.so torch_loom/_built_with.py
