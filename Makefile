# Two commands matter: `make run` and `make test`. Each sets up what it needs and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SIM_MINUTES ?= 10

.PHONY: run test test-most test-spark lint soak torture bench clean

run: $(READY)
	$(BIN)/braid demo

# Spark's tests share one session, and so they run in one process, beside the others: each leaves time to the other.
# What each prints is shown when it has ended.
test: $(READY)
	$(MAKE) --jobs=3 --keep-going --output-sync=target lint test-most test-spark

test-most: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not soak" --ignore tests/spark

test-spark: $(READY)
	$(BIN)/python -m pytest tests/spark

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

soak: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m soak --ignore tests/spark
	$(BIN)/python -m sim --seed 100000 --minutes $(SIM_MINUTES)

# A replicated cluster of real processes, tormented for MINUTES; prints the tally.
torture: $(READY)
	$(BIN)/python -m tests.faults.torture --minutes $(or $(MINUTES),10)

bench: $(READY)
	$(BIN)/pip install --quiet -e ".[bench]"
	$(BIN)/python -m bench

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
