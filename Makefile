# Two commands on a fresh machine: `make demo` and `make test`. Each does all of its own set-up, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT ?= build/demo
# The build of torch that the environment gets. By number: a range would take the newest build, with gigabytes of CUDA.
TORCH ?= 2.13.0
TRITON := build/triton

.PHONY: demo test lint types tests docs site browser screenshots corpus clean

demo: $(READY)
	@mkdir -p $(OUT)
	$(BIN)/fairway export examples/airimu/recipe.py:airimu -o $(OUT)/airimu.onnx --overwrite

test: lint types tests

lint: $(READY)
	$(BIN)/ruff check src tests examples benchmarks docs

types: $(READY)
	$(BIN)/mypy

tests: $(READY) $(TRITON)/.ready browser
	$(BIN)/python -m pytest -n 2 --dist worksteal

# A client that tests ask `fairway serve` with; it wants an older protobuf than the rest.
$(TRITON)/.ready: tests/serve/requirements-triton.txt
	@bash tools/make-venv.sh $(PYTHON) $(TRITON)
	$(TRITON)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

docs: $(READY)
	$(BIN)/python docs/generate.py

# Strict: a broken link, or a page that nothing leads to, is an error. tests/docs/test_site.py builds it in the same way.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html; for its search: $(BIN)/python -m http.server -b 127.0.0.1 -d build/site"

browser:
	@bash tools/get-browser.sh

screenshots: $(READY) browser
	$(BIN)/python docs/screenshots.py

# Hours of work, resumed where it stopped. Tools that need an older transformers run in an environment of their own.
OLDER := build/older
corpus: $(READY) $(OLDER)/.ready
	$(BIN)/python benchmarks/corpus/run.py --jobs 2
	PYTHONPATH=src $(OLDER)/bin/python benchmarks/corpus/run.py --jobs 2 --older
	$(BIN)/python benchmarks/corpus/run.py --write

$(OLDER)/.ready: benchmarks/corpus/requirements-older.txt
	@bash tools/make-venv.sh $(PYTHON) $(OLDER)
	$(OLDER)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(OLDER)/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/corpus/requirements-older.txt
	@touch $@

$(READY): requirements.txt pyproject.toml
	@bash tools/make-venv.sh $(PYTHON) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==$(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q $(VENV)/lib >/dev/null 2>&1 || true
	@touch $(READY)

clean:
	rm -rf $(VENV) build
