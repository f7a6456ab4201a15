# The commands people type; CMakePresets.json is the build recipe behind them.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
PYTHON := .venv/bin/python

.PHONY: help demo build test lint format gpu-test gpu-bench wheel clean

help:  ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: build  ## Install what is missing, build, run the demo on the best backend present
	@build/default/bin/hyla demo

build:  ## Install what is missing, build the library and the command line
	@tools/bootstrap
	@tools/build default -DHYLA_BUILD_TESTS=OFF

test:  ## Install what is missing, build and run every test this machine can run
	@tools/bootstrap --test
	@$(PYTHON) tools/run_tests

lint:  ## clang-format and clang-tidy
	@tools/bootstrap --test
	@$(PYTHON) tools/run_tests lint

format:  ## Rewrite the sources in the project's format
	@git ls-files '*.cpp' '*.h' '*.c' '*.cu' '*.cuh' | xargs .venv/bin/clang-format -i

gpu-test:  ## Tests of the CUDA backend; needs nvcc and a GPU
	@tools/bootstrap --test
	@$(PYTHON) tools/run_tests gpu

gpu-bench:  ## Benchmarks on the GPU, compared with the committed results of the same device
	@tools/bootstrap
	@tools/build cuda
	@tools/gpu_bench build/cuda/bin/hyla

wheel:  ## The Python package, in dist/
	@tools/bootstrap
	@.venv/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist .

clean:  ## Remove all that was built (.venv stays)
	rm -rf build dist
