"""PyTorch's operator database run on loom against the CPU; `python -m tests.conformance` runs all of it."""
