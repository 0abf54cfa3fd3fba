# make demo      train a small GPT on the neuron device, from a clean clone, in one command
# make test      all tests (ARGS="tests/surface -k stream" for some)
# make ecosystem real clients on the device: transformers, accelerate, diffusers (ARGS as for test); needs a package index
# make sanitize  the C++ tests under the address, undefined-behaviour and thread sanitizers
# make lint      ruff, mypy, clang-format
# make bench     benchmarks against the CPU; make coverage writes docs/coverage.md
# make           set up and build only
# make clean     remove what was built; make distclean removes the virtual environments too
.PHONY: all setup demo test ecosystem sanitize lint bench coverage docs clean distclean
.DELETE_ON_ERROR:

PYTHON_SOURCES := src tests tools benchmarks examples
CXX_SOURCES := $(shell find csrc -name '*.cpp' -o -name '*.h')
BUILD_INPUTS := pyproject.toml CMakeLists.txt $(wildcard tools/*.py) $(wildcard src/torch_neuronx/chips/*.py) $(CXX_SOURCES)
PY := .venv/bin/python
# A waiting OpenMP thread must not burn the core that the other threads need (2-core machines, busy neighbours).
export OMP_WAIT_POLICY := passive

all: .venv/.built

setup: .venv/.ready

.venv/.ready: pyproject.toml tools/setup.sh
	@tools/setup.sh
	@touch $@

# An editable install: Python files are used where they are, the extension is rebuilt by ninja when its sources change.
.venv/.built: .venv/.ready $(BUILD_INPUTS)
	@echo "build: compiling the extension (a few minutes the first time)"
	@$(PY) -m pip install --quiet --no-build-isolation --no-deps --editable .
	@touch $@

demo: all
	@$(PY) examples/train_gpt.py $(ARGS)

test: all
	@$(PY) -m pytest $(ARGS)

.venv-ecosystem/.ready: .venv/.ready tools/ecosystem_env.sh tests/ecosystem/requirements.txt | .venv/.built
	@tools/ecosystem_env.sh

ecosystem: all .venv-ecosystem/.ready
	@.venv-ecosystem/bin/python -m pytest tests/ecosystem $(ARGS)

sanitize: setup
	@tools/sanitize.sh

lint: setup
	@$(PY) -m ruff check $(wildcard $(PYTHON_SOURCES))
	@$(PY) -m ruff format --check $(wildcard $(PYTHON_SOURCES))
	@$(PY) -m mypy
	@.venv/bin/clang-format --dry-run --Werror $(CXX_SOURCES)

bench: all
	@$(PY) benchmarks/run.py $(ARGS)

coverage: all
	@$(PY) tests/conformance/coverage.py $(ARGS)

docs: all
	@$(PY) tools/gen_environment_doc.py
	@$(PY) tools/gen_chip_doc.py
	@$(PY) tools/gen_nki_coverage.py

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .venv/.built
	find src tests -name __pycache__ -prune -exec rm -rf {} +
	rm -f src/torch_neuronx/_C*.so src/torch_neuronx/_build_info.py

distclean: clean
	rm -rf .venv .venv-ecosystem
