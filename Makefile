# make demo       train an agent from scratch, deploy it, watch a session (about three minutes)
# make test       the tests that take seconds
# make check      lint, format, types
# make help       everything else
#
# The first target that needs it makes a virtual environment in .venv.
#   make test PYTHON=python3.12    makes it with another Python (3.11 or newer)
#   make test VENV=/some/env       uses an environment that you keep yourself, as it is

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
# Many small operators: one thread each is faster, and reproducible.
export OMP_NUM_THREADS ?= 1
SHAPES := --jaxtyping-packages=cicpe,shape_checker.check

ifeq ($(origin VENV),file)
READY := $(VENV)/.installed
else
READY :=
endif

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow test-shapes test-arithmetic test-lowest audit check format docs docs-serve package release bench bench-recipes attack soak train-zoo ready-made fuzz results figures reproduce copper clean

help:
	@echo "make demo           train an agent from scratch, deploy it, watch a session (about three minutes)"
	@echo "make test           the tests that take seconds"
	@echo "make test-slow      the tests that take minutes"
	@echo "make test-arithmetic  the conformance suites under the arithmetic of another processor, with shapes checked"
	@echo "make test-shapes    make test with every shape checked: half as long again"
	@echo "make test-lowest    a part of the tests with the lowest versions of everything but torch"
	@echo "make audit          look the installed packages up among the known vulnerabilities (needs a network)"
	@echo "make check          lint, format and types"
	@echo "make docs           build the site into site/, with every warning an error and every link checked"
	@echo "make docs-serve     show the site while you write it"
	@echo "make package        build wheel and sdist; try them and every extra in fresh environments (EXTRAS='core store')"
	@echo "make release        all checks, then date the changelog, commit and tag (pushes nothing)"
	@echo "make format         put the code in house format"
	@echo "make bench          measure the speed of training and deployment"
	@echo "make bench-recipes  race the recipes against each other"
	@echo "make attack         attack campaigns and their server, on this machine alone (about half an hour; SIZE=0.1 for a tenth)"
	@echo "make soak           an hour of clients and kills, then every promise checked (MINUTES=60 STORE=sqlite|postgres)"
	@echo "make train-zoo      train the models of the zoo anew (the minutes in scripts/results.py)"
	@echo "make ready-made     train, certify and measure the ready-made kinds of experiment (an hour on one core)"
	@echo "make fuzz           two thousand mutated experiment files"
	@echo "make results        measure the zoo and write the pages and figures of docs/results"
	@echo "make figures        draw every figure of docs/images (an hour on one core; SURVEY=folder of the copper survey, TASKS=per curve or cell)"
	@echo "make reproduce      the paper's tables by the paper's protocol, into docs/RESULTS.md (25 core-hours; ARGS='--family best-arm --jobs 2')"
	@echo "make copper         train and measure on the copper survey (after cicpe data fit)"
	@echo "make venv           only make the virtual environment ($(VENV))"
	@echo "make clean          remove the virtual environment and the caches"

# Installed again when the dependencies change; the package itself is linked, not copied.
.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

venv: $(READY)

demo: $(READY)
	$(BIN)/cicpe demo

test: $(READY)
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS)

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

# Without vector instructions, and with the matrix products that Intel's library has for every processor.
test-arithmetic: $(READY)
	MKL_CBWR=COMPATIBLE ATEN_CPU_CAPABILITY=default $(BIN)/python -m pytest $(SHAPES) -m "conformance and not slow" -n $(WORKERS)

test-shapes: $(READY)
	$(BIN)/python -m pytest $(SHAPES) -m "not slow" -n $(WORKERS)

# In environments of their own, which `make clean` removes.
LOWEST := tests/model tests/sessions/test_campaign.py tests/cli/test_session.py tests/server/test_routes.py \
	tests/integrations/test_gymnasium.py tests/integrations/test_optuna.py tests/plots tests/evaluation/test_bootstrap.py

test-lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet -c constraints.txt torch pytest pytest-xdist hypothesis httpx beartype \
		$$($(PYTHON) scripts/lowest_versions.py store server optuna gymnasium)
	.venv-lowest/bin/python -m pip install --quiet --no-deps -e .
	.venv-lowest/bin/python -m pytest -m "not slow" -n $(WORKERS) -W default $(LOWEST)

audit: $(READY)
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet pip-audit
	.venv-audit/bin/pip-audit --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Material's announcement about another product is no warning about these pages.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-serve: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

EXTRAS ?=

package: $(READY)
	$(BIN)/python scripts/try_package.py $(EXTRAS)

release: check test test-slow docs package
	$(BIN)/python scripts/release.py

bench: $(READY)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/time_to_paper.py

bench-recipes: $(READY)
	$(BIN)/python benchmarks/race_recipes.py

SIZE ?= 1

attack: $(READY)
	$(BIN)/python benchmarks/attack.py --size $(SIZE)

MINUTES ?= 60
STORE ?= sqlite

soak: $(READY)
	$(BIN)/python benchmarks/soak.py --minutes $(MINUTES) --store $(STORE) --keep

FAMILIES ?= binary-search best-arm gp-max ackley

train-zoo: $(READY)
	set -e; for family in $(FAMILIES); do $(BIN)/python scripts/results.py train $$family; done
	set -e; for family in $(filter-out ackley,$(FAMILIES)); do $(BIN)/python scripts/results.py alarm $$family; done

# Every template of cicpe.experiments: the model in the zoo, its certificate, and the page docs/results/ready-made.md.
ready-made: $(READY)
	$(BIN)/python scripts/ready_made.py train certify measure page

fuzz: $(READY)
	$(BIN)/python -m pytest -m slow tests/experiments -k mutations

results: $(READY)
	set -e; for family in $(FAMILIES); do $(BIN)/python scripts/results.py page $$family; done
	$(BIN)/python scripts/trust.py
	$(BIN)/python benchmarks/actors.py
	$(BIN)/python benchmarks/particles.py --table
	$(BIN)/python scripts/comparisons.py
	$(BIN)/python scripts/baseline_budgets.py
	$(BIN)/python scripts/references.py
	$(BIN)/python benchmarks/value_against_argmax.py
	$(MAKE) figures
	$(BIN)/python scripts/results.py readme

SURVEY ?=
TASKS ?=

# What needs the fitted copper fields (cicpe data fit FOLDER) or the survey is left as it is where they are missing.
figures: $(READY)
	$(BIN)/python scripts/figures.py $(if $(SURVEY),--survey $(SURVEY)) $(if $(TASKS),--tasks $(TASKS))

ARGS ?=

# Three seeds of every family and dimension; the same command again goes on where it was.
reproduce: $(READY)
	$(BIN)/python scripts/reproduce.py $(ARGS)

# Needs the fitted fields (cicpe data fit FOLDER); about three hours on one core.
copper: $(READY)
	set -e; for part in train "train --kinds distance --seed 1" measure baselines variations zoo trust; do $(BIN)/python scripts/copper.py $$part; done

clean:
	rm -rf .venv .venv-lowest .venv-audit site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
