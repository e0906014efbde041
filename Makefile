# Everything a person types. Each target makes the virtual environment first, if it is missing.
SHELL := bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
export PATH := $(BIN):$(PATH)

# No tool calls home; idle threads do not spin, which matters where cores are shared.
export DO_NOT_TRACK := true
export DVC_NO_ANALYTICS := 1
export MLFLOW_DISABLE_TELEMETRY := true
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS := 60
export OMP_WAIT_POLICY := passive

ifneq ($(wildcard ../shared/data),)
export PLMCL_SHARED_DATA ?= $(abspath ../shared/data)
endif

# Prints the name of the run that is best on validation.
BEST := from pathlib import Path; from plmcl.run_record import RunRecord, best_run; \
	runs = sorted(Path("reports/runs").glob("*/run.json")); \
	print(best_run({run.parent.name: RunRecord.read(run) for run in runs}))

.DELETE_ON_ERROR:
.PHONY: help repro test lint format ui plots docs pictures flow schedule demo-retrain lock endurance audit
help:
	@echo "make repro     set up, run the whole pipeline, show the result"
	@echo "make test      all tests, as CI runs them"
	@echo "make lint      format, style and type checks"
	@echo "make ui        MLflow's pages, to compare runs"
	@echo "make plots     DVC's plots, dvc_plots/index.html, without the network"
	@echo "make docs      these pages as a site, site/index.html"
	@echo "make pictures  the pages' pictures, out of the last run (needs Chromium)"
	@echo "make flow      receive what is in data/incoming; retrain, if enough has arrived"
	@echo "make schedule  do so at the times of flows/prefect.yaml, until stopped"
	@echo "make demo-retrain  all of that on drawn images in a scratch folder, a few minutes"
	@echo "make format    format the code"
	@echo "make lock      renew requirements.lock from pyproject.toml"
	@echo "make endurance damaged files, hostile requests, load, kills; over an hour: benchmarks/results"
	@echo "make audit     known vulnerabilities of all that is installed (asks pypi.org itself)"

$(VENV)/.installed: requirements.lock pyproject.toml
	@echo "Installing into $(VENV) (about 7.5 GB; four to nine minutes) ..."
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "Python 3.11 to 3.13 is needed; say PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

repro: $(VENV)/.installed
	dvc repro
	@echo
	@dvc metrics show
	@echo
	@echo "Report: reports/index.html     Runs: make ui     A tagger: models/*/model.onnx"
	@echo "Try it: $(VENV)/bin/plmcl predict --model models/$$(python -c '$(BEST)')/model.onnx data/raw/scenes"

test: $(VENV)/.installed
	pytest -m "slow or not slow" --numprocesses 2 --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.installed
	ruff format --check .
	ruff check .
	mypy

format: $(VENV)/.installed
	ruff format .
	ruff check --fix .

ui: $(VENV)/.installed
	mlflow ui --backend-store-uri "$${MLFLOW_TRACKING_URI:-sqlite:///$(CURDIR)/mlflow.db}"

# What draws DVC's charts, out of an installed package; .dvc/plots.html looks for it there.
dvc_plots/vega.js: | $(VENV)/.installed
	@mkdir -p $(@D)
	@python -c 'import vl_convert; print(vl_convert.javascript_bundle(vl_version="5.21"))' > $@

plots: dvc_plots/vega.js
	dvc plots show

docs: $(VENV)/.installed
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict
	@echo "Look: $(VENV)/bin/mkdocs serve, or open site/index.html (without the search)"

pictures: $(VENV)/.installed
	for script in settings architecture images; do python docs/make_$$script.py || exit; done

flow: $(VENV)/.installed
	python flows/retrain.py

schedule: $(VENV)/.installed
	python flows/schedule.py

demo-retrain: $(VENV)/.installed
	python benchmarks/retraining_rounds.py demo

lock:
	uv pip compile --universal --python-version 3.11 --extra dev pyproject.toml \
		--output-file requirements.lock --no-header --no-annotate

endurance: $(VENV)/.installed
	python benchmarks/endurance.py --model "$$(ls models/*/model.onnx | head -1)" \
		--out benchmarks/results/endurance.json
	python benchmarks/training_kills.py --out benchmarks/results/training-kills.json
	python benchmarks/training_signals.py --out benchmarks/results/training-signals.json
	python benchmarks/retraining_rounds.py kills --out benchmarks/results/retraining-kills.json

# --strict: a package that pypi.org says nothing of is a failure, and so is a mirror without these data.
audit:
	scratch="$$(mktemp -d)"; trap 'rm -rf "$$scratch"' EXIT; \
	$(PYTHON) -m venv "$$scratch" && \
	"$$scratch/bin/pip" install --quiet --disable-pip-version-check pip-audit && \
	"$$scratch/bin/pip-audit" --strict --disable-pip --no-deps --requirement requirements.lock
