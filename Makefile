# The two commands: `make demo` and `make test`. Each sets up what is missing first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := torch==2.13.0
STAMP := $(VENV)/.loom-dependencies
EXTENSION := $(VENV)/.loom-extension
CPP := $(shell find csrc -name '*.cpp' -o -name '*.h')

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

$(EXTENSION): $(STAMP) $(CPP) setup.py
	$(BIN)/pip install --quiet --no-build-isolation --editable ".[demo,test,lint]"
	touch $@

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	find csrc -name '*.cpp' -o -name '*.h' | xargs $(BIN)/clang-format --dry-run --Werror

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find csrc -name '*.cpp' -o -name '*.h' | xargs $(BIN)/clang-format -i

clean:
	rm -rf build $(VENV) torch_loom/_C*.so
