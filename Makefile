# Every target sets up what it needs in .venv of this checkout; running it again costs nothing.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test soak bench docs constraints clean

demo: .venv/installed
	$(BIN)/python -m recbole_denoiser demo

test: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	sh tests/install_browser.sh
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2
	OMP_NUM_THREADS=1 ATEN_CPU_CAPABILITY=default $(BIN)/python -m pytest -n 2 tests/core

# Speed against RecBole and the plain backbone; QUICK=1: three minutes; RECBOLE_DATA=<folder> adds ml-1m
bench: .venv/installed
	$(BIN)/python tests/bench/bench.py $(if $(QUICK),--quick)

# The documentation as a site in build/site, links checked
docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	$(BIN)/mkdocs build --strict

# What takes longer than a test may: under 30 minutes on two idle cores; its table stands in docs/reliability.md
soak: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python tests/soak/all.py

.venv/installed: setup.cfg setup.py pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10) and 'Python 3.10 or newer is needed: make PYTHON=python3.11')"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch setuptools wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps recbole  # no ray for 3.12
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

# Versions for every supported Python, after a change of the dependencies in setup.cfg
constraints: .venv/installed
	$(BIN)/python -m pip install --quiet uv
	PATH=$(BIN):$$PATH $(BIN)/python tests/soak/constraints.py

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache
