# make demo    a real training job, a real fault, one page with the right name (under 5 minutes)
# make demo RESPOND=1  the same to its end: the node is drained, the job trains on (under 5 minutes)
# make demo FLEET=64  the same on a simulated fleet with a past (under 3 minutes)
# make test    everything that must hold before a change goes in
# make oldest  the tests of the programs with the oldest versions of packages that are allowed
# make generate  write again what repeats the code: rules, dashboards, tables and documents
# make bench   one table: what each program costs, next to what a user would do instead
# make evaluate  how right the detector's methods are, on simulated cases (under 5 minutes)
# make models  train the models that ship with the detector anew (under 10 minutes)
# make gpu     what needs an NVIDIA GPU, tried on one; writes docs/gpu.md (under 8 minutes, no network)
# make pictures  take all pictures of the documentation anew, from one run (15 minutes; chromium and pngquant)
#
# All do their own set-up into .venv and .tools; `make clean` removes it.
# FLEET, RESPOND, FAULT, SEED, HOLD and NO_NAMESPACES reach the demo through the environment: see `make help`.

SHELL := /bin/sh
export PATH := $(CURDIR)/.venv/bin:$(PATH):$(CURDIR)/.tools/usr/bin

.PHONY: help demo test oldest lint lint-types lint-others collected format generate bench evaluate gpu models pictures setup-demo setup-test setup-bench clean

help:
	@echo 'make demo       run the whole loop on this machine: fault, finding, alert, page'
	@echo '                FAULT=slow_nic|cpu_contention|stopped_process|killed_node|memory_hog'
	@echo '                SEED=1             same faulty node every time'
	@echo '                HOLD=1             keep everything up after the page, until Ctrl-C'
	@echo '                NO_NAMESPACES=1    plain processes, also where namespaces work'
	@echo 'make demo RESPOND=1 the same without a person: the responder takes the node out, and the'
	@echo '                job goes on without it from its last checkpoint, under a real Slurm (as root)'
	@echo '                or a driver of processes'
	@echo 'make demo FLEET=64  the same with a simulated fleet of 8 to 256 nodes, full of history'
	@echo '                FAULT=pfc_storm|hung_rank|lost_gpu|...   one of the exporter'"'"'s scenarios'
	@echo '                SEED=1 HOLD=1      as above'
	@echo 'make test       lint, types, architecture, rules, unit and end-to-end tests'
	@echo 'make oldest     the tests of the programs with the oldest packages that pyproject.toml allows'
	@echo '                TESTS=tests/exporter  only these'
	@echo 'make lint       only the part of `make test` that runs no code'
	@echo 'make format     let ruff format and repair the code'
	@echo 'make generate   write again what repeats the code: rules, dashboards, tables and documents'
	@echo 'make bench      one table of what each program costs on this machine, next to what a user'
	@echo '                would do instead, with goals; saves the run as build/bench.json'
	@echo '                SECONDS=30         how long the exporters are measured'
	@echo '                ONLY=logs,webhook  some of the files of tests/bench/rows'
	@echo '                OUTPUT=FILE        save the run there'
	@echo '                COMPARE=FILE       beside a saved run, ratios only'
	@echo '                LARGE=1            also 128 to 12,500 nodes, with exponents (8 GiB, half an hour)'
	@echo 'make evaluate   how right the methods are, side by side, on simulated cases'
	@echo '                OUTPUT=FOLDER      keep the reports there, as JSON and SVG'
	@echo '                SEED=70000         of the first case; METHODS=peerwatch,minder,zscore'
	@echo '                SOAK=2000 FAULTS=540 OUTPUT=FOLDER  healthy node-days, and cases of each'
	@echo '                                   kind of fault in turn; hours, goes on where it was'
	@echo 'make gpu        try on an NVIDIA GPU whatever needs one, and write docs/gpu.md; needs no network:'
	@echo '                python3 with nvidia-ml-py, pydantic, PyYAML and bcrypt, or a .venv that was brought'
	@echo '                SIMULATED=1        on the simulated driver of the demo'
	@echo 'make models     train the shipped models anew, on simulated healthy jobs'
	@echo 'make pictures   take all pictures of the documentation anew, from one run with three faults'
	@echo 'make clean      remove .venv, .tools and caches'

demo: setup-demo
	@python -m peerwatch_demo$(if $(FLEET),.fleet)

# Programs that tests start load what is compiled, also where the environment forbids to keep it.
test: export PYTHONDONTWRITEBYTECODE =
# Three of the workers play on real servers, which mostly wait; two cores are for the others. Types
# are checked by a test, meanwhile.
test: setup-test
	@$(MAKE) --no-print-directory -j 2 --keep-going --output-sync=target lint-others collected
	python -m pytest -n 5 --dist loadgroup

# With the oldest versions of the packages that pyproject.toml allows, in an environment of its own.
oldest: setup-test
	@python .ci/oldest.py $(TESTS)

# mypy takes as long as all the others.
lint: setup-test
	@$(MAKE) --no-print-directory -j 2 --keep-going --output-sync=target lint-types lint-others

lint-types:
	mypy

lint-others:
	ruff check .
	ruff format --check .
	lint-imports
	python dashboards/build.py --check
	python docs/generate.py --check

# In a new clone each worker would rewrite all assertions for itself, and at the same time.
collected:
	@[ -e .pytest_cache/collected ] || { python -m pytest --collect-only -q >/dev/null 2>&1 && touch .pytest_cache/collected; } || true

format: setup-test
	ruff check --fix .
	ruff format .

generate: setup-test
	python docs/generate.py
	python dashboards/build.py

bench: setup-bench
	@PYTHONPATH=tests:exporter:detector python -m bench --seconds $(or $(SECONDS),30) $(if $(LARGE),--large) \
		$(if $(ONLY),--only $(ONLY)) $(if $(COMPARE),--compare $(COMPARE)) --output $(or $(OUTPUT),build/bench.json)

# The seeds from 70000 on are for validation: nothing is chosen or tuned on them.
evaluate: setup-demo
	@if [ -n "$(LIVE)" ]; then out=$${OUTPUT:-reports}; mkdir -p "$$out" && \
		exec python -m peerwatch_demo.live "$$out/live.jsonl" --seed "$${SEED:-70000}" \
			--repeats "$${REPEATS:-3}" --health-minutes "$${HEALTH:-60}"; fi && \
	cases=$$(mktemp -d) && trap 'rm -rf "$$cases"' EXIT && trap 'exit 130' INT && \
	trap 'exit 143' TERM HUP && out=$${OUTPUT:-$$cases} && \
	mkdir -p "$$out" && for family in plain:20 hard:40; do \
		name=$${family%:*}; echo "== family $$name"; \
		python -m peerwatch_demo.simulator "$$cases/$$name" --family "$$name" \
			--cases "$${family#*:}" --seed "$${SEED:-70000}" && \
		python -m peerwatch_detector evaluate "$$cases/$$name" \
			--method "$${METHODS:-peerwatch,minder,zscore}" \
			--output "$$out/$$name.json" --picture "$$out/$$name.svg" || exit; \
	done && echo "== family soak" && \
	python -m peerwatch_demo.simulator.evaluation "$$out/soak.jsonl" --family soak \
		--seed "$${SEED:-70000}" --node-days "$${SOAK:-5}" && echo "== family each_fault" && \
	python -m peerwatch_demo.simulator.evaluation "$$out/each_fault.jsonl" --family each_fault \
		--seed "$${SEED:-70000}" --cases "$${FAULTS:-18}" && echo "== incidents" && \
	python -m peerwatch_demo.incidents --seed "$${SEED:-70000}" --mechanisms \
		--output "$$out/incidents.jsonl"

# Runs from the source tree with the packages that are there: a machine with a GPU may have no
# network. What hangs is ended after 8 minutes.
gpu:
	@PYTHONPATH=tests:exporter:detector timeout 480 python3 -m gpu $(if $(SIMULATED),--simulated)

# The seeds below 20000 are for training: nothing is evaluated on them. An interrupted training goes
# on, since the same cases are simulated again.
models: setup-demo
	@cases=$$(mktemp -d) && trap 'rm -rf "$$cases"' EXIT && trap 'exit 130' INT && \
	trap 'exit 143' TERM HUP && for family in plain hard; do \
		python -m peerwatch_demo.simulator "$$cases/$$family" --family "$$family" \
			--cases 20 --seed 1000 || exit; \
	done && python -m peerwatch_detector train --cases "$$cases" --integrated --device cpu \
		--steps 5000 --output detector/peerwatch_detector/models/default.npz

# Needs Debian's packages chromium, fonts-dejavu-core and pngquant.
pictures: setup-demo
	@python docs/pictures/take.py

setup-demo setup-test setup-bench: setup-%:
	@.ci/setup $* $(if $(RESPOND),slurm)

clean:
	rm -rf .venv .tools build dist
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
