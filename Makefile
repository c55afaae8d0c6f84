# Each target does all the set-up it needs, once; nothing is done again that has not changed.
#
#   make serve   the page, on http://localhost:8000/ (PORT=...)
#   make test    every test, in CPython, Node, Pyodide, Chromium and Firefox (BROWSERS=chromium: without Firefox)
#   make lint    ruff, mypy, tsc, biome
#   make bench   the benchmarks, in Chromium, at sizes for an adapter that is software
#   make bench-gpu  those of a real GPU, beside native PyTorch; writes BENCHMARKS.md
#   make screenshots        the pictures of the page that are in README
#   make conformance        PyTorch's own table of operators, whole: hours; writes COMPATIBILITY.md
#   make conformance-check  as much of it as 100 seconds take, another part with each commit
#   make conformance-mutate disturbs every operator, and sees whether the run notices
#   make fuzz    random programs, in CPython and in Pyodide, SECONDS=60 of each kind: RESULTS=folder
#   make fuzz-files         10,000 damaged files of each kind of model
#   make libraries          other people's libraries on tabtorch as torch: their section of COMPATIBILITY.md (NAMES=...: of these)
#   make everything         all slices of all tests, conformance, fuzz and soak: many hours
#   make soak    100,000 training steps of each kind, faults, hostile files: RESULTS=folder
#   make thumbnails         runs the demos, and keeps a picture of each for the gallery (NAMES=...: of these)
#   make wheel   dist/tabtorch-*.whl (for a tab), dist/pip (for pip)     make site   web/dist
#   make runtime the bundled JavaScript         make clean  remove what was built

PYTHON ?= python3
PORT ?= 8000
BROWSERS ?= chromium firefox
JOBS ?= 2
# real PyTorch is the oracle here: `import torch` is to find no device of ours
export TORCH_DEVICE_BACKEND_AUTOLOAD ?= 0

BIN := .venv/bin
PY := $(BIN)/python
TSC := node_modules/.bin/tsc
BIOME := node_modules/.bin/biome
JS_TESTS := $(wildcard js/test/*.test.ts js/test/*.test.mjs js/test/*.test.js)

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
RUNTIME := py/tabtorch/bridge/runtime.js
HOST := py/tabtorch/bridge/host.mjs
WHEEL := dist/tabtorch-$(VERSION)-py3-none-any.whl
PACKAGES := dist/packages/.fetched
SITE := web/dist/index.html

files = $(shell find $(1) -type f -not -path '*/__pycache__/*' -not -path 'web/dist/*' -not -path '*/.*' 2>/dev/null)
JS_SOURCES := js/build.mjs js/devices.mjs $(call files,js/src)
PY_SOURCES := $(filter-out $(RUNTIME) $(HOST),$(call files,py/tabtorch)) $(call files,wgsl)
WEB_SOURCES := $(call files,web) $(call files,docs) py/pytest_tabtorch.py $(wildcard COMPATIBILITY.md BENCHMARKS.md)

.DEFAULT_GOAL := help
PY_TESTS = cd tests && $(CURDIR)/$(PY)
RESULTS ?= $(CURDIR)/results
RECORDED ?= $(CURDIR)/dist/recorded.pt
SAMPLES ?= 400
PYODIDE_SECONDS ?= 20
PYODIDE_TIMEOUT ?= 1200
SECONDS ?= 60

.PHONY: help serve test test-cpython test-pyodide test-browsers recorded lint bench bench-gpu screenshots fuzz everything soak conformance conformance-check conformance-mutate libraries thumbnails wheel site runtime clean tools browsers fuzz-files
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -19

serve: $(SITE) .venv/.cli
	@$(BIN)/tabtorch serve --port $(PORT)

# The quick test comes first; the slow ones, which want a machine to themselves, last. The files between are run a few to a
# process, always the same ones together, in the same order. A browser that was too slow once, on a busy machine, is asked
# again; any other failure counts at once. Of what is long (tests/slices.py) each commit runs another slice.
test: .venv/.dev $(SITE) browsers
	$(PY) -m pytest -q tests/test_tiny.py
	$(MAKE) --no-print-directory test-cpython test-pyodide test-browsers

test-cpython: .venv/.dev $(RUNTIME) $(HOST)
	printf '%s\n' $(filter-out tests/test_tiny.py $(wildcard tests/test_cli*.py),$(sort $(wildcard tests/test_*.py))) | \
	  xargs -n 10 -P $(JOBS) $(PY) -m pytest -q
	$(if $(JS_TESTS),node --test $(JS_TESTS))

# PyTorch's side of the operators that are compared where PyTorch is not
recorded: .venv/.dev $(RUNTIME) $(HOST)
	$(PY_TESTS) -m wasm.record $(RECORDED) --count $(SAMPLES)

test-pyodide: .venv/.dev $(WHEEL) recorded
	$(PY_TESTS) -m wasm -j $(JOBS) --recorded $(RECORDED) --seconds $(PYODIDE_SECONDS) --timeout $(PYODIDE_TIMEOUT)

test-browsers: .venv/.dev $(SITE) browsers recorded
	TABTORCH_BROWSERS="$(BROWSERS)" TABTORCH_RECORDED=$(RECORDED) \
	  $(PY) -m pytest -q --reruns 1 --only-rerun TimeoutError $(wildcard tests/test_cli*.py) $(wildcard tests/browser)

lint: .venv/.dev node_modules/.package-lock.json
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(TSC) --noEmit
	$(TSC) --noEmit -p web
	$(BIOME) ci
	@! grep -n '"resolved"' package-lock.json || { echo "package-lock.json names a registry"; exit 1; }

bench: .venv/.dev $(SITE) browsers
	$(PY_TESTS) -m bench.overhead
	$(PY_TESTS) -m bench --small --no-native

bench-gpu: .venv/.dev $(SITE) browsers
	$(PY_TESTS) -m bench --rivals --page ../BENCHMARKS.md

screenshots: .venv/.dev $(SITE) browsers
	$(PY_TESTS) -m browser.screenshots

conformance: .venv/.dev $(RUNTIME) $(HOST)
	cd tests && $(CURDIR)/$(PY) -m conformance -j $(JOBS) --page ../COMPATIBILITY.md

conformance-check: .venv/.dev $(RUNTIME) $(HOST)
	cd tests && $(CURDIR)/$(PY) -m conformance -j $(JOBS) --samples 2 --slice auto --seconds 100

conformance-mutate: .venv/.dev $(RUNTIME) $(HOST)
	cd tests && $(CURDIR)/$(PY) -m conformance -j $(JOBS) --mutate

# PyTorch's libraries in an environment of their own, .libraries, which the first run makes
libraries: .venv/.dev $(RUNTIME) $(HOST)
	$(PY_TESTS) -m libraries -j $(JOBS) $(if $(NAMES),$(NAMES),--page ../COMPATIBILITY.md)

# $(call each,"command" …,options): python -m command options, of each. One that fails does not keep the others from running.
define each
@cd tests; for command in $(1); do \
  echo "python -m $$command"; \
  $(CURDIR)/$(PY) -m $$command $(2) || failed=1; \
done; exit $${failed:-0}
endef

# Fresh seeds, for so long each; one that fails is printed, and can be asked for again.
FUZZERS := "fuzz.aliases" "fuzz.compiled" "fuzz.compiled --device webgpu" \
  "wasm -m fuzz.aliases" "wasm -m fuzz.compiled" "wasm -m fuzz.compiled --device webgpu" \
  "fuzz.backend" "fuzz.scripted" "fuzz.threads --programs 1000000" "fuzz.files --programs 1000000 -j $(JOBS)"

fuzz: .venv/.dev $(RUNTIME) $(HOST) $(WHEEL)
	$(call each,$(FUZZERS),--seconds $(SECONDS) --results $(RESULTS)/fuzz.jsonl)

# 10,000 damaged files of each kind that models come in: an error each, or a model; nothing hangs, nothing of a file is run
FILES := "fuzz.plan_files" "fuzz.exported_files" "fuzz.script_files" "fuzz.onnx_files" "fuzz.gguf_files"

fuzz-files: .venv/.dev $(RUNTIME) $(HOST)
	$(call each,$(FILES),)

# All of it: every slice, every operator, the fuzzers and the soak. Hours; says at the end what ran, and how it ended.
everything: .venv/.dev $(SITE) browsers
	.ci/everything $(RESULTS)

SOAKS := "soak" "soak --device cpu" "wasm -m soak --seconds 600" \
  "faults memory" "faults memory --device webgpu" "faults loss --device webgpu" "fuzz.files -j $(JOBS)"

soak: .venv/.dev $(RUNTIME) $(HOST) $(WHEEL)
	$(call each,$(SOAKS),--results $(RESULTS)/soak.jsonl)

thumbnails: .venv/.dev $(SITE) browsers
	$(PY) web/thumbnails.py $(NAMES)

wheel: $(WHEEL)
site: $(SITE)
runtime: $(RUNTIME) $(HOST)

clean:
	rm -rf dist web/dist $(RUNTIME) $(HOST)

# -- what they need

tools:
	@.ci/tools $(PYTHON)

browsers: .venv/.dev
	@$(PY) .ci/browsers.py $(BROWSERS)

.venv/.cli: pyproject.toml build_wheel.py | tools
	@test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install -q --disable-pip-version-check -e '.[cli]'
	@touch $@

.venv/.dev: .venv/.cli
	$(PY) -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@

node_modules/.package-lock.json: package.json package-lock.json | tools
	npm ci --no-audit --no-fund --ignore-scripts
	@touch $@

$(RUNTIME): $(JS_SOURCES) node_modules/.package-lock.json
	node js/build.mjs
	@touch $(RUNTIME) $(HOST)

$(HOST): $(RUNTIME)
	@test -f $@ || node js/build.mjs

$(WHEEL): .venv/.cli $(PY_SOURCES) $(RUNTIME) $(HOST) build_wheel.py pyproject.toml LICENSE $(wildcard README.md)
	$(PY) build_wheel.py
	@touch $@

# of Python 3.14, which is Pyodide's; nothing is asked of the network where all are there
$(PACKAGES): web/packages.txt .venv/.cli
	$(PY) -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.14 \
	  --require-hashes -r web/packages.txt -d $(@D)
	@touch $@

$(SITE): $(WHEEL) $(PACKAGES) $(WEB_SOURCES) node_modules/.package-lock.json
	node_modules/.bin/vite build web --logLevel warn
	@touch $@
