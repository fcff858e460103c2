# `make book` and `make test` do all the set-up themselves; see `make help`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)

NAME := dp-imbalance-book-$(shell sed -n 's/^version: //p' CITATION.cff)

.PHONY: help book pdf archive committed test quick lab rerun record locked clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /make \1\t/' | expand -t 16

# The stamp makes repeats free: nothing is installed again until the pins or the project's own metadata change.
$(STAMP): constraints.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, found " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

book: $(STAMP) ## build the HTML (warnings are errors) and print where it is
	$(BIN)/dpbook build

pdf: $(STAMP) ## the main chapters as one PDF; needs Chromium
	$(BIN)/dpbook build --pdf

archive: committed book pdf ## what a release consists of, in dist/: sources with notebooks, HTML, PDF, checksums
	rm -rf dist && mkdir dist
	git archive --prefix $(NAME)/ --output dist/$(NAME).tar.gz HEAD
	tar --create --gzip --file dist/$(NAME)-html.tar.gz --directory _build --transform 's,^html,$(NAME)-html,' html
	cp _build/book.pdf dist/$(NAME).pdf
	cd dist && sha256sum $(NAME)* > SHA256SUMS && sha256sum --check SHA256SUMS

committed:
	@git diff --quiet HEAD || { echo "an archive is made of a commit, and these files differ from it:"; git diff --name-only HEAD; exit 1; }

test: $(STAMP) ## unit tests, then every chapter re-executed and compared with its stored outputs
	$(BIN)/python -m pytest -p nbval.plugin --nbval-lax --nbval-current-env --nbval-cell-timeout=600 --nbval-sanitize-with tests/nbval.cfg -n 2 --dist loadfile -rs

quick: $(STAMP) ## two minutes: lint, types, and the tests and chapters that a change against main reaches, nearest first
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	if [ -x $(BIN)/mypy ]; then $(BIN)/mypy; fi  # of the extra `development`; CI always has it
	$(BIN)/python tests/quick.py

lab: $(STAMP) ## open the chapters in JupyterLab
	$(BIN)/jupyter lab book

rerun: $(STAMP) ## re-run a chapter: make rerun CHAPTER=oversampling ARGS="-p n_seeds 20"
	$(BIN)/dpbook run $(CHAPTER) --html $(ARGS)

record: $(STAMP) ## record all tables of the book that are stale, after a plan: make record ARGS="--plan", or "--jobs 2"
	$(BIN)/dpbook record --all $(ARGS)

# What CI runs before the other targets. Nothing is resolved or built from source: exactly the listed files, or an error.
locked: ## the environment from requirements.lock, each file checked by its hash (Linux, PyTorch for CPUs)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --only-binary :all: --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --index-url https://download.pytorch.org/whl/cpu torch==$(TORCH)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --no-index --editable .
	$(BIN)/python -m pip check
	@touch $(STAMP)

clean: ## remove the environment, the built book and the runs
	rm -rf $(VENV) _build runs
