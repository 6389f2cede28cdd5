# The two commands: `make demo` and `make test`. Each sets up what is missing first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH := 2.13.0
# The Triton that the tests are run with. PyTorch's builds for CUDA bring their own.
TRITON := $(if $(filter x86_64,$(shell uname -m)),triton==3.8.0)
STAMP := $(VENV)/.loom-dependencies
WHEEL_VENV := build/wheel-venv
TENSORFLOW_VENV := build/tensorflow-venv
EXTENSION := $(VENV)/.loom-extension
CPP := $(shell find csrc -name '*.cpp' -o -name '*.h')
GENERATED := $(wildcard csrc/*/generated/*.inc)
NATIVE := $(wildcard tests/native/*.cpp tests/native/*.h)

# Byte code is kept: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test fit site conformance benchmark sanitize build wheel check-wheel check-tensorflow check-torch \
	checkout-of-torch wheel-of-torch check-release release check-python check-syntax commit-share docs lint format clean

demo: build
	$(BIN)/loom demo

# A quarter, which the number of commits chooses: four commits in a row have all of them.
COMMIT_SHARE := $(shell expr $$(git rev-list --count HEAD 2> /dev/null || echo 0) % 4)/4
commit-share:
	@echo $(COMMIT_SHARE)

# Of the tests marked slow, which take two thirds of the time of all, a quarter: four commits run each of them. `make
# test SLOW=0/1` runs all.
SLOW := $(COMMIT_SHARE)
test: build
	$(BIN)/python -m pytest -m "not conformance or sample" --slow-share $(SLOW) --stateful-seconds 20 --durations 40

# The efficiency of chips, from measurements: `make fit DATA=folder`. Steps of models need timm and torchvision.
fit: build
	$(BIN)/python -m benchmarks.calibrate --chip h200 $(DATA)/h200_ops.json $(DATA)/h200_models.json \
		--out torch_loom/chips/h200.toml
	$(BIN)/python -m benchmarks.fit_chips $(DATA) --steps --traces build/traces.json --out torch_loom/chips
	$(BIN)/python -m benchmarks.host_issue --chip h200 $(DATA)/h200_models.json --write

# What users install: without bindings for tests, and without the generators of the docs.
wheel: $(STAMP)
	rm -rf dist
	$(BIN)/pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .

# The wheel in an environment that has nothing of this checkout.
check-wheel: wheel
	rm -rf $(WHEEL_VENV)
	$(PYTHON) -m venv $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/pip install --quiet torch==$(TORCH)
	$(WHEEL_VENV)/bin/pip install --quiet "$$(ls dist/torch_loom-*.whl)[demo]"
	cd $(WHEEL_VENV) && bin/loom demo

# Modules of TensorFlow, in an environment of their own: with what it needs, it has more than a gigabyte. That
# environment sees the packages of the first one, so that pip leaves torch and numpy as they are.
check-tensorflow: build
	$(PYTHON) -m venv $(TENSORFLOW_VENV)
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > build/packages.pth
	cp build/packages.pth "$$($(TENSORFLOW_VENV)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")"
	$(BIN)/pip freeze --exclude-editable > build/constraints.txt
	$(TENSORFLOW_VENV)/bin/pip install --quiet --constraint build/constraints.txt tensorflow-cpu
	$(TENSORFLOW_VENV)/bin/python -m pytest -n 0 tests/pybuda/test_tensorflow.py

# The documentation as a site, in build/site.
site: build
	$(BIN)/pip install --quiet "mkdocs-material>=9.7,<10" "mkdocstrings[python]>=1.0,<2"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# What a version of PyTorch and of Python must pass that is not the one of `make test`: the driver's contract, loading,
# dispatch, graphs, CUDA's name and the compiler.
SAMPLE := tests/test_torch_version.py tests/driver tests/torch tests/cuda tests/compiler \
	tests/device/test_accelerator.py tests/device/test_autoload.py tests/device/test_fitness.py tests/device/test_graph*.py
# A copy of the sources, so that no build finds the objects of another.
CHECKED := build/torch-$(TORCH)-$(notdir $(PYTHON))

# Where the configuration of pip holds a version back, that is left aside: it would also take it away again.
FREE_PIP := PIP_CONFIG_FILE=/dev/null PIP_CONSTRAINT=
UNHELD := $$(test ! -e $(CURDIR)/$(CHECKED)/free || echo env $(FREE_PIP))

# An environment with one version of PyTorch.
checkout-of-torch:
	$(PYTHON) -m venv $(CHECKED)/venv
	$(CHECKED)/venv/bin/pip install --quiet torch==$(TORCH) || \
		{ touch $(CHECKED)/free; $(FREE_PIP) $(CHECKED)/venv/bin/pip install --quiet torch==$(TORCH); }
	mkdir -p $(CHECKED)/checkout
	find $(CHECKED)/checkout -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
	tar -c --exclude=./build --exclude=./.venv --exclude=./.git --exclude='*.so' --exclude=_built_with.py \
		--exclude=__pycache__ . \
		| tar -x -C $(CHECKED)/checkout
	$(UNHELD) $(CHECKED)/venv/bin/pip install --quiet "setuptools>=77" wheel ninja

# make check-torch TORCH=2.14.1 PYTHON=python3.11: the sample on any version, in an environment of its own. SHARE=0/3
# runs a third of it, whose names a hash chooses; SHARE=$(COMMIT_SHARE) a quarter, so that four commits run each test.
# What a build for CUDA alone can show is run whole, slow tests too.
SHARE := 0/1
WHOLE := tests/cuda/test_build_for_cuda.py
check-torch: checkout-of-torch
	cd $(CHECKED)/checkout && \
		$(UNHELD) ../venv/bin/pip install --quiet --no-build-isolation --editable ".[demo,examples,test]"
	$(CHECKED)/venv/bin/pip list | grep "^torch  *$(TORCH)"
	cd $(CHECKED)/checkout && ../venv/bin/python -m pytest -n 2 -m "not conformance" $(WHOLE)
	cd $(CHECKED)/checkout && ../venv/bin/python -m pytest -n 2 -m "not slow and not conformance" \
		-p tests.conformance.suite_plugin --share $(SHARE) $(WHOLE:%=--ignore=%) $(SAMPLE)

# make release: in dist, the sources and one wheel for these versions, checked beside each. TORCHES="2.13.0 2.14.1" leaves
# out 2.15.0, whose build for CUDA is a download of 3 GB.
TORCHES := 2.13.0 2.14.1 2.15.0
release: build
	rm -rf dist
	$(BIN)/python setup.py --quiet sdist
	for torch in $(TORCHES); do \
		$(MAKE) --no-print-directory wheel-of-torch TORCH=$$torch || exit 1; \
	done
	$(BIN)/python -m tools.release \
		$(foreach torch,$(TORCHES),build/torch-$(torch)-$(notdir $(PYTHON))/wheel/torch_loom-*.whl) --out dist
	for torch in $(TORCHES); do \
		$(MAKE) --no-print-directory check-release TORCH=$$torch || exit 1; \
	done

# Built of the sources in dist, as users would: what is missing there is missed here.
wheel-of-torch: checkout-of-torch
	rm -rf $(CHECKED)/wheel
	mkdir -p $(CHECKED)/sources
	find $(CHECKED)/sources -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
	tar -x -z -f dist/torch_loom-*.tar.gz --strip-components 1 -C $(CHECKED)/sources
	cd $(CHECKED)/sources && ../venv/bin/pip wheel --quiet --no-build-isolation --no-deps --wheel-dir ../wheel .

# What users do: the wheel beside a torch that is there, which stays as it is.
check-release:
	$(CHECKED)/venv/bin/pip uninstall --quiet --yes torch-loom
	$(UNHELD) $(CHECKED)/venv/bin/pip install --quiet dist/torch_loom-*.whl
	$(CHECKED)/venv/bin/pip list | grep "^torch  *$(TORCH)"
	cd $(CHECKED) && venv/bin/loom doctor && venv/bin/loom run $(CURDIR)/tools/release_check.py

PYTHONS ?= $(shell .ci/pythons)
# The same on each that is here. PyTorch's wheels for others come from the index: a build for CUDA has 3 GB.
check-python: check-syntax
	for python in $(PYTHONS); do \
		$(MAKE) --no-print-directory check-torch PYTHON=$$python || exit 1; \
	done

# Whether each of them can read the sources, which takes seconds and needs no torch. Nothing is written.
check-syntax:
	for python in $(PYTHONS); do \
		$$python -W error -c "import pathlib; [compile(each.read_bytes(), str(each), 'exec') for folder in \
			('benchmarks', 'tests', 'tools', 'torch_loom') for each in pathlib.Path(folder).rglob('*.py')]" || exit 1; \
		$$python --version; \
	done

docs: build
	$(BIN)/python -m tools.docs

conformance: build
	$(BIN)/python -m tests.conformance

benchmark: build
	$(BIN)/python -m benchmarks.dispatch --check
	$(BIN)/python -m benchmarks.cold --check
	$(BIN)/python -m benchmarks.growth --check
	$(BIN)/python -m benchmarks.names --check
	$(BIN)/python -m benchmarks.models --check
	$(BIN)/python -m benchmarks.allocator_speed --check
	$(BIN)/python -m benchmarks.graphs --check
	$(BIN)/python -m benchmarks.streams --check
	$(BIN)/python -m benchmarks.tape --check
	$(BIN)/python -m benchmarks.random_numbers --check
	$(BIN)/python -m benchmarks.compile --check
	$(BIN)/python -m benchmarks.balance --check
	$(BIN)/python -m benchmarks.import_time --check

# The layers below PyTorch with their own tests, under the compiler's sanitizers: CXX says which compiler.
SANITIZED := $(shell find csrc/driver csrc/kernel_checks csrc/runtime csrc/telemetry csrc/util tests/native -name "*.cpp")
SANITIZE_FLAGS := -std=c++20 -O1 -g -fno-omit-frame-pointer -Wall -Wextra -Icsrc -Itests/native -pthread
SANITIZE_address := -fsanitize=address,undefined -fno-sanitize-recover=all
SANITIZE_thread := -fsanitize=thread

sanitize:
	$(MAKE) --no-print-directory -j2 build/sanitize/address/native build/sanitize/thread/native
	build/sanitize/address/native
	TSAN_OPTIONS=halt_on_error=1 build/sanitize/thread/native

define SANITIZER
build/sanitize/$(1)/%.o: %.cpp
	@mkdir -p $$(@D)
	$$(CXX) $$(SANITIZE_FLAGS) $$(SANITIZE_$(1)) -MMD -MP -c $$< -o $$@

build/sanitize/$(1)/native: $$(SANITIZED:%.cpp=build/sanitize/$(1)/%.o)
	$$(CXX) $$(SANITIZE_$(1)) -pthread $$^ -o $$@

-include $$(SANITIZED:%.cpp=build/sanitize/$(1)/%.d)
endef
$(eval $(call SANITIZER,address))
$(eval $(call SANITIZER,thread))

build: $(EXTENSION)

# torch comes first and alone: the extension is compiled against the installed one, never an isolated copy.
$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==$(TORCH)
	$(BIN)/pip install --quiet "setuptools>=77" wheel ninja
	touch $@

$(EXTENSION): $(STAMP) $(CPP) $(GENERATED) setup.py
	$(BIN)/pip install --quiet --no-build-isolation --editable ".[demo,examples,test,lint,release]" $(TRITON)
	touch $@

lint: build
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP) $(NATIVE)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP) $(NATIVE)

clean:
	rm -rf build $(VENV) torch_loom/_C*.so torch_loom/_built_with.py torch_loom/include/driver
