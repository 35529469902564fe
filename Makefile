# make demo    a real training job, a real fault, one page with the right name (under 5 minutes)
# make test    everything that must hold before a change goes in
# make bench   what the exporter costs, next to node_exporter
# make evaluate  how right the detector's methods are, on simulated cases (under 5 minutes)
# make models  train the models that ship with the detector anew (under 10 minutes)
#
# All do their own set-up into .venv and .tools; `make clean` removes it.
# FAULT, SEED, HOLD and NO_NAMESPACES reach the demo through the environment: see `make help`.

SHELL := /bin/sh
export PATH := $(CURDIR)/.venv/bin:$(PATH):$(CURDIR)/.tools/usr/bin

.PHONY: help demo test lint format bench evaluate models setup-demo setup-test setup-bench clean

help:
	@echo 'make demo       run the whole loop on this machine: fault, finding, alert, page'
	@echo '                FAULT=slow_nic|cpu_contention|stopped_process|killed_node|memory_hog'
	@echo '                SEED=1             same faulty node every time'
	@echo '                HOLD=1             keep everything up after the page, until Ctrl-C'
	@echo '                NO_NAMESPACES=1    plain processes, also where namespaces work'
	@echo 'make test       lint, types, architecture, rules, unit and end-to-end tests'
	@echo 'make lint       only the part of `make test` that runs no code'
	@echo 'make format     let ruff format and repair the code'
	@echo 'make bench      what the exporter costs on this machine, next to node_exporter'
	@echo '                SECONDS=30         how long it measures'
	@echo 'make evaluate   how right the methods are, side by side, on simulated cases'
	@echo '                OUTPUT=FOLDER      keep the reports there, as JSON and SVG'
	@echo '                SEED=70000         of the first case; METHODS=peerwatch,minder,zscore'
	@echo 'make models     train the shipped models anew, on simulated healthy jobs'
	@echo 'make clean      remove .venv, .tools and caches'

demo: setup-demo
	@python -m peerwatch_demo

test: lint
	python -m pytest -n 2 --dist loadgroup

lint: setup-test
	ruff check .
	ruff format --check .
	mypy
	lint-imports
	python dashboards/build.py --check
	python docs/generate.py --check

format: setup-test
	ruff check --fix .
	ruff format .

bench: setup-bench
	@PYTHONPATH=tests:exporter:detector python -m bench.exporter --seconds $(or $(SECONDS),30)

# The seeds from 70000 on are for validation: nothing is chosen or tuned on them.
evaluate: setup-demo
	@cases=$$(mktemp -d) && trap 'rm -rf "$$cases"' EXIT && out=$${OUTPUT:-$$cases} && \
	mkdir -p "$$out" && for family in plain:20 hard:40; do \
		name=$${family%:*}; echo "== family $$name"; \
		python -m peerwatch_demo.simulator "$$cases/$$name" --family "$$name" \
			--cases "$${family#*:}" --seed "$${SEED:-70000}" && \
		python -m peerwatch_detector evaluate "$$cases/$$name" \
			--method "$${METHODS:-peerwatch,minder,zscore}" \
			--output "$$out/$$name.json" --picture "$$out/$$name.svg" || exit; \
	done

# The seeds below 20000 are for training: nothing is evaluated on them. An interrupted training goes
# on, since the same cases are simulated again.
models: setup-demo
	@cases=$$(mktemp -d) && trap 'rm -rf "$$cases"' EXIT && for family in plain hard; do \
		python -m peerwatch_demo.simulator "$$cases/$$family" --family "$$family" \
			--cases 20 --seed 1000 || exit; \
	done && python -m peerwatch_detector train --cases "$$cases" --integrated --device cpu \
		--steps 5000 --output detector/peerwatch_detector/models/default.npz

setup-demo setup-test setup-bench: setup-%:
	@.ci/setup $*

clean:
	rm -rf .venv .tools build dist
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
