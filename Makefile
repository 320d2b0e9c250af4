# Two commands on a fresh machine: `make demo` and `make test`. Each does all of its own set-up, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT ?= build/demo
TRITON := build/triton

.PHONY: demo test docs browser screenshots corpus clean

demo: $(READY)
	@mkdir -p $(OUT)
	$(BIN)/fairway export examples/airimu/recipe.py:airimu -o $(OUT)/airimu.onnx --overwrite

test: $(READY) $(TRITON)/.ready browser
	$(BIN)/ruff check src tests examples benchmarks docs
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist worksteal

# A client that tests ask `fairway serve` with; it wants an older protobuf than the rest.
$(TRITON)/.ready: tests/serve/requirements-triton.txt
	@bash tools/make-venv.sh $(PYTHON) $(TRITON)
	$(TRITON)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

docs: $(READY)
	$(BIN)/python docs/generate.py

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

# torch is named first and by number: a range would take the newest build, with gigabytes of CUDA.
$(READY): requirements.txt pyproject.toml
	@bash tools/make-venv.sh $(PYTHON) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q $(VENV)/lib >/dev/null 2>&1 || true
	@touch $(READY)

clean:
	rm -rf $(VENV) build
