# Two commands do all their own set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed-dev
# torchcodec wants FFmpeg's libraries by the names that a system gives them. PyAV's wheel has them
# under names of its own: with links here, no system package is needed.
FFMPEG := $(VENV)/ffmpeg

.PHONY: demo test lint types check bench-quick clean

# pip is told the tested set; without it torch would arrive as several gigabytes of CUDA.
$(STAMP): pyproject.toml constraints.txt requirements-s3-test.txt
	@$(PYTHON) -c 'import sys; sys.exit(not ((3, 11) <= sys.version_info[:2] <= (3, 13)))' || \
		{ echo "Headrace needs Python 3.11 to 3.13: run make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement requirements-s3-test.txt
	@rm -rf $(FFMPEG) && mkdir $(FFMPEG)
	@cd $(FFMPEG) && for library in ../lib/python3.*/site-packages/av.libs/lib[as][vw]*.so.*; do \
		ln -sf $$library $$(basename $$library | sed -E 's/-[0-9a-f]+(\.so\.[0-9]+).*/\1/'); done
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/headrace demo

test: $(STAMP)
	OMP_NUM_THREADS=1 LD_LIBRARY_PATH=$(abspath $(FFMPEG))$${LD_LIBRARY_PATH:+:$$LD_LIBRARY_PATH} \
		$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

check: lint types test

bench-quick: $(STAMP)
	mkdir -p bench_out
	for name in ingest loader training packing; do \
		OMP_NUM_THREADS=1 $(BIN)/headrace bench $$name --quick --json bench_out/$$name.json || exit 1; done

clean:
	rm -rf $(VENV) demo_out bench_out
